"""m-SCT of Baechi: small communication times, with favourite children found by a linear program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from placewright._kernel.schedule import Network, Workspace
from placewright._kernel.sct import small_communication_times
from placewright.algorithm import Budget, OnProgress, ignore
from placewright.arrays import arrays_of
from placewright.highs import new_highs
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.makespan.with_room import plan_with_room

__all__ = ["SmallCommunicationTimes"]

Ints: TypeAlias = npt.NDArray[np.int32]
Floats: TypeAlias = npt.NDArray[np.float64]

MOST_READS = 20_000
"""Pairs of an operator and one that reads from it beyond which the linear program is not built."""

LP_SHARE = 0.5
"""Of the budget, for the linear program."""


@dataclass(frozen=True, slots=True)
class SmallCommunicationTimes:
    """Earliest time first in which devices wait for favourite children (Baechi, arXiv 2301.08695: m-SCT).

    At most one child of an operator, its favourite, follows it at once on its device. The linear program (after Hanen
    and Munier) minimises w subject to s_v + p_v + c_vx y_vx <= s_x for each child x of v, s_v + p_v <= w, and sum of
    1 - y over the children of an operator, and over the parents of one, at most 1; 0 <= y <= 1. A child with y below
    ``threshold`` is the favourite; up to 1/2 that is at most one. The schedule:
    :func:`placewright._kernel.sct.small_communication_times`, where devices that are awake are reserved for a favourite
    child, and take besides it only operators that are urgent.

    Choices for unlike devices, since the paper knows alike ones: p_v is the mean over the devices that may run v, and
    c_vx the mean over the pairs of different devices that a link joins, of the slowest tensor that x reads of v.
    Memory, colocation and contention as in ``m-etf``. As in the published program a device waits only for a child that
    is ready and can start nowhere earlier. If half of the budget ends before the linear program does, there are no
    favourites, which is ``m-etf``.

    Guarantee: none here; the paper has one for alike devices and small transfers.
    Complexity: the linear program and O(n W D) for graphs of width W.
    Source: Baechi (Jeon et al., arXiv 2301.08695), after Hanen and Munier.
    When to use: to compare with Baechi; where transfers are short.

    Attributes
    ----------
    threshold : float
        Up to 0.5, the program's default.
    """

    threshold: float = 0.5

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Find favourite children, then schedule."""
        a = arrays_of(problem)
        favourite = self.favourites(problem, budget)

        def place(room: Floats, w: Workspace) -> tuple[Ints, bool]:
            return small_communication_times(a.network, favourite, a.unit_of, a.resident, room, w)

        return plan_with_room(problem, place, "m-sct")

    def favourites(self, problem: Problem, budget: Budget) -> Ints:
        """(n,) the favourite child of each operator; -1: none."""
        g = arrays_of(problem).network
        n = len(problem.graph)
        favourite = np.full(n, -1, dtype=np.int32)
        parent, child, seconds = _reads(g)
        if len(parent) == 0 or not problem.allowed.any(axis=1).all():
            return favourite
        values = _solve(n, parent, child, seconds, _mean_processing(g), budget)
        if values is None:
            return favourite
        chosen = np.flatnonzero(values < self.threshold)
        favourite[parent[chosen]] = child[chosen]
        return favourite

    def supports(self, problem: Problem) -> str | None:
        """Say why the linear program is out of reach."""
        reads = sum(len(t.readers) for t in problem.graph.tensors)
        if reads <= MOST_READS:
            return None
        return f"{reads:,} reads are more than the {MOST_READS:,} of the largest linear program; use m-etf"


def _mean_processing(g: Network) -> Floats:
    finite = np.isfinite(g.processing)
    mean: Floats = np.where(finite, g.processing, 0.0).sum(axis=1) / np.maximum(1, finite.sum(axis=1))
    return mean


def _reads(g: Network) -> tuple[Ints, Ints, Floats]:
    """Parent, child and mean transfer time of each pair, ascending."""
    D = g.processing.shape[1]
    tensor = np.repeat(np.arange(len(g.producer)), np.diff(g.reader_ptr))
    joined = np.isfinite(g.latency) & ~np.eye(D, dtype=bool)
    pairs = max(1, int(joined.sum()))
    if len(g.transfer):
        apart = np.isfinite(g.transfer) & ~np.eye(D, dtype=bool)
        mean = np.where(apart, g.transfer, 0.0).sum(axis=(1, 2)) / np.maximum(1, apart.sum(axis=(1, 2)))
    else:
        mean = (g.latency[joined].sum() + g.size * g.per_byte[joined].sum()) / pairs
    parent, child, seconds = g.producer[tensor], g.reader, mean[tensor]
    order = np.lexsort((-seconds, child, parent))
    parent, child, seconds = parent[order], child[order], seconds[order]
    first = np.ones(len(parent), dtype=bool)
    first[1:] = (parent[1:] != parent[:-1]) | (child[1:] != child[:-1])
    return parent[first], child[first], seconds[first]


def _solve(n: int, parent: Ints, child: Ints, seconds: Floats, processing: Floats, budget: Budget) -> Floats | None:
    """(E,) y of each pair, or ``None`` when the time was too short. Columns: y, s, w."""
    import highspy

    if budget.spent:
        return None
    E, inf = len(parent), highspy.kHighsInf
    scale = float(max(processing.max(), seconds.max())) or 1.0
    p, c = processing / scale, seconds / scale
    # Rows: s_v + c y - s_x <= -p_v a pair; s_v - w <= -p_v; -sum of y <= 1 - number, of children and of parents.
    row = np.concatenate([np.tile(np.arange(E), 3), np.tile(E + np.arange(n), 2), E + n + parent, E + 2 * n + child])
    column = np.concatenate(
        [np.arange(E), E + parent, E + child, E + np.arange(n), np.full(n, E + n), np.arange(E), np.arange(E)]
    )
    value = np.concatenate([c, np.ones(E), -np.ones(E), np.ones(n), -np.ones(n), -np.ones(2 * E)])
    by_column = np.lexsort((row, column))
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = E + n + 1, E + 3 * n
    lp.col_cost_ = np.append(np.zeros(E + n), 1.0)
    lp.col_lower_ = np.zeros(E + n + 1)
    lp.col_upper_ = np.concatenate([np.ones(E), np.full(n + 1, inf)])
    lp.row_lower_ = np.full(E + 3 * n, -inf)
    many = np.bincount(parent, minlength=n), np.bincount(child, minlength=n)
    # An operator without children, or without parents, has a row without entries: 0 <= 0.
    limits = [np.where(m > 0, 1.0 - m, 0.0) for m in many]
    lp.row_upper_ = np.concatenate([-p[parent], -p, *limits])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.searchsorted(column[by_column], np.arange(E + n + 2)).astype(np.int32)
    lp.a_matrix_.index_ = row[by_column].astype(np.int32)
    lp.a_matrix_.value_ = value[by_column]
    solver = new_highs()
    solver.setOptionValue("time_limit", max(0.01, min(LP_SHARE * budget.left_s, 1e6)))
    solver.passModel(lp)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    return np.asarray(solver.getSolution().col_value, dtype=np.float64)[:E]
