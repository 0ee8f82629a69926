"""The offload latency by HiGHS' branch and cut: exact up to the solver's tolerances, which the bound allows for."""

from __future__ import annotations

import atexit
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

from placewright.algorithm import Budget, OnProgress, Progress, ignore
from placewright.highs import new_highs
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result
from placewright.rounding import rounded_down
from placewright.solvers.offload.deepening import best_of_solution, deepened, why_too_large
from placewright.solvers.offload.program import OffloadProgram

__all__ = ["OffloadMilp"]

NAME = "offload-milp"
LARGEST_MODEL = 400_000
"""Most variables for which a model is built."""

UNITS = 1000.0
"""Units of time in the value of the incumbent: the solver's tolerances are absolute."""

TOLERANCE = 1e-9
"""Of reduced costs, in units of time, and of whole numbers: see :func:`margin`."""

GRACE_S = 1.0
"""Seconds that a cancelled search has to end. HiGHS asks seldom whether it should, up to 20 s apart."""

LONGEST_WAIT_S = 60.0
"""Seconds that the interpreter waits at its end for a search that was left."""

LEAST_MARGIN = 2e-7
"""Relative; a fifth of what counts as proved optimal."""


def margin(choices: int, times: int) -> float:
    """Relative part of the solver's bound that is not claimed.

    The bound of a node is the value of a linear program that is solved within tolerances. Rows and whole numbers that
    are broken by their tolerance relax the program: its value is then too low, never too high. A reduced cost of the
    wrong sign, by up to ``TOLERANCE``, makes the value too high by that much times the range of its variable, which is
    1 for choices, and for times the latency of the plan to start from, ``UNITS``. Cuts are derived in floating point
    with slack of about 1e-9 relative each; they, and what the search fixes by reduced costs, are why no less than
    ``LEAST_MARGIN`` is taken off.

    Examples
    --------
    >>> round(margin(1000, 100) / LEAST_MARGIN, 3)
    1.505
    """
    return LEAST_MARGIN + (choices / UNITS + times) * TOLERANCE


