"""Loops: operators that a compiler writes as one kernel, as they go over the same elements."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from placewright.coarsen.groups import Groups
from placewright.coarsen.kinds import base_kind, is_view
from placewright.graph import OperatorGraph

__all__ = ["Loops", "join_loops"]

LARGEST_KERNEL = 64
"""Operators in one kernel, as in TorchInductor (``max_fusion_size``)."""

NEAR = 0.1
"""Of the most operators on a path that are no loops: how many may lie between readers of what is joined, if few may."""

WIDEST_GAP = 4096
"""Groups that may stand between two that are merged, in an order of the groups."""


@dataclass(frozen=True, slots=True)
class Loops:
    """Which operators a compiler writes as loops, which can be joined at a tensor from one to the other.

    Attributes
    ----------
    elementwise : frozenset of str
        Element-wise operators and look-ups, which can be joined with what they read and with what reads them.
    reductions : frozenset of str
        The same of reductions and normalisations.
    last : frozenset of str
        Such as can only be joined with what they read.
    near : bool
        Whether what is read far apart is left to its readers, as a placement wants it; no compiler minds.
    """

    elementwise: frozenset[str]
    reductions: frozenset[str] = frozenset()
    last: frozenset[str] = frozenset()
    near: bool = False


def join_loops(groups: Groups, loops: Loops) -> None:
    """Merge loops with the loops that they read, along the topological order.

    Two groups are merged when a member of one reads a tensor of the other, both consist of loops, no path leads from
    one to the other through a third group, and one of these holds:

    - They go over equally many elements. The elements of an operator are those of the largest tensor that it reads or
      makes; of a group, of its largest member.
    - The first one reduces, and the second one goes over fewer elements: it works on the result.
    - The first one is element-wise, and only the second one reads it: it is computed where it is read.

    A view of a loop's tensor belongs to that loop.

    With ``loops.near`` a group is not merged with a reader b while it has other readers far from b. Else a table of
    positions, of which each layer reads a copy of its own, would have all the copies among its tensors, and each would
    be sent from where the table is made to its layer, instead of being made there. Let the *stage* of an operator be
    the most operators that are no loops on a path from it on, itself included: how early it is needed. Two readers are
    far from each other when their stages differ by more than a tenth of the greatest stage. A far reader does no harm
    when it waits for more such operators than b and is needed after b, while b waits for no more than the group does:
    as when a normalisation reads a sum, which the sum behind the layer reads again.

    Parameters
    ----------
    groups : Groups
        Acyclic; changed in place.
    loops : Loops

    Notes
    -----
    **Acyclic.** An order of the groups is kept in which each stands behind those that it reads. A path from a group a
    to a group b runs through groups between the two, so those alone are searched; and after a merge they alone are put
    in order anew: first those that a does not lead to, then the merged one, then the others.

    **Complexity.** O(m w) for m readers of tensors, with at most w = 4,096 groups between two that are merged; and
    O(m r) for tensors with up to r readers.
    """
    graph = groups.graph
    order = _Order(groups)
    kinds = [base_kind(v.kind) for v in graph.operators]
    distance = _Distance(groups, loops, kinds) if loops.near else None
    kernels = {r: _Kernel.of(graph, loops, kinds, row) for r, row in enumerate(groups.members) if row}
    for v in range(len(graph)):
        if len(groups.members[groups.of(v)]) > 1:
            continue
        sources = dict.fromkeys(groups.of(graph.tensors[u].producer) for u in graph.inputs_of[v])
        view = is_view(kinds[v]) and len(sources) == 1
        if not (view or kernels[v].reads):
            continue
        for source in sources:
            a, b = groups.of(source), groups.of(v)
            if a == b or not kernels[a].written:
                continue
            joined = kernels[a].viewed() if view else kernels[a].joined(kernels[b], alone=groups.targets(a) == {b})
            if joined is None or (distance is not None and distance.parts(a, b)):
                continue
            if order.merge(a, b):
                kernels[groups.of(v)] = joined


@dataclass(frozen=True, slots=True)
class _Kernel:
    """What is known of a group: whether it joins readers, whether it joins what it reads, and what it goes over."""

    written: bool
    reads: bool
    reduces: bool
    elements: int
    size: int

    @classmethod
    def of(cls, graph: OperatorGraph, loops: Loops, kinds: Sequence[str], members: Sequence[int]) -> _Kernel:
        own = {kinds[v] for v in members}
        written = own <= loops.elementwise | loops.reductions
        touched = (graph.tensors[u] for v in members for u in (*graph.inputs_of[v], *graph.outputs_of[v]))
        elements = max((math.prod(t.shape) for t in touched), default=0)
        return cls(written, written or own <= loops.last, bool(own & loops.reductions), elements, len(members))

    def viewed(self) -> _Kernel | None:
        """Add a view of one of its tensors."""
        return replace(self, size=self.size + 1) if self.size < LARGEST_KERNEL else None

    def joined(self, reader: _Kernel, *, alone: bool) -> _Kernel | None:
        """Add another one that reads it, ``alone`` or not; ``None`` where they stay apart."""
        alike = (
            self.elements == reader.elements
            or (self.reduces and self.elements > reader.elements)
            or (alone and not self.reduces)
        )
        if not alike or self.size + reader.size > LARGEST_KERNEL:
            return None
        return _Kernel(
            reader.written,
            True,
            self.reduces or reader.reduces,
            max(self.elements, reader.elements),
            self.size + reader.size,
        )


class _Distance:
    """How far apart the readers of a group are, counted in operators that are no loops."""

    def __init__(self, groups: Groups, loops: Loops, kinds: Sequence[str]) -> None:
        self._groups = groups
        graph = groups.graph
        light = loops.elementwise | loops.reductions | loops.last
        heavy = [not (kind in light or is_view(kind)) for kind in kinds]
        self._waits = [0] * len(graph)
        """For each operator the most such operators on a path up to and with it."""
        for v in range(len(graph)):
            self._waits[v] = heavy[v] + max((self._waits[p] for p in graph.predecessors[v]), default=0)
        self._stage = [0] * len(graph)
        for v in reversed(range(len(graph))):
            self._stage[v] = heavy[v] + max((self._stage[r] for r in graph.successors[v]), default=0)
        self._near = NEAR * max(self._stage)

    def parts(self, a: int, b: int) -> bool:
        """Whether another reader of group a keeps its reader b from being merged with it."""
        groups, stage, waits = self._groups, self._stage, self._waits
        graph = groups.graph
        soonest = max(stage[v] for v in groups.members[b])
        ready = max(waits[v] for v in groups.members[b])
        at_once = ready == max(waits[v] for v in groups.members[a])
        made = (u for v in groups.members[a] for u in graph.outputs_of[v])
        return any(
            abs(soonest - stage[r]) > self._near and not (at_once and waits[r] > ready and stage[r] < soonest)
            for u in made
            for r in graph.tensors[u].readers
            if groups.of(r) not in (a, b)
        )


class _Order:
    """The groups in a topological order, as they are merged."""

    def __init__(self, groups: Groups) -> None:
        import rustworkx

        self._groups = groups
        graph: rustworkx.PyDiGraph[int, None] = rustworkx.PyDiGraph()
        graph.add_nodes_from(range(len(groups.members)))
        graph.add_edges_from_no_data(
            [(r, w) for r, row in enumerate(groups.members) if row for w in sorted(groups.targets(r))]
        )
        self._row: list[int] = list(rustworkx.topological_sort(graph))
        self._at = [0] * len(self._row)
        for k, r in enumerate(self._row):
            self._at[r] = k

    def merge(self, a: int, b: int) -> bool:
        """Merge group b with group a, which it reads, and say whether that was done: not where it closes a cycle."""
        low, high = self._at[a], self._at[b]
        if high - low > WIDEST_GAP or not self._groups.alike([a, b]):
            return False
        behind = {a}
        for w in self._behind(a, high, behind):
            if b in self._groups.targets(w):
                return False
        window = self._row[low : high + 1]
        self._groups.merge([a, b])
        merged = self._groups.of(a)
        gone = b if merged == a else a
        first = [r for r in window if r not in behind and r != b]
        later = [r for r in window if r in behind and r != a]
        for k, r in enumerate((*first, gone, merged, *later), start=low):
            self._row[k] = r
            self._at[r] = k
        return True

    def _behind(self, a: int, limit: int, found: set[int]) -> Iterator[int]:
        """Yield the groups that a leads to, and that stand before a limit."""
        pending = [a]
        while pending:
            for w in self._groups.targets(pending.pop()):
                if self._at[w] < limit and w not in found:
                    found.add(w)
                    pending.append(w)
                    yield w
