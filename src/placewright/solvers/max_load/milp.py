"""The max-load by HiGHS' branch and cut: exact up to the solver's tolerances, which the bound allows for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from placewright.algorithm import Budget, OnProgress, Progress, ignore
from placewright.evaluate import plan_for
from placewright.loads import loads_of
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result, Status
from placewright.rounding import rounded_down
from placewright.solvers.max_load.program import Program, build
from placewright.solvers.max_load.reach import largest_value, starting_plan, unit_devices, why_out_of_reach
from placewright.solvers.mip_run import LEAST_MARGIN, TOLERANCE, UNITS, run_mip

__all__ = ["LoadMilp"]

Floats = npt.NDArray[np.float64]

NAME = "max-load-milp"
LARGEST_MODEL = 400_000
"""Most variables for which a model is built."""


def margin(variables: int) -> float:
    """Relative part of the solver's bound that is not claimed.

    The bound of a node is the value of a linear program that is solved within tolerances. Rows that are broken by the
    tolerance of rows relax the program: its value is then too low, never too high. A reduced cost of the wrong sign,
    by up to ``TOLERANCE``, makes the value too high by that much times the range of its variable; this range is 1, but
    for the peaks, which are basic. So the value is too high by at most ``variables`` x ``TOLERANCE`` units, of
    ``UNITS`` in the plan's value. Cuts are derived in floating point with slack of about 1e-9 relative each; they, and
    what the search fixes by reduced costs, are why no less than ``LEAST_MARGIN`` is taken off.

    Examples
    --------
    >>> margin(10_000) == LEAST_MARGIN + 1e-8
    True
    """
    return LEAST_MARGIN + variables * TOLERANCE / UNITS


@dataclass(frozen=True, slots=True)
class LoadMilp:
    """Exact max-load by HiGHS; the model: :mod:`placewright.solvers.max_load.program`.

    Guarantee: every plan is evaluated by the judge. The bound is HiGHS' own less :func:`margin`: unlike that of
    ``max-load-cp-sat`` it rests on floating-point arithmetic inside the solver. Any-time. ``iterations`` of the budget
    count nodes of the search tree, on one thread.

    Complexity: exponential at worst; variables: units x devices, and messages x devices.
    Source: the integer program of arXiv 2006.16423, published for Gurobi.
    When to use: to compare with the paper's program; where ``max-load-cp-sat`` stalls.

    Attributes
    ----------
    threads : int
        1 when the budget counts iterations.
    """

    threads: int = 2

    def supports(self, problem: Problem) -> str | None:
        """Tell why a problem is out of reach; ``None`` when it isn't."""
        return why_out_of_reach(problem, LARGEST_MODEL, NAME)

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Search for a better plan than the incumbent, and for a bound, until the budget is spent."""
        best = starting_plan(problem, incumbent, NAME)
        result = self._solve(problem, budget, rng, best, on_progress)
        if best is None and result.plan is not None and result.status is not Status.OPTIMAL and not budget.spent:
            # Without a plan the unit of time was coarse: prove the plan that was found in a fine one.
            result = result.merge(self._solve(problem, budget, rng, result.plan, on_progress))
        if result.plan is not None and result.plan is incumbent:
            result = replace(result, solver=incumbent.provenance.solver)
        return result

    def _solve(
        self,
        problem: Problem,
        budget: Budget,
        rng: np.random.Generator,
        best: Plan | None,
        on_progress: OnProgress,
    ) -> Result:
        import highspy

        begun = budget.elapsed_s
        if best is not None and best.value_s <= 0.0:
            return Result(best, solver=NAME)
        program = build(
            problem,
            largest_value(problem, best) / UNITS,
            whole=False,
            incumbent=None if best is None else unit_devices(problem, best),
            cutoff_s=np.inf if best is None else best.value_s,
        )
        threads = self.threads if budget.iterations is None else 1
        seed = int(rng.integers(2**31 - 1))
        provenance = Provenance(NAME, None, "", {"threads": threads, "highs_seed": seed})
        kept: list[Plan | None] = [best]
        less = margin(len(program.upper))

        def claimed(units: float) -> float:
            bound = rounded_down(max(0.0, units) * program.scale_s * (1.0 - less)) if np.isfinite(units) else 0.0
            return bound if kept[0] is None else min(bound, rounded_down(kept[0].value_s))

        def improve(values: Sequence[float] | Floats) -> None:
            devices = program.unit_devices(values)
            found = plan_for(problem, loads_of(problem).devices_of(devices), provenance=provenance)
            if found is not None and (kept[0] is None or found.value_s < kept[0].value_s):
                kept[0] = found

        def report(units: float) -> None:
            value = float("inf") if kept[0] is None else kept[0].value_s
            on_progress(Progress(NAME, value, claimed(units), budget.elapsed_s))

        run = run_mip(
            _model(program, highspy),
            budget=budget,
            threads=threads,
            seed=seed,
            start=program.start if program.started else None,
            on_solution=improve,
            on_bound=report,
        )
        runtime = budget.elapsed_s - begun
        if run.infeasible and kept[0] is None:
            reason = "no placement respects devices, colocation, contiguity, links and memory (proved by HiGHS)"
            return Result(infeasible=reason, runtime_s=runtime, solver=NAME)
        bound = claimed(run.bound)
        return Result(kept[0], bound, "", runtime, NAME, {NAME: bound})


def _model(program: Program, highspy: Any) -> Any:
    lp = highspy.HighsLp()
    n, rows = len(program.upper), program.rows
    cost = np.zeros(n)
    cost[list(program.peaks)] = 1.0
    lp.num_col_, lp.num_row_ = n, len(rows)
    lp.col_cost_ = cost
    lp.col_lower_, lp.col_upper_ = np.zeros(n), np.array(program.upper)
    lp.row_lower_ = np.array([lower for _, lower, _ in rows])
    lp.row_upper_ = np.array([upper for _, _, upper in rows])
    lp.integrality_ = [
        highspy.HighsVarType.kContinuous if free else highspy.HighsVarType.kInteger for free in program.free
    ]
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.concatenate([[0], np.cumsum([len(terms) for terms, _, _ in rows])]).astype(np.int32)
    lp.a_matrix_.index_ = np.array([x for terms, _, _ in rows for x, _ in terms], dtype=np.int32)
    lp.a_matrix_.value_ = np.array([c for terms, _, _ in rows for _, c in terms])
    return lp
