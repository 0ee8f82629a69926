"""The best split of groups of operators that stand in a row: each device takes some that follow each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import numpy.typing as npt

from placewright.objective import MaxLoad, load_rows
from placewright.problem import Problem
from placewright.symmetry import symmetry_of

__all__ = ["ChainSplit", "placed", "split_chain"]

Floats = npt.NDArray[np.float64]

MOST_STATES = 512
"""Sets of used devices, up to exchanges; with more the devices are taken in the cluster's order."""


@dataclass(frozen=True, slots=True)
class ChainSplit:
    """A split of a row of groups.

    Attributes
    ----------
    value_s : float
        What the recurrence says that it takes.
    device_of_group : tuple of int
    exact : bool
        Whether the recurrence is the objective itself, so that no other split of the row is better.
    """

    value_s: float
    device_of_group: tuple[int, ...]
    exact: bool


def split_chain(
    problem: Problem,
    groups: Sequence[Sequence[int]],
    devices: Sequence[int],
    *,
    first_only: Sequence[int] = (),
    capacity_bytes: Floats | None = None,
) -> ChainSplit | None:
    """Split groups that stand in a row among devices, each of which takes one block of groups or none.

    With S the devices used so far, of which d took the last block, and g(S, d, e, i) the least value of the first i
    groups when the next block goes to e,

        g(S + e, e, f, j) = min over d in S and i < j of  g(S, d, e, i) (+) load(d, e, f, i, j)

    where load is what e does with the groups i..j-1 between d and f, and (+) is the maximum under ``max-load``, the sum
    under other objectives (which takes one sample through the blocks one after the other). O(2^D D^3 m^2) for m groups;
    of devices that can be exchanged only their number in S counts.

    Exact under ``max-load`` without backward operators, shared channels and replicas where each tensor is read in its
    group or the next one, or all links are equal; and under the makespan where between each two groups one tensor
    crosses that every operator before leads to and every operator after comes from, as then nothing runs side by side.
    Not where there are more than :data:`MOST_STATES` sets of devices, which are then taken in the order given.

    Parameters
    ----------
    problem : Problem
    groups : sequence of sequence of int
        Operators of each group; edges between groups go forward.
    devices : sequence of int
        That may be used.
    first_only : sequence of int
        Of them those that may take the first block only.
    capacity_bytes : (D,) array, optional
        Instead of the cluster's, for weights and KV cache.

    Returns
    -------
    ChainSplit or None
        ``None`` when no split fits.
    """
    tables = _Tables(problem, groups, devices, capacity_bytes)
    kinds = _classes(problem, devices)
    best = _search(tables, kinds, [k for k, i in enumerate(devices) if i in set(first_only)])
    if best is None:
        return None
    value, at = best
    return ChainSplit(value, tuple(devices[k] for k in at), tables.exact and kinds is not None)


def placed(problem: Problem, groups: Sequence[Sequence[int]], at: Sequence[int]) -> npt.NDArray[np.int32]:
    """(n,) device of each operator, of those of the groups."""
    device = np.zeros(len(problem.graph), dtype=np.int32)
    for row, i in zip(groups, at, strict=True):
        device[list(row)] = i
    return device


def _classes(problem: Problem, devices: Sequence[int]) -> list[list[int]] | None:
    """Positions of devices that can be exchanged; ``None``: devices are taken in the order given."""
    of = symmetry_of(problem).device_class
    rows: dict[int, list[int]] = {}
    for k, i in enumerate(devices):
        rows.setdefault(int(of[i]), []).append(k)
    states = int(np.prod([len(row) + 1.0 for row in rows.values()]))
    return list(rows.values()) if states <= MOST_STATES else None