@dataclass(frozen=True, slots=True)
class OffloadMilp:
    """Exact offload latency by HiGHS; the model: :mod:`placewright.solvers.offload.program`.

    The integer program of arXiv 2006.16423 with conditions written with the incumbent's value as the large constant.
    Guarantee: every plan is evaluated by the judge. The bound is HiGHS' own less :func:`margin`, for any number of
    calls that the objective allows: unlike that of ``offload-cp-sat`` it rests on floating-point arithmetic inside the
    solver. Any-time. ``iterations`` of the budget count nodes of the search tree, on one thread.

    Attributes
    ----------
    threads : int
        1 when the budget counts iterations.
    """

    threads: int = 2

    def supports(self, problem: Problem) -> str | None:
        """Tell why a problem is out of reach; ``None`` when it isn't."""
        return why_too_large(problem, LARGEST_MODEL, NAME)

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

        def solve(program: OffloadProgram, best: Plan | None, part: Budget) -> Result:
            return self._solve(problem, program, best, part, rng, on_progress)

        return deepened(
            problem, budget, incumbent, NAME, quanta=UNITS, whole=False, solve=solve, most_variables=LARGEST_MODEL
        )

    def _solve(
        self,
        problem: Problem,
        program: OffloadProgram,
        best: Plan | None,
        budget: Budget,
        rng: np.random.Generator,
        on_progress: OnProgress,
        told: bool = True,
    ) -> Result:
        """Run HiGHS once; ``told`` of the best plan as a solution to start from."""
        import highspy

        begun = budget.elapsed_s
        threads = self.threads if budget.iterations is None else 1
        seed = int(rng.integers(2**31 - 1))
        provenance = Provenance(NAME, None, "", {"threads": threads, "highs_seed": seed})
        kept: list[Plan | None] = [best]
        seen, left = [0.0], threading.Event()
        times = sum(program.timed.is_time)
        less = margin(len(program.timed.is_time) - times, times)

        def claimed(units: float) -> float:
            sure = (units - program.given_away) * (1.0 - less)
            bound = rounded_down(max(0.0, sure) * program.scale_s) if np.isfinite(units) and program.bounding else 0.0
            return bound if kept[0] is None else min(bound, rounded_down(kept[0].value_s))

        def improve(values: object) -> None:
            found = best_of_solution(problem, program, values, provenance)
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
            "mip_feasibility_tolerance": TOLERANCE,
            "dual_feasibility_tolerance": TOLERANCE,
            "time_limit": max(0.05, min(budget.left_s, 1e6)),
        }.items():
            solver.setOptionValue(option, setting)
        if budget.iterations is not None:
            solver.setOptionValue("mip_max_nodes", budget.iterations)
        solver.passModel(_model(program, highspy))
        if program.started and told:
            solution = highspy.HighsSolution()
            solution.col_value = program.timed.start
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
        if status == highspy.HighsModelStatus.kInfeasible and kept[0] is None and program.bounding:
            reason = "no placement respects devices, colocation, links and memory (proved by HiGHS)"
            return Result(infeasible=reason, runtime_s=runtime, solver=NAME)
        info = solver.getInfo()
        if status == highspy.HighsModelStatus.kOptimal:
            values = solver.getSolution().col_value
            improve(values)
            value = values[program.timed.peak]
            if told and value > info.objective_function_value * (1.0 + LEAST_MARGIN) and not budget.spent:
                # Seen with HiGHS 1.16: where presolve solves the program, it may return the start for the optimum.
                return self._solve(problem, program, kept[0], budget, rng, on_progress, told=False)
        # Where nothing is left to decide, HiGHS solves a linear program and knows no bound of a search.
        linear = all(program.timed.free) and status == highspy.HighsModelStatus.kOptimal
        bound = claimed(float(info.objective_function_value if linear else info.mip_dual_bound))
        return Result(kept[0], bound, "", runtime, NAME, {NAME: bound})


def _model(program: OffloadProgram, highspy: Any) -> Any:
    t = program.timed
    rows = [(terms, lower, upper) for terms, lower, upper in t.rows]
    for rule in t.rules:
        terms = [(rule.later, 1.0), *((x, -c) for x, c in rule.terms)]
        terms += [(rule.earlier, -1.0)] if rule.earlier >= 0 else []
        # Less the latency of the plan to start from for each literal that does not hold.
        terms += [(x, -t.most if holds else t.most) for x, holds in rule.literals]
        rows.append((terms, rule.constant - t.most * sum(holds for _, holds in rule.literals), np.inf))
    merged = []
    for terms, _, _ in rows:
        sums: dict[int, float] = {}
        for x, c in terms:
            sums[x] = sums.get(x, 0.0) + c
        merged.append(sums)
    n, is_time = len(t.start), np.array(t.is_time)
    lp = highspy.HighsLp()
    cost = np.zeros(n)
    cost[t.peak] = 1.0
    lp.num_col_, lp.num_row_ = n, len(rows)
    lp.col_cost_ = cost
    lp.col_lower_, lp.col_upper_ = np.zeros(n), np.where(is_time, t.most, 1.0)
    lp.row_lower_ = np.array([lower for _, lower, _ in rows])
    lp.row_upper_ = np.array([upper for _, _, upper in rows])
    lp.integrality_ = [highspy.HighsVarType.kContinuous if f else highspy.HighsVarType.kInteger for f in t.free]
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.concatenate([[0], np.cumsum([len(sums) for sums in merged])]).astype(np.int32)
    lp.a_matrix_.index_ = np.array([x for sums in merged for x in sums], dtype=np.int32)
    lp.a_matrix_.value_ = np.array([c for sums in merged for c in sums.values()])
    return lp
