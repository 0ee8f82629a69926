"""The seam between solving and everything else: one protocol for heuristics, exact methods and bounds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np

from placewright.clock import now_s
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.result import Result

__all__ = ["Algorithm", "Budget", "OnProgress", "Progress", "ignore"]


@dataclass(frozen=True, slots=True)
class Progress:
    """One step of a long search.

    Attributes
    ----------
    solver : str
        Name of the algorithm that reports.
    value_s : float
        Objective of the best plan so far; ``inf`` when there is none.
    lower_bound_s : float
    elapsed_s : float
        Since the budget was opened.
    """

    solver: str
    value_s: float
    lower_bound_s: float
    elapsed_s: float


OnProgress: TypeAlias = Callable[[Progress], None]


def ignore(progress: Progress) -> None:
    """Drop a progress report."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How long an algorithm may go on: seconds of wall clock, iterations, or until it is cancelled.

    The clock starts when the budget is made, and stands still while kernels are compiled (:mod:`placewright.clock`).
    With ``iterations`` set and ``seconds`` infinite, an algorithm's result depends on its seed alone.

    Attributes
    ----------
    seconds : float
    iterations : int or None
        In the algorithm's own unit, given in its docstring; ``None``: its default.
    cancelled : threading.Event
        Set (by Ctrl-C, or by another thread) to make every algorithm under this budget return what it has.
    """

    seconds: float = float("inf")
    iterations: int | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    opened: float = field(default_factory=now_s)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the budget was made."""
        return now_s() - self.opened

    @property
    def left_s(self) -> float:
        """Seconds left; 0 when spent or cancelled."""
        return 0.0 if self.cancelled.is_set() else max(0.0, self.seconds - self.elapsed_s)

    @property
    def spent(self) -> bool:
        """Whether to stop."""
        return self.left_s <= 0.0

    def share(self, fraction: float, *, at_most_s: float = float("inf")) -> Budget:
        """Give a part of what is left, cancelled together with this one."""
        return Budget(min(self.left_s * fraction, at_most_s), self.iterations, self.cancelled)


class Algorithm(Protocol):
    """A heuristic, an exact method or a bound: a plain function, or a frozen dataclass whose fields are parameters."""

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Solve or bound ``problem``; return the best that is known when the budget is spent."""
        ...
