"""GETF: earliest time first within groups of devices of like speed, which a linear program chooses."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from placewright._kernel.list_schedule import etf, mean_upward_rank
from placewright._kernel.schedule import Workspace
from placewright.algorithm import Budget, OnProgress, ignore
from placewright.arrays import arrays_of
from placewright.highs import new_highs
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.makespan.with_room import plan_with_room

__all__ = ["getf", "getf_supports"]

Ints: TypeAlias = npt.NDArray[np.int32]
Floats: TypeAlias = npt.NDArray[np.float64]

MOST_ENTRIES = 400_000
"""Reads and operators, times devices, beyond which the linear program is not built."""

LP_SHARE = 0.5
"""Of the budget, for the linear program."""

HALF = 0.5 - 1e-9
"""Share of a unit that decides its group; a solver's tolerance below a half."""


def getf(
    problem: Problem,
    *,
    budget: Budget,
    rng: np.random.Generator,
    incumbent: Plan | None = None,
    on_progress: OnProgress = ignore,
) -> Result:
    """Generalized earliest time first (Su, Ren, Vardi, Wierman, He 2020, arXiv 2004.14639).

    1. Devices of like speed form groups: speeds differ by less than a factor gamma in each; those slower than 1/D of
       the fastest are left out.
    2. A linear program without transfers divides units among devices: minimise T subject to sum_i x[v, i] = 1, C_u >=
       C_v + sum_i p[u, i] x[u, i] for each reader u of v, sum_v p[v, i] x[v, i] <= T and C_v <= T.
    3. Let l(v) be the fastest group such that at least half of v lies in it and faster ones; v may use, of the groups
       from l(v) up, the one whose speeds add up to most.
    4. Earliest time first, each operator within its group.

    The group assignment (Chudak and Shmoys' for machines of different speeds) is written from memory of the paper: its
    abstract and summaries alone were at hand. Choices: gamma is log D / log log D from 16 devices on, 2 below. Ties of
    the earliest start go to the longer way down, which the paper leaves open. Unlike times, where the paper knows p[v]
    / s_i: the linear program takes p[v, i] as they are, and s_i is the geometric mean over operators of the least time
    of an operator over its time on i. Units (colocation classes) are divided as one. Where a unit may run on no device
    of its group, or memory is full there, all devices are allowed: to that unit, or when earliest time first finds no
    place for all, to all units. If the linear program isn't solved in half of the budget, each unit's group is the one
    with most speed. Memory and contention as in ``etf``.

    Guarantee: none here; the paper has one for related machines.
    Complexity: the linear program and O(E D + n D log n).
    Source: Su, Ren, Vardi, Wierman, He 2020 (arXiv 2004.14639); a baseline of Moirai.
    When to use: to compare with Moirai's baselines.

    Examples
    --------
    Two operators on a fast device and one that takes four times as long. Earliest time first starts both at once: 16.
    The linear program keeps 0.8 of each on the fast device (load 2 x 4 x 0.8 = 4 x 0.8 + 16 x 0.2 = 6.4), its group.

    >>> from placewright import Cluster, Device, Operator, OperatorGraph, Problem
    >>> graph, pair = OperatorGraph([Operator("a"), Operator("b")]), Cluster([Device("fast"), Device("slow")])
    >>> problem = Problem(graph, pair, [[4.0, 16.0]] * 2)
    >>> getf(problem, budget=Budget(), rng=np.random.default_rng(0)).value_s
    8.0
    """
    a = arrays_of(problem)
    if not a.allowed.any(axis=1).all():
        return Result(solver="getf")
    level = mean_upward_rank(a.network)
    within = _group_of_units(problem, budget)[a.unit_of]
    grouped = a.network._replace(processing=np.where(within, a.network.processing, np.inf))

    def place(room: Floats, w: Workspace) -> tuple[Ints, bool]:
        found = etf(grouped, level, a.unit_of, a.resident, room, w)
        return found if found[1] else etf(a.network, level, a.unit_of, a.resident, room, w)

    return plan_with_room(problem, place, "getf")


def getf_supports(problem: Problem) -> str | None:
    """Say why the linear program is out of reach."""
    entries = (sum(len(t.readers) for t in problem.graph.tensors) + len(problem.graph)) * len(problem.cluster)
    if entries <= MOST_ENTRIES:
        return None
    return f"{entries:,} entries are more than the {MOST_ENTRIES:,} of the largest linear program; use etf"


def speeds(problem: Problem) -> Floats:
    """(D,) speed of each device: the geometric mean over operators of the least time over the time there; up to 1."""
    seconds = np.where(problem.allowed, problem.times.processing_s, np.nan)
    with np.errstate(all="ignore"):
        least = np.nanmin(np.where(np.isnan(seconds), np.inf, seconds), axis=1)
        ratio = np.where(seconds > 0.0, least[:, None] / seconds, np.nan)
        ratio[ratio <= 0.0] = np.nan
        counted = np.isfinite(ratio)
        total = np.where(counted, np.log(np.where(counted, ratio, 1.0)), 0.0).sum(axis=0)
    mean: Floats = np.exp(total / np.maximum(1, counted.sum(axis=0)))
    return mean


