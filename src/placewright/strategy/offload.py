"""Offload: what the constructive solvers give, improved, then proof."""

from __future__ import annotations

from placewright.problem import Problem
from placewright.result import Result
from placewright.strategy.stage import Stage, Strategy

__all__ = ["OFFLOAD"]


def _stages(problem: Problem, best: Result) -> list[Stage]:
    return []


OFFLOAD = Strategy(("single-device",), _stages)