class _Tables:
    """What a device does with a block, for every block: arrays (groups + 1, groups + 1) by its two ends."""

    def __init__(
        self, problem: Problem, groups: Sequence[Sequence[int]], devices: Sequence[int], capacity: Floats | None
    ) -> None:
        self.m, self.D = len(groups), len(devices)
        graph, cluster = problem.graph, problem.cluster
        n = len(graph)
        group_of = np.full(n, -1)
        for k, row in enumerate(groups):
            group_of[list(row)] = k
        self.max_load = isinstance(problem.objective, MaxLoad)
        self.rows = load_rows(problem.objective) if isinstance(problem.objective, MaxLoad) else ()
        self.free = np.array([self.max_load and cluster.devices[i].kind == "cpu" for i in devices])
        limit = cluster.capacity_bytes if capacity is None else capacity
        p = np.where(problem.allowed, problem.times.processing_s, 0.0)[:, list(devices)]
        never = ~problem.allowed[:, list(devices)]
        resident = problem.resident_bytes.astype(np.float64)
        upper = np.triu(np.ones((self.m + 1, self.m + 1), dtype=bool), 1)
        self.work, self.fits = [], []
        for k, i in enumerate(devices):
            fits = upper & (_blocks(never[:, k].astype(float), group_of, self.m) < 0.5)
            self.fits.append(fits & (_blocks(resident, group_of, self.m) <= limit[i]))
            self.work.append(_blocks(p[:, k], group_of, self.m))
        crossing = [
            u for u, t in enumerate(graph.tensors) if any(group_of[v] != group_of[t.producer] for v in t.readers)
        ]
        made = [int(group_of[graph.tensors[u].producer]) for u in crossing]
        read = [
            sorted({int(group_of[v]) for v in graph.tensors[u].readers} - {a})
            for u, a in zip(crossing, made, strict=True)
        ]
        backward = any(min(row) < a for row, a in zip(read, made, strict=True))
        entering = [
            (t, i, _next(row, i) + 1)
            for t, (a, row) in enumerate(zip(made, read, strict=True))
            if row[-1] > a
            for i in range(a + 1, row[-1] + 1)
        ]
        leaving = [
            (t, a, j)
            for t, (a, row) in enumerate(zip(made, read, strict=True))
            if row[-1] > a
            for j in range(a + 1, row[-1] + 1)
        ]
        self.enters = np.zeros((self.D, self.D, self.m + 1, self.m + 1))
        self.leaves = np.zeros_like(self.enters)
        sizes = np.array([graph.tensors[u].size_bytes for u in crossing], dtype=np.float64)
        uniform = True
        first: Floats | None = None
        table = problem.transfer_table
        for a, b in permutations(range(self.D), 2):
            i, j = devices[a], devices[b]
            c = cluster.transfer_table(sizes, [i], [j])[:, 0, 0] if table is None else table[crossing, i, j]
            first = c if first is None else first
            uniform = uniform and bool(np.allclose(c, first, rtol=1e-12, atol=0, equal_nan=True))
            c = np.where(np.isfinite(c), c, 1e30)
            if entering:
                t, at, from_ = (np.array(x) for x in zip(*entering, strict=True))
                np.add.at(self.enters[a, b], (at, from_), c[t])
                self.enters[a, b] = np.cumsum(self.enters[a, b], axis=1)
            if leaving:
                t, at, until = (np.array(x) for x in zip(*leaving, strict=True))
                np.add.at(self.leaves[a, b], (at, until), c[t])
                self.leaves[a, b] = np.cumsum(self.leaves[a, b][::-1], axis=0)[::-1]
        neighbours = all(row == [a + 1] for a, row in zip(made, read, strict=True))
        self.cut_in, self.cut_out = self._cuts(problem, group_of, devices)
        if self.max_load:
            plain = not any(v.backward for v in graph.operators) and not backward and not cluster.channels
            replicate = isinstance(problem.objective, MaxLoad) and problem.objective.replicate
            self.exact = plain and not replicate and (neighbours or uniform)
        else:
            self.exact = (
                problem.objective.name == "makespan" and not backward and _one_by_one(problem, group_of, self.m)
            )

    def _cuts(
        self, problem: Problem, group_of: npt.NDArray[np.int64], devices: Sequence[int]
    ) -> tuple[list[Floats], list[Floats]]:
        """Tabulate what operators that read from, or are read in, another block lose on each device."""
        graph = problem.graph
        earliest = [min((group_of[p] for p in graph.predecessors[v]), default=group_of[v]) for v in range(len(graph))]
        latest = [max((group_of[s] for s in graph.successors[v]), default=group_of[v]) for v in range(len(graph))]
        cut_in, cut_out = [], []
        for i in devices:
            enter, leave = np.zeros((self.m + 1, self.m + 1)), np.zeros((self.m + 1, self.m + 1))
            for v in range(len(graph)):
                t, c = int(group_of[v]), float(problem.cut_s[v, i])
                if c and earliest[v] < t:  # begins behind the earliest, holds v
                    enter[earliest[v] + 1 : t + 1, t + 1 :] += c
                if c and latest[v] > t:
                    leave[: t + 1, t + 1 : latest[v] + 1] += c
            cut_in.append(enter)
            cut_out.append(leave)
        return cut_in, cut_out

    def load(self, before: int, here: int, behind: int) -> Floats:
        """Of device ``here`` between two others; -1: there is none. ``inf`` where the block does not fit."""
        zero = np.zeros_like(self.work[here])
        enters = zero if before < 0 or self.free[here] else self.enters[before, here]
        leaves = zero if behind < 0 or self.free[here] else self.leaves[here, behind]
        if self.max_load:
            load = zero
            for of_c, of_i, of_o in self.rows:
                load = np.maximum(load, of_c * self.work[here] + of_i * enters + of_o * leaves)
        else:  # a transfer is counted by its receiver
            load = self.work[here] + enters + self.cut_in[here] + self.cut_out[here]
        return np.where(self.fits[here] & (load < 1e29), load, np.inf)


