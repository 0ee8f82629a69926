"""Throughput: the baselines, then copies by column generation with its bound."""

from __future__ import annotations

from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.throughput import THROUGHPUT_SOLVERS
from placewright.strategy.stage import Stage, Strategy

__all__ = ["THROUGHPUT"]


FEW = 4
"""Devices up to which teams of servers have nothing to say that the search does not."""

TINY = 12
"""Operators up to which every placement is tried before the search has its turn."""


def _stages(problem: Problem, best: Result) -> list[Stage]:
    def stage(name: str, share: float) -> list[Stage]:
        entry = THROUGHPUT_SOLVERS[name]
        fits = entry.supports(problem) is None
        return [Stage(entry.algorithm, share, named="" if entry.exact else name)] if fits else []

    small = THROUGHPUT_SOLVERS["copies"].supports(problem) is None
    if not small:
        return stage("servers", 1.0)
    exact = stage("copies-exact", 0.5) if len(problem.graph) <= TINY else []
    teams = stage("servers", 0.2) if len(problem.cluster) > FEW else []
    return [*stage("model-parallel", 0.2), *teams, *exact, *stage("copies", 1.0)]


THROUGHPUT = Strategy(("single-device", "data-parallel"), _stages)
