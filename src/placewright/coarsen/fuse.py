"""Fusion: operators that a back-end runs as one become one, and the graph stays acyclic."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Mapping, Sequence

from placewright.coarsen.kinds import is_light, is_view
from placewright.graph import Operator, OperatorGraph, Tensor

__all__ = ["fuse"]

LARGEST_REGION = 32
"""Operators that are looked at behind one tensor; longer chains are fused piece by piece."""

SHAPE_BYTES = 256
"""Integer tensors up to this size are indices and shapes: what computes them is no work worth a placement."""

_INTEGERS = frozenset({"int32", "int64", "bool"})


def fuse(graph: OperatorGraph) -> OperatorGraph:
    """Merge operators that a back-end never separates.

    Three rules, each applied along the topological order:

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
    graph : OperatorGraph

    Returns
    -------
    OperatorGraph
        Sums of FLOPs, weights and KV cache are as before; memory traffic is less the tensors that no longer leave
        their group. A merged operator is named after its heaviest part and lists all ``parts`` in topological order.
        Tensors that leave a group keep their names. Colocation classes are carried over.

    Notes
    -----
    **Acyclic by construction.** Let the graph of groups be acyclic, and let all tensors that a set S of operators reads
    from outside come from one group g. Every operator of S then descends from g. (a) Merge S with g: a new cycle
    leaves their union and comes back into S or g; into S only g leads, so it comes back into g from elsewhere, having
    left from g or a descendant of it: a cycle that was there before. (b) Merge S alone: a new cycle leaves S and comes
    back into it, through g: g, S, ..., g was a cycle before. (c) The mirror image: let all readers outside of a group
    v be in group h. A new cycle leaves their union, from h, as v leads only there, and comes back into h (a
    cycle before) or into v (h, ..., v, h: a cycle before). Rules 1 and 2 are (a) or (b), rule 3 is (c) or (a).

    **Complexity.** O((n + m) log n) for n operators and m readers of tensors: each tensor starts at most one region of
    bounded size.

    Examples
    --------
    >>> graph = OperatorGraph([Operator("conv", "Conv", 80), Operator("relu", "Relu", 8), Operator("pool", "MaxPool")],
    ...                       [Tensor("x", 0, (1,), 32), Tensor("y", 1, (2,), 32)])
    >>> [(v.name, v.kind, v.parts) for v in fuse(graph).operators]
    [('conv', 'Conv+Relu', ('conv', 'relu')), ('pool', 'MaxPool', ())]
    """
    groups = _Groups(graph)
    _join_views(groups)
    for u in range(len(graph.tensors)):
        _join_region(groups, u)
    _join_remaining_views(groups)
    return _contract(graph, groups)


class _Groups:
    """A partition of the operators (union-find with member lists), with the questions that the rules ask of it."""

    def __init__(self, graph: OperatorGraph) -> None:
        self.graph = graph
        self.root = list(range(len(graph)))
        self.members: list[list[int]] = [[v] for v in range(len(graph))]

    def of(self, v: int) -> int:
        """Find the representative of v's group."""
        while self.root[v] != v:
            self.root[v] = self.root[self.root[v]]
            v = self.root[v]
        return v

    def merge(self, operators: Iterable[int]) -> None:
        """Make one group of the groups of several operators; the largest takes in the others."""
        first, *others = sorted({self.of(v) for v in operators}, key=lambda r: (-len(self.members[r]), r))
        for r in others:
            self.root[r] = first
            self.members[first] += self.members[r]
            self.members[r] = []

    def sources(self, group: int) -> set[int]:
        """Collect the other groups whose tensors a group reads."""
        tensors = self.graph.tensors
        return {self.of(tensors[u].producer) for v in self.members[group] for u in self.graph.inputs_of[v]} - {group}

    def targets(self, group: int) -> set[int]:
        """Collect the other groups that read a group's tensors."""
        tensors = self.graph.tensors
        made = [u for v in self.members[group] for u in self.graph.outputs_of[v]]
        return {self.of(r) for u in made for r in tensors[u].readers} - {group}


def _join_views(groups: _Groups) -> None:
    """Apply rule 1."""
    graph = groups.graph
    for v, operator in enumerate(graph.operators):
        if not is_view(operator.kind) and not _computes_shapes(graph, v):
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


def _join_region(groups: _Groups, u: int) -> None:
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
    if all(
        not tensors[t].output and all(r in inside or groups.of(r) == home for r in tensors[t].readers) for t in taken
    ):
        members.append(home)
    groups.merge(members)


