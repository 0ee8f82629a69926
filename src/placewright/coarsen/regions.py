"""What no back-end separates: views and the tensors that they show, and light operators behind one tensor."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from placewright.coarsen.groups import Groups
from placewright.coarsen.kinds import is_light, is_view
from placewright.graph import OperatorGraph, Tensor

__all__ = ["join_regions"]

LARGEST_REGION = 32
"""Operators that are looked at behind one tensor; longer chains are fused piece by piece."""

SHAPE_BYTES = 256
"""Integer tensors up to this size are indices and shapes: what computes them is no work worth a placement."""

_INTEGERS = frozenset({"int32", "int64", "bool"})


def join_regions(groups: Groups) -> None:
    """Merge views and light operators by three rules, each applied along the topological order.

    1. A view (reshape, slice, ...) joins the operator whose tensor it shows, when only views read that tensor; so does
       the arithmetic on shapes.
    2. Behind a tensor x of group g, a *region* of light operators (element-wise, normalisation, reduction, view) that
       reads nothing but weights and tensors of g, and that has at most one tensor leaving it, becomes one operator.
       This is Relu behind Conv, but also SiLU, GELU or a normalisation that the source spells out. The region joins g
       when nobody else reads what it reads of g; else it stands for itself.
    3. A view that is left over, beside other readers of its tensor, joins its only reader, else its producer.

    Rules 1 and 2 are the fusions of inference back-ends that Moirai (arXiv 2312.04025, section 3.1) coarsens by,
    without those that join two tensors of different groups.

    Parameters
    ----------
    groups : Groups
        Acyclic; changed in place.

    Notes
    -----
    **Acyclic by construction.** Let the graph of groups be acyclic, and let all tensors that a set S of groups reads
    from outside come from one group g. Every member of S then descends from g. (a) Merge S with g: a new cycle
    leaves their union and comes back into S or g; into S only g leads, so it comes back into g from elsewhere, having
    left from g or a descendant of it: a cycle that was there before. (b) Merge S alone: a new cycle leaves S and comes
    back into it, through g: g, S, ..., g was a cycle before. (c) The mirror image: let all readers outside of a group
    v be in group h. A new cycle leaves their union, from h, as v leads only there, and comes back into h (a
    cycle before) or into v (h, ..., v, h: a cycle before). Rules 1 and 2 are (a) or (b), rule 3 is (c) or (a).

    **Complexity.** O((n + m) log n) for n operators and m readers of tensors: each tensor starts at most one region of
    bounded size.
    """
    _join_views(groups)
    for u in range(len(groups.graph.tensors)):
        _join_region(groups, u)
    _join_remaining_views(groups)


def _join_views(groups: Groups) -> None:
    """Apply rule 1."""
    graph = groups.graph
    for v, operator in enumerate(graph.operators):
        if len(groups.members[groups.of(v)]) > 1 or not (is_view(operator.kind) or _computes_shapes(graph, v)):
            continue
        sources = groups.sources(v)
        if len(sources) != 1:
            continue
        read = [graph.tensors[u] for u in graph.inputs_of[v]]
        made = [graph.tensors[u] for u in graph.outputs_of[v]]
        if all(map(_is_shape, made)) or all(
            not t.output and all(is_view(graph.operators[r].kind) for r in t.readers) for t in read
        ):
            groups.merge([v, *sources])


def _is_shape(tensor: Tensor) -> bool:
    return tensor.dtype in _INTEGERS and tensor.size_bytes <= SHAPE_BYTES


def _computes_shapes(graph: OperatorGraph, v: int) -> bool:
    touched = (graph.tensors[u] for u in (*graph.inputs_of[v], *graph.outputs_of[v]))
    return graph.operators[v].weight_bytes <= SHAPE_BYTES and all(map(_is_shape, touched))


def _join_region(groups: Groups, u: int) -> None:
    """Apply rule 2 to the region behind tensor u: grow it in topological order, keep its longest good beginning."""
    graph, tensors = groups.graph, groups.graph.tensors
    home = groups.of(tensors[u].producer)
    pending = [r for r in tensors[u].readers if groups.of(r) != home]
    heapq.heapify(pending)
    seen = set(pending)
    region: dict[int, None] = {}
    best = 0
    unread: dict[int, int] = {}  # made by the region -> how many read it outside, the network's user included
    while pending and len(region) < LARGEST_REGION:
        v = heapq.heappop(pending)
        group = groups.members[groups.of(v)]
        if v in region or not _may_follow(groups, group, region, home):
            continue
        for w in sorted(group):
            region[w] = None
            for t in graph.inputs_of[w]:
                if t in unread:
                    unread[t] -= 1
                    if unread[t] == 0:
                        del unread[t]
            for t in graph.outputs_of[w]:
                left = len(tensors[t].readers) + tensors[t].output
                if left:
                    unread[t] = left
                fresh = [r for r in tensors[t].readers if r not in seen]
                seen.update(fresh)
                for r in fresh:
                    heapq.heappush(pending, r)
        if len(unread) <= 1:
            best = len(region)
    members = list(region)[:best]
    if not members:
        return
    inside = set(members)
    taken = {t for v in members for t in graph.inputs_of[v] if tensors[t].producer not in inside}
    if groups.alike([*members, home]) and all(
        not tensors[t].output and all(r in inside or groups.of(r) == home for r in tensors[t].readers) for t in taken
    ):
        members.append(home)
    groups.merge(members)


def _may_follow(groups: Groups, group: Sequence[int], region: Mapping[int, None], home: int) -> bool:
    """Whether a group is light, and reads only from the region, its home, and itself."""
    if len(group) > LARGEST_REGION:
        return False
    operators, tensors, inputs_of = groups.graph.operators, groups.graph.tensors, groups.graph.inputs_of
    if not groups.alike([group[0], *region]):
        return False
    own = groups.of(group[0])
    makers = (tensors[t].producer for v in group for t in inputs_of[v])
    return all(is_light(operators[v].kind) for v in group) and all(
        maker in region or groups.of(maker) in (own, home) for maker in makers
    )


def _join_remaining_views(groups: Groups) -> None:
    """Apply rule 3, against the order, so that a chain of views follows its last one."""
    graph = groups.graph
    for v in range(len(graph) - 1, -1, -1):
        group = groups.members[groups.of(v)]
        if v != group[0] or not all(is_view(graph.operators[w].kind) for w in group):
            continue
        targets, sources = groups.targets(groups.of(v)), groups.sources(groups.of(v))
        leaves = any(graph.tensors[u].output for w in group for u in graph.outputs_of[w])
        if len(targets) == 1 and not leaves:
            groups.merge([v, *targets])
        elif len(sources) == 1:
            groups.merge([v, *sources])
