"""The offload latency by OR-Tools' CP-SAT: exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from placewright.algorithm import Budget, OnProgress, Progress, ignore
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result
from placewright.rounding import rounded_down
from placewright.solvers.cp_sat_run import run_cp_sat
from placewright.solvers.offload.deepening import best_of_solution, deepened, why_too_large
from placewright.solvers.offload.program import OffloadProgram

__all__ = ["OffloadCpSat"]

NAME = "offload-cp-sat"
LARGEST_MODEL = 400_000
"""Most variables for which a model is built."""

PARAMETERS = {"cp_model_presolve": False}
"""Settings of CP-SAT: release 9.15 with presolve returned optima above the true ones on 1 of 1,000 random problems,
from a model in which several rules had the same long sum on their right side, and on the max-load's model."""


@dataclass(frozen=True, slots=True)
class OffloadCpSat:
    """Exact offload latency by CP-SAT; the model: :mod:`placewright.solvers.offload.program`.

    Guarantee: every time is rounded down to whole quanta, so that the optimum of the integer program is, less one
    quantum a call, at most the true one, and the bound holds for any number of calls that the objective allows; every
    plan is evaluated with the unrounded times. Any-time. The budget's ``iterations`` counts CP-SAT's deterministic time
    units (about seconds) on one worker, which makes the result depend on the seed alone.

    Complexity: exponential at worst; calls with variables of their own are doubled until the gap is closed.
    Source: the integer program of arXiv 2006.16423 in our own model.
    When to use: to prove plans of up to some hundred operators, with any number of calls.

    Attributes
    ----------
    workers : int
        Threads; 1 when the budget counts iterations.
    quanta : float
        In the value of the incumbent. What rounding loses is up to one quantum an operator or transfer.
    """

    workers: int = 2
    quanta: float = 1e9

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
            problem,
            budget,
            incumbent,
            NAME,
            quanta=self.quanta,
            whole=True,
            solve=solve,
            most_variables=LARGEST_MODEL,
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
        from ortools.sat.python import cp_model

        begun = budget.elapsed_s
        model, variables = _model(program, cp_model)
        seed = int(rng.integers(2**31 - 1))
        provenance = Provenance(NAME, None, "", {"workers": self.workers, "cp_sat_seed": seed})
        kept: list[Plan | None] = [best]

        def claimed(units: float) -> float:
            if not np.isfinite(units) or not program.bounding:
                return 0.0
            whole = float(np.ceil(units - 1e-6)) - program.given_away
            bound = rounded_down(max(0.0, whole) * program.scale_s)
            return bound if kept[0] is None else min(bound, rounded_down(kept[0].value_s))

        def improve(value_of: Callable[[Any], int]) -> None:
            found = best_of_solution(problem, program, [value_of(v) for v in variables], provenance)
            if found is not None and (kept[0] is None or found.value_s < kept[0].value_s):
                kept[0] = found

        def report(bound: float) -> None:
            value = float("inf") if kept[0] is None else kept[0].value_s
            on_progress(Progress(NAME, value, claimed(bound), budget.elapsed_s))

        run = run_cp_sat(
            model,
            budget=budget,
            workers=self.workers,
            seed=seed,
            on_solution=improve,
            on_bound=report,
            parameters=PARAMETERS,
        )
        runtime = budget.elapsed_s - begun
        if run.infeasible and kept[0] is None and program.bounding:
            reason = "no placement respects devices, colocation, links and memory (proved by CP-SAT)"
            return Result(infeasible=reason, runtime_s=runtime, solver=NAME)
        bound = claimed(run.bound)
        return Result(kept[0], bound, "", runtime, NAME, {NAME: bound})


def _model(program: OffloadProgram, cp_model: Any) -> tuple[Any, list[Any]]:
    """Hand a program in whole numbers to CP-SAT."""
    model, t = cp_model.CpModel(), program.timed
    most = int(t.most)
    variables = [model.new_int_var(0, most, "") if time else model.new_bool_var("") for time in t.is_time]
    for terms, lower, upper in t.rows:
        if not terms:
            if not lower <= 0.0 <= upper:
                model.add_bool_or([])
            continue
        expression = cp_model.LinearExpr.weighted_sum([variables[x] for x, _ in terms], [round(c) for _, c in terms])
        low = round(lower) if np.isfinite(lower) else cp_model.INT32_MIN * 2**24
        high = int(np.floor(upper)) if np.isfinite(upper) else cp_model.INT32_MAX * 2**24
        model.add_linear_constraint(expression, low, high)
    for rule in t.rules:
        terms = [(rule.later, 1), *((x, -round(c)) for x, c in rule.terms)]
        terms += [(rule.earlier, -1)] if rule.earlier >= 0 else []
        expression = cp_model.LinearExpr.weighted_sum([variables[x] for x, _ in terms], [c for _, c in terms])
        constraint = model.add(expression >= round(rule.constant))
        if rule.literals:
            constraint.only_enforce_if([variables[x] if holds else ~variables[x] for x, holds in rule.literals])
    model.minimize(variables[t.peak])
    if program.started:
        for variable, value in zip(variables, t.start, strict=True):
            model.add_hint(variable, round(value))
    return model, variables
