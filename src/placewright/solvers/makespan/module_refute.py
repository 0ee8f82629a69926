"""Whether a module has a schedule within a time: asked so, CP-SAT proves far more than by minimising."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from placewright.algorithm import Budget
from placewright.evaluate import plan_for
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.rounding import rounded_down
from placewright.solvers.cp_sat_run import run_cp_sat
from placewright.solvers.makespan.cp_sat_model import build, decisions
from placewright.solvers.makespan.modules import within

__all__ = ["Answer", "schedule_within"]

STRATEGIES = ("no_lp", "fixed", "quick_restart_no_lp")
"""CP-SAT's names of what its workers do."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known now: a plan within the time, and a bound of all plans; the time itself when there is none."""

    plan: Plan | None
    bound_s: float


def schedule_within(
    problem: Problem, limit_s: float, known: Plan, budget: Budget, rng: np.random.Generator, workers: int = 2
) -> Answer:
    """Look for a schedule of at most ``limit_s``, or prove that there is none (a *destructive* bound).

    What no schedule within the limit can use is left out first; the program's variables then end at the limit, so that
    heads and tails fix most orders. That rounding is safe is shown in
    :mod:`placewright.solvers.makespan.cp_sat_model`: a schedule within the limit is one of the program, too.

    Parameters
    ----------
    known : Plan
        Any plan of the problem, for hints.
    """
    part = within(problem, limit_s)
    if part is None:
        return Answer(None, rounded_down(limit_s))
    model = build(part, replace(known, value_s=limit_s), budget)
    best: list[Plan | None] = [None]

    def improve(value_of: Callable[[Any], int]) -> None:
        device, schedule = decisions(model, value_of)
        found = plan_for(part, device, schedule=schedule)
        if found is not None and (best[0] is None or found.value_s < best[0].value_s):
            best[0] = found

    run = run_cp_sat(
        model.proto,
        budget=budget,
        workers=workers,
        seed=int(rng.integers(2**31 - 1)),
        on_solution=improve,
        on_bound=lambda bound: None,
        parameters={"linearization_level": 0, "presolve_inclusion_work_limit": 0},  # see CpSat
        strategies=STRATEGIES,
    )
    if run.infeasible:
        return Answer(None, rounded_down(limit_s))
    bound = max(0.0, float(np.floor(run.bound))) * model.quantum_s if np.isfinite(run.bound) else 0.0
    # What was left out takes more than the limit.
    return Answer(best[0], rounded_down(min(bound, limit_s)))
