"""Makespan: annealing, then proof or more annealing."""

from __future__ import annotations

from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.makespan import MAKESPAN_SOLVERS
from placewright.solvers.makespan.annealing import Annealing
from placewright.strategy.stage import Stage, Strategy

__all__ = ["MAKESPAN"]

EXACT_UP_TO = 400
"""Most operators for which constraint programming is given the larger part of the budget; beyond, search is better."""


def _stages(problem: Problem, best: Result) -> list[Stage]:
    exact, split = MAKESPAN_SOLVERS["makespan-cp-sat"], MAKESPAN_SOLVERS["modular-split"]
    search = Annealing(target_s=best.lower_bound_s)
    if exact.supports(problem) is None and len(problem.graph) <= EXACT_UP_TO:
        # Small problems are proved sooner than searched through.
        stages = [Stage(search, 0.15, 0.2 + 0.03 * len(problem.graph), "annealing"), Stage(exact.algorithm)]
    elif exact.supports(problem) is None:
        stages = [Stage(search, 0.5, named="annealing"), Stage(exact.algorithm)]
    else:
        stages = [Stage(search, 0.5, named="annealing"), Stage(Annealing(hot=0.005), named="annealing")]
    if split.supports(problem) is None:
        stages.insert(1, Stage(split.algorithm, 0.7))
    return stages


MAKESPAN = Strategy(("single-device", "heft", "etf"), _stages)
