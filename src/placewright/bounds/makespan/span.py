"""Spans: what lies between two operators of a path, as a network of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from placewright._kernel.schedule import Network
from placewright.arrays import Arrays, arrays_of
from placewright.problem import Problem
from placewright.ragged import ragged

__all__ = ["Reach", "Span", "alike_devices", "members_of", "span_between"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Reach:
    """Sets of operators as whole numbers, a bit an operator.

    Attributes
    ----------
    above, below : list of int
        All ancestors and all descendants of each operator.
    """

    above: list[int]
    below: list[int]

    @classmethod
    def of(cls, problem: Problem) -> Reach:
        """Follow all tensors: O(n E / 64)."""
        graph = problem.graph
        n = len(graph)
        above, below = [0] * n, [0] * n
        for v in range(n):
            for u in graph.predecessors[v]:
                above[v] |= above[u] | 1 << u
        for v in range(n - 1, -1, -1):
            for u in graph.successors[v]:
                below[v] |= below[u] | 1 << u
        return cls(above, below)

    def between(self, entry: int | None, last: int | None) -> int:
        """Descendants of ``entry`` that are ancestors of ``last``; ``None`` asks for nothing."""
        if entry is None:
            return (1 << len(self.above)) - 1 if last is None else self.above[last]
        return self.below[entry] if last is None else self.below[entry] & self.above[last]


def members_of(operators: int) -> Iterator[int]:
    """Yield the numbers of a set, ascending.

    Examples
    --------
    >>> list(members_of(0b1011))
    [0, 1, 3]
    """
    while operators:
        low = operators & -operators
        yield low.bit_length() - 1
        operators ^= low


@dataclass(frozen=True, eq=False)
class Span:
    """The operators between an entry and an exit as a network of their own.

    Attributes
    ----------
    entry, exit : int or None
        Operators of the whole network; ``None``: the span begins at time 0, or ends with the makespan.
    operators : tuple of int
        Entry, inner operators and exit, ascending.
    network : Network
        Entry and exit as they are: :meth:`placed` fixes their devices. Tensors that only lead out of the span are not
        there, nor what only comes in.
    unit_ptr, member : int32 arrays
        Operators of one colocation class that are here, those of most time first.
    units : tuple of int
        Their numbers in the whole problem.
    allowed : (U, D) bool
    key : bytes
        Equal keys mean equal networks.
    """

    entry: int | None
    exit: int | None
    operators: tuple[int, ...]
    network: Network
    unit_ptr: npt.NDArray[np.int32]
    member: npt.NDArray[np.int32]
    units: tuple[int, ...]
    allowed: npt.NDArray[np.bool_]
    key: bytes = field(repr=False)

    def placed(self, first: int, last: int) -> tuple[Network, npt.NDArray[np.bool_]]:
        """Fix the devices of entry and exit, and take the entry's own time away.

        Returns
        -------
        network : Network
        allowed : (U, D) bool
        """
        processing, allowed = self.network.processing.copy(), self.allowed.copy()
        unit_of = np.repeat(np.arange(len(self.units)), np.diff(self.unit_ptr))[np.argsort(self.member)]
        ends = [(0, first)] if self.entry is not None else []
        ends += [(len(self.operators) - 1, last)] if self.exit is not None else []
        for v, i in ends:
            kept = allowed[unit_of[v], i]
            allowed[unit_of[v]] = False
            allowed[unit_of[v], i] = kept
        if self.entry is not None:
            processing[0] = np.where(np.isfinite(processing[0]), 0.0, np.inf)
        processing[~allowed[unit_of]] = np.inf
        return self.network._replace(processing=processing), allowed


def span_between(problem: Problem, entry: int | None, last: int | None, inner: int) -> Span:
    """Cut out the operators ``inner`` (a set) with the ends that are there."""
    a = arrays_of(problem)
    g, graph = a.network, problem.graph
    ends = [v for v in (entry, last) if v is not None]
    operators = sorted([*members_of(inner), *ends])
    local = {v: k for k, v in enumerate(operators)}
    tensors, readers, made = list[tuple[int, int]](), list[list[int]](), list[list[int]]()
    read = [list[int]() for _ in operators]
    for k, v in enumerate(operators):
        made.append(list[int]())
        if v == last:
            continue
        for u in graph.outputs_of[v]:
            here = [local[x] for x in graph.tensors[u].readers if x in local]
            if here:
                made[-1].append(len(tensors))
                for x in here:
                    read[x].append(len(tensors))
                tensors.append((u, k))
                readers.append(here)
    made_ptr, _ = ragged(made)
    read_ptr, read_values = ragged(read)
    reader_ptr, reader_values = ragged(readers)
    rows = np.array(operators, dtype=np.int64)
    picked = np.array([u for u, _ in tensors], dtype=np.int64)
    network = Network(
        made_ptr, read_ptr, read_values, reader_ptr, reader_values,
        np.array([k for _, k in tensors], dtype=np.int32), g.size[picked], g.processing[rows].copy(),
        g.latency, g.per_byte, g.transfer[picked] if g.transfer.shape[0] else g.transfer,
        g.cut[rows].copy(), g.resources, g.n_resources,
    )  # fmt: skip
    unit_ptr, member, units = _units(a, operators, network.processing)
    allowed = a.allowed[list(units)]
    digest = hashlib.sha256()
    parts = *network[:7], network.processing, network.cut, network.transfer, unit_ptr, member, allowed
    for part in parts:
        digest.update(np.ascontiguousarray(part).tobytes())
    digest.update(bytes([entry is not None, last is not None]))
    return Span(entry, last, tuple(operators), network, unit_ptr, member, units, allowed, digest.digest())


def _units(
    a: Arrays, operators: list[int], processing: Floats
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], tuple[int, ...]]:
    groups: dict[int, list[int]] = {}
    for k, v in enumerate(operators):
        groups.setdefault(int(a.unit_of[v]), []).append(k)
    least = np.where(np.isfinite(processing), processing, np.inf).min(axis=1)
    order = sorted(groups, key=lambda k: (-float(least[groups[k]].sum()), groups[k][0]))
    unit_ptr, member = ragged([groups[k] for k in order])
    return unit_ptr, member, tuple(order)


def alike_devices(problem: Problem) -> npt.NDArray[np.int32]:
    """(D,) class of each device: two of one class can be swapped and nothing changes.

    Equal times of all operators, equal capacities, and equal links, channels and transfer times from and to every
    third device and between the two.
    """
    a, cluster = arrays_of(problem), problem.cluster
    g = a.network
    D = len(cluster)
    channels = cluster.channels_of
    tables: list[npt.NDArray[Any]] = [g.latency, g.per_byte, channels[:, :, 0], channels[:, :, 1]]
    columns = np.vstack([g.processing, g.cut, a.capacity[None, :], a.allowed])
    found = np.arange(D, dtype=np.int32)
    for j in range(D):
        for i in range(j):
            if found[i] != i or not (columns[:, i] == columns[:, j]).all():
                continue
            swap = np.arange(D)
            swap[[i, j]] = j, i
            same = all((t == t[np.ix_(swap, swap)]).all() for t in tables)
            if same and g.transfer.shape[0]:
                same = bool((g.transfer == g.transfer[:, swap][:, :, swap]).all())
            if same:
                found[j] = i
                break
    return found
