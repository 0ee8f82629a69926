"""Max-load: the best order first, then proof."""

from __future__ import annotations

from placewright.problem import Problem
from placewright.result import Result
from placewright.strategy.stage import Stage, Strategy

__all__ = ["MAX_LOAD"]


def _stages(problem: Problem, best: Result) -> list[Stage]:
    return []


MAX_LOAD = Strategy(("single-device",), _stages)
