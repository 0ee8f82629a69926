"""The least time that calls of one accelerator take which have some operators inside, and others outside."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from placewright.algorithm import Budget
from placewright.bounds.offload.relaxed import Relaxed
from placewright.highs import new_highs

__all__ = ["Least", "least_time"]

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

MOST_NODES = 200
"""Nodes of the branch and bound; the least bound of those that are open holds at any time."""

MOST_S = 0.25
"""Seconds for a linear program; stopped early its multipliers are worth what they are worth."""

PENALTY = 10.0
"""What a capacity more of memory costs, in units of the sum of all costs: high enough not to pay."""


@dataclass(frozen=True, slots=True)
class Least:
    """A lower bound in seconds, and the operators that the program would take."""

    bound_s: float
    taken: Flags


@dataclass
class _Program:
    """Columns from 0 to a largest value, and rows ``sum >= right``."""

    cost: list[float] = field(default_factory=list)
    most: list[float] = field(default_factory=list)
    right: list[float] = field(default_factory=list)
    start: list[int] = field(default_factory=lambda: [0])
    index: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    soft: int = -1
    """Column that buys memory, and the row of the memory; -1: there is none."""
    soft_row: int = -1

    def column(self, cost: float, most: float = 1.0) -> int:
        self.cost.append(cost)
        self.most.append(most)
        return len(self.cost) - 1

    def row(self, right: float, *terms: tuple[int, float]) -> None:
        self.right.append(right)
        self.index += [k for k, _ in terms]
        self.value += [x for _, x in terms]
        self.start.append(len(self.index))


def least_time(
    r: Relaxed,
    inside: Flags,
    outside: Flags,
    budget: Budget,
    *,
    price: float = 0.0,
    together: Flags | None = None,
    waits: Mapping[int, float] | None = None,
    counted: Flags | None = None,
) -> Least:
    """Bound what calls of one accelerator take that have ``inside`` inside and ``outside`` elsewhere.

    Minimised over sets S between them, of which the units fit in memory: computing, plus each tensor that enters or
    leaves S once, plus ``price`` a byte. Several calls take no less than one of all their operators would.

    Parameters
    ----------
    together : (n,) bool, optional
        Operators that are inside whenever another of them of their unit is; all with one call an accelerator.
    waits : mapping of int to float, optional
        Seconds that the calls wait for an operator if it is outside and one of its readers in ``counted`` inside.
    """
    optional = _optional(r, inside, outside)
    column = {v: k for k, v in enumerate(optional)}
    p = _Program([float(r.acc_s[v] + price * r.size[v]) for v in optional], [1.0] * len(optional))
    base = float(r.acc_s[inside].sum() + price * r.size[inside].sum())
    base += _transfers(r, p, inside, column, optional)
    if waits:
        _waits(r, p, inside, column, waits, counted)
    _memory(r, p, inside, column, optional, whole=r.calls == 1)
    if r.calls == 1 or together is not None:
        for z in {int(r.unit_of[v]) for v in optional}:
            same = [
                column[v]
                for v in r.members[z]
                if v in column and (r.calls == 1 or (together is not None and together[v]))
            ]
            for k in same[1:]:
                p.row(0.0, (same[0], 1.0), (k, -1.0))
                p.row(0.0, (same[0], -1.0), (k, 1.0))
    if p.soft >= 0:
        p.cost[p.soft] = PENALTY * (sum(p.cost) + base)
    taken = inside.copy()
    if not p.cost:
        return Least(base, taken)
    bound, x = _branch(p, len(optional), budget)
    taken[[v for v, y in zip(optional, x, strict=True) if y > 0.5]] = True
    return Least(base + bound, taken)


def _optional(r: Relaxed, inside: Flags, outside: Flags) -> list[int]:
    """Operators that hang together with the inside through others that are not outside."""
    seen, stack, found = inside | outside, np.flatnonzero(inside).tolist(), []
    while stack:
        v = stack.pop()
        near = [*r.readers[v], *r.makers[v]]
        for u in r.makers[v]:
            near += r.readers[u]
        for u in near:
            if not seen[u]:
                seen[u] = True
                stack.append(u)
                found.append(u)
    return sorted(found)


def _transfers(r: Relaxed, p: _Program, inside: Flags, column: Mapping[int, int], optional: list[int]) -> float:
    """Add what enters and leaves; returned is what surely does."""
    near = [*optional, *np.flatnonzero(inside).tolist()]
    sure = 0.0
    for t in sorted({t for v in near for t in (*r.made[v], *r.read[v])}):
        maker = int(r.producer[t])
        readers = r.reader[r.reader_ptr[t] : r.reader_ptr[t + 1]].tolist()
        here = any(inside[v] for v in readers)
        maybe = [column[v] for v in readers if v in column]
        away = len(maybe) + sum(bool(inside[v]) for v in readers) < len(readers)
        x = column.get(maker)
        enter, leave = float(r.in_s[t]), float(r.out_s[t])
        if enter > 0.0 and not inside[maker]:  # an optional or outside producer, and readers inside
            if here and x is None:
                sure += enter
            elif here or maybe:
                k = p.column(enter)
                own = () if x is None else ((x, 1.0),)
                if here:
                    p.row(1.0, (k, 1.0), *own)
                else:
                    for y in maybe:
                        p.row(0.0, (k, 1.0), (y, -1.0), *own)
        if leave > 0.0 and (inside[maker] or x is not None):
            if away and x is None:
                sure += leave
            elif away and x is not None:
                p.cost[x] += leave
            elif maybe:
                k = p.column(leave)
                for y in maybe:
                    if x is None:
                        p.row(1.0, (k, 1.0), (y, 1.0))
                    else:
                        p.row(0.0, (k, 1.0), (y, 1.0), (x, -1.0))
    return sure


def _waits(
    r: Relaxed,
    p: _Program,
    inside: Flags,
    column: Mapping[int, int],
    waits: Mapping[int, float],
    counted: Flags | None,
) -> None:
    k = p.column(1.0, max(waits.values()))
    for u, seconds in waits.items():
        readers = [v for v in r.readers[u] if counted is None or counted[v]]
        own = ((column[u], seconds),) if u in column else ()
        if any(inside[v] for v in readers):
            p.row(seconds, (k, 1.0), *own)
        else:
            for v in readers:
                if v in column:
                    p.row(0.0, (k, 1.0), (column[v], -seconds), *own)


def _memory(
    r: Relaxed, p: _Program, inside: Flags, column: Mapping[int, int], optional: list[int], *, whole: bool
) -> None:
    """Add the units' sizes, in capacities, if they could be too much."""
    if not 0.0 < r.capacity < np.inf:
        return
    touched = {int(z) for z in r.unit_of[inside]}
    free = (r.capacity - sum(float(r.unit_size[z]) for z in touched)) / r.capacity
    units = [z for z in dict.fromkeys(int(r.unit_of[v]) for v in optional) if z not in touched and r.unit_size[z] > 0.0]
    if sum(float(r.unit_size[z]) for z in units) / r.capacity <= free:
        return
    terms = []
    for z in units:
        some = [column[v] for v in r.members[z] if v in column]
        k = some[0]
        if len(some) > 1 and not whole:
            k = p.column(0.0)
            for x in some:
                p.row(0.0, (k, 1.0), (x, -1.0))
        terms.append((k, -float(r.unit_size[z]) / r.capacity))
    p.soft, p.soft_row = p.column(0.0, np.inf), len(p.right)
    p.row(-free - 1e-12, (p.soft, 1.0), *terms)


