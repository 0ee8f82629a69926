"""A partition of a graph's operators, and the graph of its groups."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Sequence

from placewright.graph import Operator, OperatorGraph, Tensor

__all__ = ["Groups", "contract"]


class Groups:
    """A partition of the operators (union-find with member lists), with the questions that rules ask of it.

    Parameters
    ----------
    graph : OperatorGraph
    support : sequence of hashable, optional
        For each operator what stands for the devices that may run it; ``None``: any that others may. Operators of
        unlike support are never merged.
    """

    def __init__(self, graph: OperatorGraph, support: Sequence[Hashable] | None = None) -> None:
        self.graph = graph
        self.support: list[Hashable] = [None] * len(graph) if support is None else list(support)
        self.root = list(range(len(graph)))
        self.members: list[list[int]] = [[v] for v in range(len(graph))]

    def of(self, v: int) -> int:
        """Find the representative of v's group."""
        while self.root[v] != v:
            self.root[v] = self.root[self.root[v]]
            v = self.root[v]
        return v

    def alike(self, operators: Iterable[int]) -> bool:
        """Whether the groups of operators may run on the same devices."""
        return len({self.support[self.of(v)] for v in operators} - {None}) <= 1

    def merge(self, operators: Iterable[int]) -> None:
        """Make one group of the groups of several operators; the largest takes in the others.

        Nothing is done where they may not run on the same devices.
        """
        first, *others = sorted({self.of(v) for v in operators}, key=lambda r: (-len(self.members[r]), r))
        if not self.alike([first, *others]):
            return
        for r in others:
            self.root[r] = first
            if self.support[first] is None:
                self.support[first] = self.support[r]
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


def contract(groups: Groups) -> OperatorGraph:
    """Build the graph of groups, which must be acyclic.

    Sums of FLOPs and of what is held are as before; memory traffic is less the tensors that no longer leave their
    group.
    """
    graph = groups.graph
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
        signature=_signature(graph, members),
        parts=tuple(name for v in parts for name in v.part_names),
        folded=tuple(dict.fromkeys(name for v in parts for name in v.folded)),
        gradient_bytes=sum(v.gradient_bytes for v in parts),
        optimizer_bytes=sum(v.optimizer_bytes for v in parts),
        saved_bytes=sum(v.saved_bytes for v in parts),
        caches=tuple(c for v in parts for c in v.caches),
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


def _signature(graph: OperatorGraph, members: Sequence[int]) -> str:
    """Equal for groups of equal parts, equally wired, whatever their tensors are called; empty when a part has none.

    A tensor is told by what it holds, by which part makes it and which ones read it, counted in their order, and by
    whether it leaves. Two that agree in all of that may change places.
    """
    if not all(graph.operators[v].signature for v in members):
        return ""
    position = {v: k for k, v in enumerate(members)}
    touched = dict.fromkeys(u for v in members for u in (*graph.inputs_of[v], *graph.outputs_of[v]))
    wires = []
    for t in (graph.tensors[u] for u in touched):
        readers = [position[r] for r in t.readers if r in position]
        leaves = t.producer in position and (t.output or len(readers) < len(t.readers))
        wires.append(f"{position.get(t.producer, -1)}->{readers}{'!' * leaves} {t.dtype}{list(t.shape)} {t.size_bytes}")
    text = "\n".join([*(graph.operators[v].signature for v in members), *sorted(wires)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
