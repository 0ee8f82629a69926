"""A path of the network cut into intervals, each the calls of one accelerator, and its least finish."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from placewright._kernel.calls import shortest_intervals
from placewright.algorithm import Budget
from placewright.bounds.offload.interval_program import least_time
from placewright.bounds.offload.relaxed import Relaxed

__all__ = ["Interval", "Spine", "longest_path"]

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

SAME = 1e-9
"""Relative difference below which times are the same."""


def longest_path(r: Relaxed, weight: Floats) -> list[int]:
    """Return the operators of a path of most weight."""
    best, before = weight.astype(np.float64).copy(), np.full(len(r), -1)
    for v in range(len(r)):
        if r.makers[v]:
            u = max(r.makers[v], key=lambda u: float(best[u]))
            best[v], before[v] = best[u] + weight[v], u
    path = [int(best.argmax())]
    while before[path[-1]] >= 0:
        path.append(int(before[path[-1]]))
    return path[::-1]


@dataclass(frozen=True, slots=True)
class Interval:
    """Blocks ``first..last`` of the path on one accelerator: what is surely inside, and what its program took.

    Both are ``None`` on CPUs, and where the program was not asked.
    """

    first: int
    last: int
    inside: Flags | None = None
    taken: Flags | None = None


class Spine:
    """A path, its blocks (steps in a row of one unit), and what each interval of blocks takes at least.

    Parameters
    ----------
    r : Relaxed
    path : sequence of int
    budget : Budget
    price : float
        Seconds a byte of accelerator memory.
    buckets : int
        Parts of the memory of all accelerators in which the intervals' needs are counted, rounded down; 0: not at all,
        but their number, where calls are limited.
    """

    def __init__(self, r: Relaxed, path: Sequence[int], budget: Budget, price: float = 0.0, buckets: int = 0) -> None:
        self.r, self.path, self.budget, self.price = r, list(path), budget, price
        self.low: list[int] = []
        self.high: list[int] = []
        for t, v in enumerate(self.path):
            if t and r.unit_of[v] == r.unit_of[self.path[t - 1]]:
                self.high[-1] = t
            else:
                self.low.append(t)
                self.high.append(t)
        m = len(self.low)
        self.alone = np.array([r.cpu_s[self.path[a : b + 1]].sum() for a, b in zip(self.low, self.high, strict=True)])
        self.free = ~r.flags(np.bitwise_or.reduce(r.below[self.path], axis=0))
        self.cpu_finish = np.zeros(len(r))
        for v in range(len(r)):
            self.cpu_finish[v] = r.cpu_s[v] + max((self.cpu_finish[u] for u in r.makers[v]), default=0.0)
        self.length, self.earliest = np.full((m, m), np.inf), np.full((m, m), -np.inf)
        self.taken: dict[tuple[int, int], tuple[Flags, Flags]] = {}
        self._asked: dict[tuple[int, int], float] = {}
        self._finish: dict[tuple[int, int], float] = {}
        most = 0 if r.calls is None else min(r.accelerators * r.calls, m)
        self.most = buckets or (most if most < m // 2 else 0)
        self.buckets = buckets
        self.need = np.full((m, m), 1 if self.most and not buckets else 0, dtype=np.int32)
        self._table()

    def __len__(self) -> int:
        """Return the number of blocks."""
        return len(self.low)

    def sets(self, i: int, j: int, within: Flags | None = None) -> tuple[Flags, Flags, Flags]:
        """Operators surely inside the calls of an interval, surely outside, and between its ends.

        ``within``: those inside for a shorter interval with the same first block.
        """
        r, s = self.r, self.path
        first, last = s[self.low[i]], s[self.high[j]]
        between = r.flags(r.below[first] & r.above[last])
        gaps = [] if r.calls == 1 else [t for b in range(i, j + 1) for t in range(self.low[b], self.high[b])]
        inside, begin = np.zeros(len(r), dtype=np.bool_), self.low[i]
        for t in (*gaps, self.high[j]):
            inside |= r.flags(r.below[s[begin]] & r.above[s[t]])
            begin = t + 1
        if gaps:
            inside |= between & r.whole_units(inside)
        outside = ~r.supported
        if i > 0:
            outside |= r.flags(r.above[s[self.high[i - 1]]])
        if j + 1 < len(self):
            outside |= r.flags(r.below[s[self.low[j + 1]]])
        if r.calls == 1:  # a unit is in the call or out of it, and so is what lies between
            if within is not None:
                inside |= within
            before = -1
            while int(inside.sum()) != before:
                before = int(inside.sum())
                inside = r.hull(r.whole_units(inside))
            outside = r.whole_units(outside)
        return inside, outside, between

    def _table(self) -> None:
        """Fill in what the inside computes and moves for sure; once time is up, what the steps compute."""
        r, m = self.r, len(self)
        steps = np.array([r.acc_s[self.path[a : b + 1]].sum() for a, b in zip(self.low, self.high, strict=True)])
        for i in range(m):
            within = None
            self.length[i, i:] = np.cumsum(steps[i:])
            for j in range(i, m):
                if self.budget.spent:
                    break
                inside, outside, _ = self.sets(i, j, within)
                if (inside & ~r.supported).any() or r.held(inside) > r.capacity:
                    self.length[i, j:] = np.inf  # a longer interval has these inside too
                    break
                within = inside
                if self.buckets:
                    part = float(r.size[inside].sum()) / r.total_capacity * (1.0 - 1e-12)
                    self.need[i, j] = int(part * self.buckets)
                clash = bool((inside & outside).any())  # a longer interval may do
                self.length[i, j] = np.inf if clash else self._surely(inside, outside)

    def _surely(self, inside: Flags, outside: Flags) -> float:
        r = self.r
        computing = float(r.acc_s[inside].sum() + self.price * r.size[inside].sum())
        if not len(r.producer):
            return computing
        here, away = inside[r.producer], outside[r.producer]
        read_here = np.logical_or.reduceat(inside[r.reader], r.reader_ptr[:-1])
        read_away = np.logical_or.reduceat(outside[r.reader], r.reader_ptr[:-1])
        either = read_here & read_away & ~here & ~away
        moved = r.in_s[read_here & away].sum() + r.out_s[here & read_away].sum()
        return computing + float(moved + np.minimum(r.in_s, r.out_s)[either].sum())

    def _finish_before(self, u: int, i: int) -> float:
        """Least finish of an operator outside the calls of an interval from block i that it is read in."""
        r, first = self.r, self.path[self.low[i]]
        for v in np.flatnonzero(r.flags(r.above[u])).tolist():
            if (v, i) in self._finish:
                continue
            ready = max((self._finish[p, i] for p in r.makers[v]), default=0.0)
            finish = r.cpu_s[v] + ready
            if finish > 0.0 and r.supported[v]:
                alone = float(r.acc_s[v])
                if not self.budget.spent:
                    one = np.zeros(len(r), dtype=np.bool_)
                    one[v] = True
                    behind = ~r.supported | r.flags(r.below[first])
                    alone = max(alone, least_time(r, one, behind & ~one, self.budget).bound_s)
                finish = min(finish, alone)
            self._finish[v, i] = float(finish)
        return self._finish[u, i]

    def _program(self, i: int, j: int, after_s: float | None) -> float:
        """Least time of an interval; given when it may begin, with the wait for operators beside the path."""
        r = self.r
        inside, outside, between = self.sets(i, j)
        waits: dict[int, float] = {}
        if after_s is not None:
            for u in np.flatnonzero(
                self.free & (self.cpu_finish > after_s) & ~inside & ~(outside & r.supported)
            ).tolist():
                late = self._finish_before(u, i) - after_s
                if 0.0 < late < np.inf:
                    waits[u] = late
        gap = next((t for b in range(i, j + 1) for t in range(self.low[b], self.high[b])), None)
        # Of several calls the first one waits: only what is surely read in it counts.
        counted = None if gap is None or r.calls == 1 else r.flags(r.above[self.path[gap]])
        least = least_time(
            r, inside, outside, self.budget, price=self.price, together=between, waits=waits, counted=counted
        )
        self.taken[i, j] = inside, least.taken
        return least.bound_s

    def shortest(self, target_s: float, found: Callable[[float], None]) -> tuple[float, list[Interval]]:
        """Least finish of the path, ever better, until it is exact, ``target_s``, or the budget spent; and the way.

        The least time of an interval is computed by its program when the shortest way takes it.
        """
        m = len(self)
        f, back = np.zeros((m + 1, self.most + 1)), np.zeros((m + 1, self.most + 1), dtype=np.int32)
        while True:
            shortest_intervals(self.alone, self.length, self.earliest, self.need, self.most, f, back)
            value = float(f[m].min())
            way = self._way(f, back)
            found(value)
            on_accelerators = [(i, j) for i, j, alone in way if not alone]
            new = [x for x in on_accelerators if x not in self.taken]
            late = [] if new else [x for x in on_accelerators if self._may_wait(*x, float(f[x[0]].min()))]
            if not (new or late) or value >= target_s or self.budget.spent or not np.isfinite(value):
                return value, [Interval(i, j, *(() if alone else self.taken.get((i, j), ()))) for i, j, alone in way]
            for i, j in new:
                self.length[i, j] = max(self.length[i, j], self._program(i, j, None))
                if self.budget.spent:
                    break
            for i, j in late:
                begin = float(f[i].min())
                self.earliest[i, j] = max(self.earliest[i, j], begin + self._program(i, j, begin))
                self._asked[i, j] = begin
                if self.budget.spent:
                    break

    def _may_wait(self, i: int, j: int, begin_s: float) -> bool:
        """Whether operators beside the path may be late, and the program has not been asked about so late a begin."""
        asked = self._asked.get((i, j), -1.0)
        return asked < begin_s - SAME * abs(begin_s) and bool(
            (self.cpu_finish[self.free] > begin_s * (1.0 + SAME)).any()
        )

    def _way(self, f: Floats, back: npt.NDArray[np.int32]) -> list[tuple[int, int, bool]]:
        t, k, way = len(self), int(f[len(self)].argmin()), []
        while t > 0:
            i = int(back[t, k])
            way.append((t - 1 if i < 0 else i, t - 1, i < 0))
            if i >= 0:
                t, k = i, k - int(self.need[i, t - 1])
            else:
                t -= 1
        return way[::-1]
