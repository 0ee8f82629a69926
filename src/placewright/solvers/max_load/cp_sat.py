"""The max-load by OR-Tools' CP-SAT: exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from placewright.algorithm import Budget, OnProgress, Progress, ignore
from placewright.evaluate import plan_for
from placewright.loads import loads_of
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result, Status
from placewright.rounding import rounded_down
from placewright.solvers.cp_sat_run import run_cp_sat
from placewright.solvers.max_load.program import Program, build
from placewright.solvers.max_load.reach import largest_value, starting_plan, unit_devices, why_out_of_reach

__all__ = ["LoadCpSat"]

NAME = "max-load-cp-sat"
LARGEST_MODEL = 400_000
"""Most variables for which a model is built."""


@dataclass(frozen=True, slots=True)
class LoadCpSat:
    """Exact max-load by CP-SAT; the model: :mod:`placewright.solvers.max_load.program`.

    Guarantee: every time is rounded down to whole quanta, so that the optimum of the integer program is at most the
    true one, and the bound holds; every plan is evaluated with the unrounded times. Any-time. The budget's
    ``iterations`` counts CP-SAT's deterministic time units (about seconds) on one worker, which makes the result
    depend on the seed alone.

    CP-SAT's presolve is off: release 9.15 returned an optimum of 5 where 4 was right on one of thousands of random
    problems, and did not without presolve, without probing, or without the search for rows that contain each other.

    Complexity: exponential at worst; variables: units x devices, and messages x devices.
    Source: the integer program of arXiv 2006.16423 in our own model.
    When to use: to prove plans that are not contiguous, or whose links differ.

    Attributes
    ----------
    workers : int
        Threads; 1 when the budget counts iterations.
    quanta : float
        In the value of the incumbent. What rounding loses is up to one quantum an operator or transfer.
    strategies : tuple of str
        CP-SAT's names of what its workers do, the first ones first; none: its own choice. Both of these together prove
        operator ResNet-50 inference, not contiguous, in 5 s; its own choice left 34 % after 12 s.
    """

    workers: int = 2
    quanta: float = 4e9
    strategies: tuple[str, ...] = ("default_lp", "pseudo_costs")

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
        self, problem: Problem, budget: Budget, rng: np.random.Generator, best: Plan | None, on_progress: OnProgress
    ) -> Result:
        from ortools.sat.python import cp_model

        begun = budget.elapsed_s
        if best is not None and best.value_s <= 0.0:
            return Result(best, solver=NAME)
        program = build(
            problem,
            largest_value(problem, best) / self.quanta,
            whole=True,
            incumbent=None if best is None else unit_devices(problem, best),
            cutoff_s=np.inf if best is None else best.value_s,
        )
        model, variables = _model(program, cp_model)
        seed = int(rng.integers(2**31 - 1))
        provenance = Provenance(NAME, None, "", {"workers": self.workers, "cp_sat_seed": seed})
        kept: list[Plan | None] = [best]

        def improve(value_of: Callable[[Any], int]) -> None:
            devices = program.unit_devices([value_of(v) for v in variables])
            found = plan_for(problem, loads_of(problem).devices_of(devices), provenance=provenance)
            if found is not None and (kept[0] is None or found.value_s < kept[0].value_s):
                kept[0] = found

        def report(bound: float) -> None:
            value = float("inf") if kept[0] is None else kept[0].value_s
            on_progress(Progress(NAME, value, max(0.0, bound) * program.scale_s, budget.elapsed_s))

        run = run_cp_sat(
            model,
            budget=budget,
            workers=self.workers,
            seed=seed,
            on_solution=improve,
            on_bound=report,
            parameters={"cp_model_presolve": False},  # see the class
            strategies=self.strategies,
        )
        plan, runtime = kept[0], budget.elapsed_s - begun
        if run.infeasible and plan is None:
            reason = "no placement respects devices, colocation, contiguity, links and memory (proved by CP-SAT)"
            return Result(infeasible=reason, runtime_s=runtime, solver=NAME)
        if run.infeasible:  # nothing is better than the plan to start from
            bound = inf
        else:
            whole = float(np.ceil(run.bound - 1e-6))
            bound = rounded_down(max(0.0, whole) * program.scale_s) if np.isfinite(whole) else 0.0
        # A placement above the plan's value may have been left out of the model.
        bound = min(bound, rounded_down(plan.value_s)) if plan is not None else bound
        return Result(plan, bound, "", runtime, NAME, {NAME: bound})


def _model(program: Program, cp_model: Any) -> tuple[Any, list[Any]]:
    """Hand a program in whole numbers to CP-SAT."""
    model = cp_model.CpModel()
    variables = []
    for k, upper in enumerate(program.upper):
        if k in program.peaks:
            variables.append(model.new_int_var(0, 2**50, f"T{k}"))
        else:
            variables.append(model.new_int_var(0, int(upper), ""))
    for terms, lower, upper in program.rows:
        if not terms and lower <= 0.0 <= upper:
            continue
        expression = cp_model.LinearExpr.weighted_sum([variables[x] for x, _ in terms], [round(c) for _, c in terms])
        if np.isfinite(lower) and np.isfinite(upper):
            model.add_linear_constraint(expression, round(lower), round(upper))
        elif np.isfinite(lower):
            model.add(expression >= round(lower))
        else:
            model.add(expression <= int(np.floor(upper)))
    model.minimize(cp_model.LinearExpr.sum([variables[k] for k in program.peaks]))
    if program.started:
        for variable, value in zip(variables, program.start, strict=True):
            model.add_hint(variable, round(value))
        most = round(sum(program.start[k] for k in program.peaks))
        model.add(cp_model.LinearExpr.sum([variables[k] for k in program.peaks]) <= most)
    return model, variables
