"""What a strategy is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from placewright.algorithm import Algorithm
from placewright.problem import Problem
from placewright.result import Result

__all__ = ["Stage", "Strategy"]


@dataclass(frozen=True, slots=True)
class Stage:
    """One algorithm and its part of the budget.

    Attributes
    ----------
    algorithm : Algorithm
    share : float
        Of what is left of the budget when its turn comes.
    at_most_s : float
        Seconds.
    named : str
        Its plan is listed among the alternatives under this name; empty: it is not.
    """

    algorithm: Algorithm
    share: float = 1.0
    at_most_s: float = inf
    named: str = ""


@dataclass(frozen=True, slots=True)
class Strategy:
    """How an objective is minimised when no solver is asked for.

    Attributes
    ----------
    constructive : tuple of str
        Solvers that are always tried first, each takes well under a second; what improves on a plan starts from the
        best of theirs.
    stages : callable
        Given a problem and what the bounds and constructive solvers made of it, what to run next, in turn, until the
        gap is closed or the budget spent.
    """

    constructive: tuple[str, ...]
    stages: Callable[[Problem, Result], Sequence[Stage]]