def _next(row: Sequence[int], i: int) -> int:
    """Find the first reader at or behind a position."""
    return next(r for r in row if r >= i)


def _blocks(amount: Floats, group_of: npt.NDArray[np.int64], m: int) -> Floats:
    """(m + 1, m + 1) sums over the groups i..j-1."""
    before = np.concatenate([[0.0], np.cumsum(np.bincount(group_of, weights=amount, minlength=m))])
    return np.asarray(before[None, :] - before[:, None])


def _one_by_one(problem: Problem, group_of: npt.NDArray[np.int64], m: int) -> bool:
    """Whether between each two groups one tensor crosses, on every path from before to behind."""
    graph = problem.graph
    crossing: list[list[int]] = [[] for _ in range(m)]
    for u, t in enumerate(graph.tensors):
        last = max((int(group_of[v]) for v in t.readers), default=-1)
        for k in range(int(group_of[t.producer]), last):
            crossing[k].append(u)
    for k in range(m - 1):
        if len(crossing[k]) != 1:
            return False
        gate = graph.tensors[crossing[k][0]]
        fed = np.zeros(len(graph), dtype=bool)  # by the gate
        fed[list(gate.readers)] = True
        for v in range(len(graph)):
            fed[v] |= any(fed[p] for p in graph.predecessors[v])
        feeds = np.zeros(len(graph), dtype=bool)
        feeds[gate.producer] = True
        for v in reversed(range(len(graph))):
            feeds[v] |= any(feeds[s] for s in graph.successors[v])
        if not (fed[group_of > k].all() and feeds[group_of <= k].all()):
            return False
    return True


def _search(
    tables: _Tables, kinds: list[list[int]] | None, first_only: Sequence[int]
) -> tuple[float, list[int]] | None:
    """Go over sets of used devices in order of their size; see :func:`split_chain`."""
    m, D = tables.m, tables.D
    rows = kinds if kinds is not None else [[k] for k in range(D)]
    kind_of = {k: c for c, row in enumerate(rows) for k in row}
    start = (0,) * (1 if kinds is None else len(rows))
    State = tuple[tuple[int, ...], int, int]  # used of each kind, the last one, the next one
    best: dict[State, Floats] = {}
    came: dict[State, tuple[list[State | None], npt.NDArray[np.int64]]] = {}
    begin = np.full(m + 1, np.inf)
    begin[0] = 0.0
    loads: dict[tuple[int, int, int], Floats] = {}

    def load(d: int, e: int, f: int) -> Floats:
        if (d, e, f) not in loads:
            loads[d, e, f] = tables.load(d, e, f)
        return loads[d, e, f]

    def following(used: tuple[int, ...], last: int) -> list[int]:
        if kinds is None:
            found = list(range(last + 1, D))
        else:
            found = [row[used[c]] for c, row in enumerate(rows) if used[c] < len(row)]
        return [e for e in found if e not in first_only]

    pending: dict[tuple[tuple[int, ...], int], list[tuple[State | None, int, Floats]]] = {}
    for row in rows:
        pending[start, row[0]] = [(None, -1, begin)]
    end: tuple[float, State] | None = None
    for _ in range(D):
        behind: dict[tuple[tuple[int, ...], int], list[tuple[State | None, int, Floats]]] = {}
        for (used, e), arrivals in pending.items():
            after = (used[0] + 1,) if kinds is None else tuple(u + (c == kind_of[e]) for c, u in enumerate(used))
            for f in (-1, *following(after, e)):
                value = np.full(m + 1, np.inf)
                sources: list[State | None] = [source for source, _, _ in arrivals]
                how = np.zeros((2, m + 1), dtype=np.int64)
                for a, (_, d, reached) in enumerate(arrivals):
                    table = load(d, e, f)
                    grown = np.maximum(reached[:, None], table) if tables.max_load else reached[:, None] + table
                    at = grown.argmin(axis=0)
                    found = grown[at, np.arange(m + 1)]
                    better = found < value
                    value = np.where(better, found, value)
                    how[0][better], how[1][better] = a, at[better]
                if not np.isfinite(value).any():
                    continue
                state = (after, e, f)
                best[state], came[state] = value, (sources, how)
                if f >= 0:
                    behind.setdefault((after, f), []).append((state, e, value))
                elif np.isfinite(value[m]) and (end is None or value[m] < end[0]):
                    end = (float(value[m]), state)
        pending = behind
    if end is None:
        return None
    at, state, found = m, end[1], [0] * m
    walk: State | None = state
    while walk is not None:
        sources, how = came[walk]
        i = int(how[1][at])
        found[i:at] = [walk[1]] * (at - i)
        walk, at = sources[int(how[0][at])], i
    return end[0], found
