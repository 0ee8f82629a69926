"""The max-load by HiGHS' branch and cut: exact up to the solver's tolerances, which the bound allows for."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from placewright.algorithm import Budget, OnProgress, Progress, ignore
from placewright.evaluate import plan_for
from placewright.highs import new_highs
from placewright.loads import loads_of
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result, Status
from placewright.rounding import rounded_down
from placewright.solvers.max_load.program import Program, build
from placewright.solvers.max_load.reach import largest_value, starting_plan, unit_devices, why_out_of_reach

__all__ = ["LoadMilp"]

Floats = npt.NDArray[np.float64]

NAME = "max-load-milp"
LARGEST_MODEL = 400_000
"""Most variables for which a model is built."""

UNITS = 1000.0
"""Units of time in the value of the incumbent: the solver's tolerances are absolute."""

TOLERANCE = 1e-9
"""Of reduced costs, in units of time: see :func:`margin`."""

GRACE_S = 1.0
"""Seconds that a cancelled search has to end. HiGHS asks seldom whether it should, up to 20 s apart."""

LONGEST_WAIT_S = 60.0
"""Seconds that the interpreter waits at its end for a search that was left."""

LEAST_MARGIN = 2e-7
"""Relative; a fifth of what counts as proved optimal."""


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
        told: bool = True,
    ) -> Result:
        """Run HiGHS once; ``told`` of the best plan as a solution to start from."""
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
        seen, left = [0.0], threading.Event()
        less = margin(len(program.upper))

        def claimed(units: float) -> float:
            bound = rounded_down(max(0.0, units) * program.scale_s * (1.0 - less)) if np.isfinite(units) else 0.0
            return bound if kept[0] is None else min(bound, rounded_down(kept[0].value_s))

        def improve(values: Sequence[float] | Floats) -> None:
            devices = program.unit_devices(values)
            found = plan_for(problem, loads_of(problem).devices_of(devices), provenance=provenance)
            if found is not None and (kept[0] is None or found.value_s < kept[0].value_s):
                kept[0] = found

        def report(event: Any) -> None:
            if left.is_set():
                return
            if np.isfinite(event.data_out.mip_dual_bound):
                seen[0] = max(seen[0], event.data_out.mip_dual_bound)
            value = float("inf") if kept[0] is None else kept[0].value_s
            on_progress(Progress(NAME, value, claimed(event.data_out.mip_dual_bound), budget.elapsed_s))

        def improved(event: Any) -> None:
            if left.is_set():
                return
            improve(np.asarray(event.data_out.mip_solution))
            report(event)

        def interrupt(event: Any) -> None:
            event.data_in.user_interrupt = budget.cancelled.is_set()

        solver = new_highs()
        for option, setting in {
            "threads": threads,
            "parallel": "on" if threads > 1 else "off",
            "random_seed": seed,
            "mip_rel_gap": 0.0,
            "mip_abs_gap": UNITS * LEAST_MARGIN,
            "dual_feasibility_tolerance": TOLERANCE,
            "time_limit": max(0.05, min(budget.left_s, 1e6)),
        }.items():
            solver.setOptionValue(option, setting)
        if budget.iterations is not None:
            solver.setOptionValue("mip_max_nodes", budget.iterations)
        solver.passModel(_model(program, highspy))
        if program.started and told:
            solution = highspy.HighsSolution()
            solution.col_value = program.start
            solver.setSolution(solution)
        solver.cbMipImprovingSolution += improved
        solver.cbMipLogging += report
        for signal in (solver.cbMipInterrupt, solver.cbSimplexInterrupt, solver.cbIpmInterrupt):
            signal += interrupt
        thread = threading.Thread(target=solver.run, daemon=True)
        thread.start()
        while thread.is_alive():
            # The main thread stays in Python, so that Ctrl-C can cancel the budget.
            thread.join(0.1)
            if budget.cancelled.is_set():
                thread.join(GRACE_S)
                break
        runtime = budget.elapsed_s - begun
        if thread.is_alive():
            # It ends by itself when HiGHS asks next; what it reports then is dropped. The interpreter waits for it at
            # its own end, since a callback into one that is gone aborts the process.
            left.set()
            atexit.register(thread.join, LONGEST_WAIT_S)
            bound = claimed(seen[0])
            return Result(kept[0], bound, "", runtime, NAME, {NAME: bound})
        status = solver.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible and kept[0] is None:
            reason = "no placement respects devices, colocation, contiguity, links and memory (proved by HiGHS)"
            return Result(infeasible=reason, runtime_s=runtime, solver=NAME)
        info = solver.getInfo()
        if status == highspy.HighsModelStatus.kOptimal:
            values = solver.getSolution().col_value
            improve(values)
            value = sum(values[k] for k in program.peaks)
            if told and value > info.objective_function_value * (1.0 + LEAST_MARGIN) and not budget.spent:
                # Seen with HiGHS 1.16: where presolve solves the program, it may return the start for the optimum.
                return self._solve(problem, budget, rng, kept[0], on_progress, told=False)
        # Where nothing is left to decide, HiGHS solves a linear program and knows no bound of a search.
        linear = all(program.free) and status == highspy.HighsModelStatus.kOptimal
        bound = claimed(float(info.objective_function_value if linear else info.mip_dual_bound))
        plan = kept[0]
        return Result(plan, bound, "", runtime, NAME, {NAME: bound})


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
