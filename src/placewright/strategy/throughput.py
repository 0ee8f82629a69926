"""Throughput: the baselines, then copies by column generation with its bound."""

from __future__ import annotations

from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.throughput import THROUGHPUT_SOLVERS
from placewright.strategy.stage import Stage, Strategy

__all__ = ["THROUGHPUT"]


def _stages(problem: Problem, best: Result) -> list[Stage]:
    return [Stage(THROUGHPUT_SOLVERS["servers"].algorithm, 0.5, named="servers")]


THROUGHPUT = Strategy(("single-device",), _stages)