def groups(speed: Floats) -> Ints:
    """(D,) group of each device, 0 the slowest; -1 where it is left out."""
    D = len(speed)
    gamma = max(2.0, math.log(D) / math.log(math.log(D))) if D >= 16 else 2.0
    kept = speed >= speed.max() / D
    rank = np.floor(np.log(speed / speed[kept].min()) / math.log(gamma) + 1e-9).astype(np.int32)
    return np.where(kept, rank, -1).astype(np.int32)


def _group_of_units(problem: Problem, budget: Budget) -> npt.NDArray[np.bool_]:
    """(U, D) the devices of the group that each unit is to run on."""
    a = arrays_of(problem)
    speed = speeds(problem)
    group = groups(speed)
    K = int(group.max()) + 1
    member = group[None, :] == np.arange(K)[:, None]
    x = _solve(problem, budget)
    allowed = np.zeros_like(a.allowed)
    for k in range(len(allowed)):
        power = (member & a.allowed[k]) @ speed
        lowest = 0
        if x is not None:
            share = (member * x[k]).sum(axis=1)
            enough = np.flatnonzero(np.cumsum(share[::-1])[::-1] >= HALF)
            lowest = int(enough[-1]) if len(enough) else 0
        best = lowest + int(np.argmax(power[lowest:]))
        allowed[k] = a.allowed[k] & member[best]
        if not allowed[k].any():
            allowed[k] = a.allowed[k]
    return allowed


def _solve(problem: Problem, budget: Budget) -> Floats | None:
    """(U, D) share of each unit on each device, or ``None`` when the time was too short. Columns: x, C, T."""
    import highspy

    if budget.spent:
        return None
    a = arrays_of(problem)
    g, inf = a.network, highspy.kHighsInf
    n, D = g.processing.shape
    unit, device = np.nonzero(a.allowed)
    number = np.full(a.allowed.shape, -1)
    number[unit, device] = np.arange(len(unit))
    X = len(unit)
    finite = np.where(np.isfinite(g.processing), g.processing, 0.0)
    scale = float(finite.max()) or 1.0
    p = finite / scale
    tensor = np.repeat(np.arange(len(g.producer)), np.diff(g.reader_ptr))
    edge = np.unique(np.stack([g.producer[tensor], g.reader]), axis=1)
    E, U = edge.shape[1], len(a.resident)
    v, i = np.nonzero(a.allowed[a.unit_of])
    column_of = number[a.unit_of[v], i]
    # Rows: U sums of shares; n: sum p x - C_v <= 0; E: C_v - C_x + sum p x <= 0; D: loads - T <= 0; n: C_v - T <= 0.
    begin = np.searchsorted(v, np.arange(n + 1))
    counts = np.diff(begin)[edge[1]]
    of_edge = np.repeat(np.arange(E), counts)
    entry = np.arange(len(of_edge)) - np.repeat(np.cumsum(counts) - counts, counts) + begin[edge[1]][of_edge]
    at_edge, at_load, at_end = U + n, U + n + E, U + n + E + D
    row = np.concatenate(
        [unit, U + v, U + np.arange(n), at_edge + of_edge, at_edge + np.arange(E), at_edge + np.arange(E),
         at_load + i, at_load + np.arange(D), at_end + np.arange(n), at_end + np.arange(n)]
    )  # fmt: skip
    column = np.concatenate(
        [np.arange(X), column_of, X + np.arange(n), column_of[entry], X + edge[0], X + edge[1],
         column_of, np.full(D, X + n), X + np.arange(n), np.full(n, X + n)]
    )  # fmt: skip
    value = np.concatenate(
        [np.ones(X), p[v, i], -np.ones(n), p[v, i][entry], np.ones(E), -np.ones(E),
         p[v, i], -np.ones(D), np.ones(n), -np.ones(n)]
    )  # fmt: skip
    rows = at_end + n
    # Members of one unit add up in the loads: entries of the same row and column are summed.
    key, where = np.unique(column.astype(np.int64) * rows + row, return_inverse=True)
    summed: Floats = np.bincount(where, weights=value).astype(np.float64)
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = X + n + 1, rows
    lp.col_cost_ = np.append(np.zeros(X + n), 1.0)
    lp.col_lower_, lp.col_upper_ = np.zeros(X + n + 1), np.full(X + n + 1, inf)
    lp.row_lower_ = np.concatenate([np.ones(U), np.full(rows - U, -inf)])
    lp.row_upper_ = np.concatenate([np.ones(U), np.zeros(rows - U)])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.searchsorted(key // rows, np.arange(X + n + 2)).astype(np.int32)
    lp.a_matrix_.index_ = (key % rows).astype(np.int32)
    lp.a_matrix_.value_ = summed
    solver = new_highs()
    solver.setOptionValue("time_limit", max(0.01, min(LP_SHARE * budget.left_s, 1e6)))
    solver.passModel(lp)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    shares = np.zeros(a.allowed.shape)
    shares[unit, device] = np.asarray(solver.getSolution().col_value, dtype=np.float64)[:X]
    return shares
