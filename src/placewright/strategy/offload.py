"""Offload: what the constructive solvers give, the spine bound and its split, annealing up to the bound, then proof."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from placewright.algorithm import Budget, OnProgress, ignore
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.result import OPTIMALITY_TOLERANCE, Result
from placewright.solvers.offload import OFFLOAD_SOLVERS
from placewright.solvers.offload.call_annealing import CallAnnealing
from placewright.solvers.offload.spine_plan import SpinePlan
from placewright.strategy.stage import Stage, Strategy

__all__ = ["OFFLOAD"]

SMALL = 24
"""Operators up to which the integer programs end before search is worth its time."""

LARGE = 120
"""Operators from which on the integer programs only take time."""

POLISH_S = 1.0
"""Seconds for what is left between a value within the tolerance and the bound."""


@dataclass(frozen=True, slots=True)
class SpineAndAnnealing:
    """``spine-plan``, then ``call-annealing`` of the best split until it meets the bound."""

    lower_s: float = 0.0
    spine_share: float = 0.7

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Improve on ``incumbent`` and on the bound."""
        part = budget.share(self.spine_share)
        found = SpinePlan()(problem, budget=part, rng=rng, incumbent=incumbent, on_progress=on_progress)
        named = {} if found.plan is None or found.plan is incumbent else {"spine-plan": found.value_s}
        found = replace(found, alternatives={**found.alternatives, **named})
        lower = max(self.lower_s, found.lower_bound_s)
        if budget.spent or found.value_s <= lower * (1.0 + 1e-9):
            return found
        search = CallAnnealing(target_s=lower * (1.0 + 0.9 * OPTIMALITY_TOLERANCE))
        better = search(problem, budget=budget, rng=rng, incumbent=found.plan, on_progress=on_progress)
        if better.value_s <= search.target_s:  # proved; what is left costs little
            search, part = CallAnnealing(target_s=lower * (1.0 + 1e-9)), budget.share(0.2, at_most_s=POLISH_S)
            better = search(problem, budget=part, rng=rng, incumbent=better.plan, on_progress=on_progress)
        named = {} if better.plan is None or better.plan is found.plan else {"call-annealing": better.value_s}
        return found.merge(replace(better, alternatives={**better.alternatives, **named}))


def _stages(problem: Problem, best: Result) -> list[Stage]:
    n = len(problem.graph)

    def stage(name: str, share: float = 1.0, at_most_s: float = float("inf")) -> list[Stage]:
        entry = OFFLOAD_SOLVERS[name]
        return [Stage(entry.algorithm, share, at_most_s)] if entry.supports(problem) is None else []

    both = SpineAndAnnealing(best.lower_bound_s)
    programs = [*stage("offload-cp-sat", 0.6), *stage("offload-milp", 0.6)]
    rest = Stage(CallAnnealing(), 1.0, named="call-annealing")
    if n <= SMALL:
        return [Stage(both, 0.2, 0.1 + 0.02 * n), *programs, rest]
    return [Stage(both, 0.4), *programs, rest] if n <= LARGE else [Stage(both)]


OFFLOAD = Strategy(("single-device", "offload-greedy"), _stages)