def _may_follow(groups: _Groups, group: Sequence[int], region: Mapping[int, None], home: int) -> bool:
    """Whether a group is light, and reads only from the region, its home, and itself."""
    if len(group) > LARGEST_REGION:
        return False
    operators, tensors, inputs_of = groups.graph.operators, groups.graph.tensors, groups.graph.inputs_of
    own = groups.of(group[0])
    makers = (tensors[t].producer for v in group for t in inputs_of[v])
    return all(is_light(operators[v].kind) for v in group) and all(
        maker in region or groups.of(maker) in (own, home) for maker in makers
    )


def _join_remaining_views(groups: _Groups) -> None:
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


def _contract(graph: OperatorGraph, groups: _Groups) -> OperatorGraph:
    """Build the graph of groups."""
    position: dict[int, int] = {}
    members: list[list[int]] = []
    for v in range(len(graph)):
        k = position.setdefault(groups.of(v), len(members))
        if k == len(members):
            members.append([])
        members[k].append(v)
    at = [position[groups.of(v)] for v in range(len(graph))]
    tensors: list[Tensor] = []
    for t in graph.tensors:
        outside = tuple(sorted({at[r] for r in t.readers} - {at[t.producer]}))
        if outside or t.output:
            tensors.append(Tensor(t.name, at[t.producer], outside, t.size_bytes, t.shape, t.dtype, t.output))
    operators = [_merged(graph, m, at) if len(m) > 1 else graph.operators[m[0]] for m in members]
    classes = [sorted({operators[at[v]].name for v in c}) for c in graph.colocation]
    return OperatorGraph.build(operators, tensors, classes, graph.name, graph.source)


def _merged(graph: OperatorGraph, members: Sequence[int], at: Sequence[int]) -> Operator:
    """One operator for several, which stand in topological order."""
    parts = [graph.operators[v] for v in members]
    head = max(parts, key=lambda v: (v.flops, v.weight_bytes, v.traffic_bytes))
    kinds = list(dict.fromkeys(kind for v in parts for kind in v.kind.split("+") if kind))
    return Operator(
        name=head.name,
        kind="+".join(kinds[:3]) + ("+..." if len(kinds) > 3 else ""),
        flops=sum(v.flops for v in parts),
        traffic_bytes=max(0, sum(v.traffic_bytes for v in parts) - _saved_bytes(graph, members, at)),
        weight_bytes=sum(v.weight_bytes for v in parts),
        kv_cache_bytes=sum(v.kv_cache_bytes for v in parts),
        dtype=head.dtype,
        signature=_signature(graph, members, at),
        parts=tuple(name for v in parts for name in v.part_names),
    )


def _saved_bytes(graph: OperatorGraph, members: Sequence[int], at: Sequence[int]) -> int:
    """Traffic of tensors that stay inside: not written when no reader is outside, and not read back by readers inside.

    A view moves nothing, so what it shows counts as the tensor that it shows.
    """
    here = at[members[0]]
    storage: dict[int, int] = {}  # tensor made here -> the one made here whose bytes it shows
    written: dict[int, bool] = {}  # such a tensor -> whether its bytes leave the group
    saved = 0
    for v in members:
        inside = [u for u in graph.inputs_of[v] if at[graph.tensors[u].producer] == here]
        view = graph.operators[v].traffic_bytes == 0
        if not view:
            read = sum(graph.tensors[u].size_bytes for u in inside)
            saved += min(read, graph.operators[v].traffic_bytes)
        for u in graph.outputs_of[v]:
            t = graph.tensors[u]
            storage[u] = storage.get(inside[0], u) if view and inside else u
            leaves = t.output or any(at[r] != here for r in t.readers)
            written[storage[u]] = written.get(storage[u], False) or leaves
            if not view:
                written.setdefault(u, leaves)
    makers = {u: graph.tensors[u].producer for u in written}
    for u, leaves in written.items():
        if not leaves and graph.operators[makers[u]].traffic_bytes > 0:
            saved += graph.tensors[u].size_bytes
    return saved


def _signature(graph: OperatorGraph, members: Sequence[int], at: Sequence[int]) -> str:
    """Equal for groups of equal parts, equally wired; empty when a part has none."""
    here = at[members[0]]
    digest = hashlib.sha256()
    number: dict[int, str] = {}
    for v in members:
        operator = graph.operators[v]
        if not operator.signature:
            return ""
        wires = [number.setdefault(u, f"external {len(number)}") for u in graph.inputs_of[v]]
        for u in graph.outputs_of[v]:
            t = graph.tensors[u]
            leaves = t.output or any(at[r] != here for r in t.readers)
            number[u] = f"{len(number)}"
            wires.append(f"->{number[u]}{'!' if leaves else ''}")
        digest.update(f"{operator.signature}({','.join(wires)});".encode())
    return digest.hexdigest()[:16]
