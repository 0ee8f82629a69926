"""Max-load: a good order first, then the proof that fits the contiguity that is asked for."""

from __future__ import annotations

from placewright.loads import objective_of
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.max_load import MAX_LOAD_SOLVERS
from placewright.strategy.stage import Stage, Strategy

__all__ = ["MAX_LOAD"]


def _stages(problem: Problem, best: Result) -> list[Stage]:
    def stage(name: str, share: float = 1.0, at_most_s: float = float("inf")) -> list[Stage]:
        entry = MAX_LOAD_SOLVERS[name]
        fits = entry.supports(problem) is None
        return [Stage(entry.algorithm, share, at_most_s, "" if entry.exact else name)] if fits else []

    ordered = stage("order-search", 0.1, 0.1 + 0.003 * len(problem.graph))
    if objective_of(problem).contiguity == "contiguous":
        # The integer programs see what the lattice only bounds: links that differ by pair, shared channels.
        return [*ordered, *stage("ideal-dp", 0.6), *stage("max-load-milp", 0.6), *stage("max-load-cp-sat")]
    return [
        *ordered,
        *stage("annealing", 0.2, 0.5 + 0.01 * len(problem.graph)),
        *stage("max-load-milp", 0.5),
        *stage("max-load-cp-sat"),
    ]


MAX_LOAD = Strategy(("single-device", "linearized-dp"), _stages)
