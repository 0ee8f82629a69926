"""What the registries of solvers say of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from placewright.algorithm import Algorithm
from placewright.problem import Problem

__all__ = ["Entry"]


def _anything(problem: Problem) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Entry:
    """One solver.

    Attributes
    ----------
    algorithm : Algorithm
    exact : bool
        Whether it ends with a proof, given time.
    summary : str
        One line for ``placewright solvers``.
    supports : callable
        The reason why a problem is out of reach, or ``None``.
    starts_afresh : bool
        Whether it makes its own plan: then it is given no incumbent.
    """

    algorithm: Algorithm
    exact: bool
    summary: str
    supports: Callable[[Problem], str | None] = _anything
    starts_afresh: bool = False
