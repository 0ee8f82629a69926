"""The offload latency by HiGHS' branch and cut: exact up to the solver's tolerances, which the bound allows for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from placewright.algorithm import Budget, OnProgress, Progress, ignore
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result
from placewright.rounding import rounded_down
from placewright.solvers.mip_run import LEAST_MARGIN, TOLERANCE, UNITS, run_mip
from placewright.solvers.offload.deepening import best_of_solution, deepened, why_too_large
from placewright.solvers.offload.program import OffloadProgram

__all__ = ["OffloadMilp"]

NAME = "offload-milp"
LARGEST_MODEL = 400_000
"""Most variables for which a model is built."""


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

    Complexity: exponential at worst.
    Source: Tarnawski et al. 2020 (arXiv 2006.16423), published for Gurobi.
    When to use: to compare with the paper's program.

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
    ) -> Result:
        import highspy

        begun = budget.elapsed_s
        threads = self.threads if budget.iterations is None else 1
        seed = int(rng.integers(2**31 - 1))
        provenance = Provenance(NAME, None, "", {"threads": threads, "highs_seed": seed})
        kept: list[Plan | None] = [best]
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

        def report(units: float) -> None:
            value = float("inf") if kept[0] is None else kept[0].value_s
            on_progress(Progress(NAME, value, claimed(units), budget.elapsed_s))

        run = run_mip(
            _model(program, highspy),
            budget=budget,
            threads=threads,
            seed=seed,
            start=program.timed.start if program.started else None,
            on_solution=improve,
            on_bound=report,
            mip_feasibility_tolerance=TOLERANCE,
        )
        runtime = budget.elapsed_s - begun
        if run.infeasible and kept[0] is None and program.bounding:
            reason = "no placement respects devices, colocation, links and memory (proved by HiGHS)"
            return Result(infeasible=reason, runtime_s=runtime, solver=NAME)
        bound = claimed(run.bound)
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
