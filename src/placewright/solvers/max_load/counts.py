"""The max-load by counts of alike units: an integer program that knows no positions, and plans that have its counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from placewright.algorithm import Budget, OnProgress, Progress, ignore
from placewright.evaluate import plan_for
from placewright.loads import Ints, Loads, loads_of, objective_of
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result, Status
from placewright.rounding import rounded_down
from placewright.solvers.max_load.counts_program import CountsProgram, Sorts, counts_program, sorts_of
from placewright.solvers.max_load.reach import largest_value
from placewright.solvers.mip_run import LEAST_MARGIN, TOLERANCE, UNITS, run_mip

__all__ = ["Counts"]

Floats = npt.NDArray[np.float64]

NAME = "counts"
MOST_COUNTS = 4_000
"""Sorts of units times devices up to which the program is written."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Decide how many of the alike units each device has, by HiGHS, then which: runs as long as the counts allow.

    The layers of a language model are a few operators over and over, so that a placement is mostly a table of counts,
    and where memory binds the best table is not to be found by moving one operator at a time. The program, and why it
    bounds every placement from below: :mod:`placewright.solvers.max_load.counts_program`. Every table on the way is
    made a plan: units in the network's order, each on the device of what it reads while the table has it there, else
    where most of its sort are left.

    Guarantee: the bound is the dual bound of HiGHS less a margin for its tolerances, as that of ``max-load-milp``, and
    holds for plans of every contiguity; plans are judged as always. ``iterations`` of the budget count nodes of the
    search tree.

    Complexity: sorts x devices whole variables, exponential at worst; one plan O(operators x devices).
    Source: ours; counts of alike jobs are usual in the scheduling of few job types (Goemans and Rothvoss 2014).
    When to use: for networks of alike layers where memory binds.

    Examples
    --------
    Four alike operators of 2 s or 3 s: two on each device take 6 s, three on the first as long; divided they take 4.8.

    >>> from placewright import Cluster, Device, MaxLoad, Operator, OperatorGraph, Problem
    >>> pair = Cluster([Device("fast"), Device("slow")])
    >>> problem = Problem(OperatorGraph([Operator(v) for v in "abcd"]), pair, [[2.0, 3.0]] * 4, MaxLoad())
    >>> result = Counts()(problem, budget=Budget(), rng=np.random.default_rng(0))
    >>> result.value_s, result.status.value
    (6.0, 'optimal')

    Attributes
    ----------
    threads : int
        1 when the budget counts iterations.
    """

    threads: int = 2

    def supports(self, problem: Problem) -> str | None:
        """Tell why a problem is out of reach; ``None`` when it isn't."""
        if objective_of(problem).replicate:
            return "counts knows no replicas; ideal-dp is exact for contiguous plans with replicas"
        a = loads_of(problem)
        size = len(sorts_of(a)) * len(a.pays)
        if size > MOST_COUNTS:
            return f"{size:,} pairs of a sort of operators and a device are more than {MOST_COUNTS:,}"
        return None

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Search for a better plan than the incumbent, and for a bound."""
        result = self._solve(problem, budget, rng, incumbent, on_progress)
        if incumbent is None and result.plan is not None and result.status is not Status.OPTIMAL and not budget.spent:
            # Without a plan the unit of time was coarse: prove the plan that was found in a fine one.
            result = result.merge(self._solve(problem, budget, rng, result.plan, on_progress))
        return result

    def _solve(
        self,
        problem: Problem,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None,
        on_progress: OnProgress,
    ) -> Result:
        begun, a = budget.elapsed_s, loads_of(problem)
        if not a.allowed.any(axis=1).all() or (incumbent is not None and incumbent.value_s <= 0.0):
            return Result(incumbent, solver=NAME)
        program = counts_program(problem, largest_value(problem, incumbent) / UNITS)
        kept: list[Plan | None] = [incumbent]
        tried: set[bytes] = set()
        seed = int(rng.integers(2**31 - 1))
        provenance = Provenance(NAME, None, "", {"highs_seed": seed})
        # A reduced cost of the wrong sign, by the tolerance, makes the value too high by that times a variable's range.
        less = LEAST_MARGIN + float(program.upper[:-1].sum()) * TOLERANCE / UNITS

        def claimed(units: float) -> float:
            bound = rounded_down(max(0.0, units - less * UNITS) * program.scale_s) if np.isfinite(units) else 0.0
            return bound if kept[0] is None else min(bound, rounded_down(kept[0].value_s))

        def improve(values: Sequence[float] | Floats) -> None:
            counts = program.counts(values, len(a.pays))
            if counts.tobytes() in tried:
                return
            tried.add(counts.tobytes())
            found = plan_for(problem, a.devices_of(_spread(a, program.sorts, counts)), provenance=provenance)
            if found is not None and (kept[0] is None or found.value_s < kept[0].value_s):
                kept[0] = found

        def report(units: float) -> None:
            value = float("inf") if kept[0] is None else kept[0].value_s
            on_progress(Progress(NAME, value, claimed(units), budget.elapsed_s))

        run = run_mip(
            _model(program),
            budget=budget,
            threads=self.threads if budget.iterations is None else 1,
            seed=seed,
            start=None,
            on_solution=improve,
            on_bound=report,
        )
        runtime = budget.elapsed_s - begun
        if run.infeasible and kept[0] is None:
            reason = "no numbers of alike operators respect devices and memory (proved by HiGHS)"
            return Result(infeasible=reason, runtime_s=runtime, solver=NAME)
        bound = claimed(run.bound)
        return Result(kept[0], bound, "", runtime, NAME, {NAME: bound})


def _spread(a: Loads, sorts: Sorts, counts: Ints) -> Ints:
    """(U,) devices of units that have the given counts: each where most of what it reads is, if the table allows."""
    left = counts.copy()
    device = np.full(a.n_units, -1, dtype=np.int32)
    last = -1
    for k in np.argsort(a.block_of, kind="stable").tolist():
        row = left[sorts.of_unit[k]]
        near = [0] * len(row)
        for u in a.read[a.read_ptr[k] : a.read_ptr[k + 1]].tolist():
            at = int(device[a.producer[u]])
            if at >= 0:
                near[at] += 1
        last = max(np.flatnonzero(row > 0).tolist(), key=lambda i: (near[i], i == last, row[i], -i))
        device[k] = last
        row[last] -= 1
    return device


def _model(program: CountsProgram) -> Any:
    import highspy

    lp = highspy.HighsLp()
    n, rows = len(program.upper), program.rows
    lp.num_col_, lp.num_row_ = n, len(rows)
    lp.col_cost_ = np.append(np.zeros(n - 1), 1.0)
    lp.col_lower_, lp.col_upper_ = np.zeros(n), program.upper
    lp.row_lower_ = np.array([lower for _, lower, _ in rows])
    lp.row_upper_ = np.array([upper for _, _, upper in rows])
    kinds = highspy.HighsVarType
    lp.integrality_ = [kinds.kInteger if whole else kinds.kContinuous for whole in program.whole]
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.concatenate([[0], np.cumsum([len(terms) for terms, _, _ in rows])]).astype(np.int32)
    lp.a_matrix_.index_ = np.array([x for terms, _, _ in rows for x, _ in terms], dtype=np.int32)
    lp.a_matrix_.value_ = np.array([c for terms, _, _ in rows for _, c in terms])
    return lp