def _branch(p: _Program, n: int, budget: Budget) -> tuple[float, Floats]:
    """Branch and bound on the first n columns, the least bound first: that of all open nodes, and its columns."""
    node = _Nodes(p)
    bound, x = node((), budget)
    open_: list[tuple[float, int, tuple[tuple[int, float], ...], Floats]] = [(bound, 0, (), x)]
    count = 0
    while True:
        bound, _, fixed, x = heapq.heappop(open_)
        unsettled = np.minimum(x[:n], 1.0 - x[:n])
        if n == 0 or unsettled.max() < 1e-6 or count > MOST_NODES or budget.spent:
            return max(bound, 0.0), x[:n]
        v = int(unsettled.argmax())
        for side in (0.0, 1.0):
            count += 1
            also = (*fixed, (v, side))
            below, y = node(also, budget)
            heapq.heappush(open_, (max(bound, below), count, also, y))


class _Nodes:
    """The linear program with some columns fixed; its bound is computed here from HiGHS's multipliers of the rows."""

    def __init__(self, p: _Program) -> None:
        import highspy

        self.cost, self.most = np.array(p.cost), np.array(p.most)
        self.right, self.soft = np.array(p.right), (p.soft, p.soft_row)
        start = np.array(p.start, dtype=np.int32)
        self.index, self.value = np.array(p.index, dtype=np.int32), np.array(p.value)
        self.row_of = np.repeat(np.arange(len(p.right)), np.diff(start))
        lp: Any = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.cost), len(self.right)
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = self.cost, np.zeros(len(self.cost)), self.most
        lp.row_lower_, lp.row_upper_ = self.right, np.full(len(self.right), np.inf)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = start, self.index, self.value
        self.highs = new_highs()
        self.highs.passModel(lp)

    def __call__(self, fixed: tuple[tuple[int, float], ...], budget: Budget) -> tuple[float, Floats]:
        """Return ``y'b`` plus the least of (reduced cost x column) over the columns' ranges: holds for any y >= 0."""
        low, high = np.zeros(len(self.cost)), self.most.copy()
        for k, side in fixed:
            low[k] = high[k] = side
        self.highs.changeColsBounds(len(low), np.arange(len(low), dtype=np.int32), low, high)
        self.highs.setOptionValue("time_limit", self.highs.getRunTime() + min(MOST_S, max(0.01, budget.left_s)))
        self.highs.run()
        solution = self.highs.getSolution()
        x, y = np.array(solution.col_value), np.array(solution.row_dual)
        if len(x) != len(low) or not np.isfinite(x).all():
            x = low
        y = np.maximum(y, 0.0) if len(y) == len(self.right) and np.isfinite(y).all() else np.zeros(len(self.right))
        column, row = self.soft
        if row >= 0:
            y[row] = min(y[row], self.cost[column])  # no reduced cost below 0 where a column has no largest value
        reduced = self.cost.copy()
        np.subtract.at(reduced, self.index, y[self.row_of] * self.value)
        if column >= 0:
            high[column], reduced[column] = 0.0, max(0.0, reduced[column])
        least = np.where(reduced < 0.0, reduced * high, reduced * low)
        errors = 1e-14 * (np.abs(y * self.right).sum() + np.abs(least).sum())
        return float((y * self.right).sum() + least.sum() - errors), x
