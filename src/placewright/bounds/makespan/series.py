"""A chain of spans, and what lies beside it: what the priced bound is made of."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from placewright._kernel.schedule import Network
from placewright.arrays import arrays_of
from placewright.bounds.makespan.span import Reach, Span, alike_devices, span_between
from placewright.problem import Problem

__all__ = ["Series", "Side", "series_of"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Side:
    """An operator in none of the spans.

    Attributes
    ----------
    operator : int
    first, last : int
        Instants between which it runs: ``first`` is that of the last chain operator above it, ``last`` that of the
        first one below it.
    """

    operator: int
    first: int
    last: int


@dataclass(frozen=True, eq=False)
class Series:
    """Spans one after the other.

    Instant 0 is the start, instant k + 1 that at which the k-th operator of the chain has been processed, the last one
    the makespan. Span k lies between instants k and k + 1.

    Attributes
    ----------
    spans : list of Span
    sides : list of Side
        Ascending.
    parent : dict of int to (int, int)
        Side operator -> a reader of a tensor of it, in a span or beside, and that tensor. Others have none.
    span_of : dict of int to int
        Operator -> its span; that of an entry is the one that it ends.
    device_class : (D,) array
        Classes of devices that can be swapped, from 0.
    devices_in : (C,) array
        How many each has.
    port_class : (R,) array
        Classes of links, ports and channels that a swap of devices may exchange, from 0.
    ports_in : array
        How many each has.
    """

    problem: Problem
    spans: list[Span]
    sides: list[Side]
    parent: dict[int, tuple[int, int]]
    span_of: dict[int, int]
    alike: Ints
    device_class: Ints
    devices_in: Floats
    port_class: Ints
    ports_in: Floats
    _placed: dict[tuple[bytes, int, int], tuple[Network, npt.NDArray[np.bool_]]] = field(default_factory=dict)

    @property
    def instants(self) -> int:
        """How many there are."""
        return len(self.spans) + 1

    def kinds(self, k: int) -> list[tuple[int, int]]:
        """Devices of entry and exit of span k, one of each kind; 0 stands for an end that is not there."""
        span, D = self.spans[k], len(self.alike)
        rows, columns = ([0] if end is None else range(D) for end in (span.entry, span.exit))
        found: dict[tuple[int, int, bool], tuple[int, int]] = {}
        for i in rows:
            for j in columns:
                same = span.entry is not None and span.exit is not None and i == j
                found.setdefault((int(self.alike[i]), int(self.alike[j]), same), (i, j))
        return [(i, j) for i, j in found.values() if self.placed(k, i, j)[1].any(axis=1).all()]

    def placed(self, k: int, i: int, j: int) -> tuple[Network, npt.NDArray[np.bool_]]:
        """Span k with its ends fixed, made once for equal ones."""
        at = self.spans[k].key, i, j
        if at not in self._placed:
            self._placed[at] = self.spans[k].placed(i, j)
        return self._placed[at]


def series_of(problem: Problem, reach: Reach, chain: list[int]) -> Series:
    """Lay spans between the operators of a chain, each an ancestor of the next."""
    graph = problem.graph
    ends: list[int | None] = [None, *chain, None]
    spans = [span_between(problem, u, v, reach.between(u, v)) for u, v in itertools.pairwise(ends)]
    span_of: dict[int, int] = {}
    for k, span in enumerate(spans):
        span_of.update({v: k for v in span.operators if v != span.entry})
    sides = []
    first, last = _instants(graph.predecessors, graph.successors, chain, len(graph))
    for v in range(len(graph)):
        if v not in span_of:
            sides.append(Side(v, first[v], last[v]))
    parent = {}
    for side in sides:
        options = [
            (x in span_of, graph.tensors[u].size_bytes, -x, u)
            for u in graph.outputs_of[side.operator]
            for x in graph.tensors[u].readers
        ]
        if options:
            _, _, x, u = max(options)
            parent[side.operator] = -x, u
    alike = alike_devices(problem)
    device_class = np.unique(alike, return_inverse=True)[1].astype(np.int32)
    port_class = _port_classes(problem, device_class)
    return Series(
        problem, spans, sides, parent, span_of, alike, device_class, np.bincount(device_class).astype(np.float64),
        port_class, np.bincount(port_class).astype(np.float64),
    )  # fmt: skip


def _instants(
    before: tuple[tuple[int, ...], ...], behind: tuple[tuple[int, ...], ...], chain: list[int], n: int
) -> tuple[list[int], list[int]]:
    """Instants of the last chain operator above each operator, and of the first one below."""
    at = {v: k + 1 for k, v in enumerate(chain)}
    first, last = [0] * n, [len(chain) + 1] * n
    for v in range(n):
        first[v] = max((at.get(u, first[u]) for u in before[v]), default=0)
    for v in range(n - 1, -1, -1):
        last[v] = min((at.get(x, last[x]) for x in behind[v]), default=len(chain) + 1)
    return first, last


def _port_classes(problem: Problem, device_class: Ints) -> Ints:
    """Classes of links, ports and channels: by the classes of the pairs of devices that use them."""
    g = arrays_of(problem).network
    D = len(device_class)
    users: list[set[tuple[int, int, int]]] = [set() for _ in range(g.n_resources)]
    for i in range(D):
        for j in range(D):
            for slot in range(4):
                r = int(g.resources[i, j, slot])
                if r >= 0 and i != j:
                    users[r].add((int(device_class[i]), int(device_class[j]), slot))
    names: dict[frozenset[tuple[int, int, int]], int] = {}
    return np.array([names.setdefault(frozenset(u), len(names)) for u in users], dtype=np.int32)
