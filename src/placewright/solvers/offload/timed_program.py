"""A 0/1 program with times: rows over the 0/1 variables, and rules by which one time follows another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

__all__ = ["Rule", "Term", "TimedProgram"]

Term = tuple[int, float]


@dataclass(frozen=True, slots=True)
class Rule:
    """``later >= earlier + sum of terms + constant`` when all literals hold.

    Attributes
    ----------
    later, earlier : int
        Variables that are times; ``earlier`` -1: the start of the sample.
    terms : tuple of (int, float)
        0/1 variables with what they add.
    constant : float
    literals : tuple of (int, bool)
        0/1 variables with the values that make the rule hold; none: always.
    """

    later: int
    earlier: int
    terms: tuple[Term, ...] = ()
    constant: float = 0.0
    literals: tuple[tuple[int, bool], ...] = ()


@dataclass(eq=False)
class TimedProgram:
    """Minimise the time ``peak`` subject to the rows and the rules.

    Attributes
    ----------
    most : float
        No time is above this in a solution that matters.
    is_time : list of bool
        Times lie between 0 and ``most``; all other variables are 0 or 1.
    start : list of float
        Values in the plan to start from.
    free : list of bool
        Whether a 0/1 variable is so by itself, or may as well be a fraction, when the others are whole.
    rows : list of (list of (int, float), float, float)
        Terms over 0/1 variables, least and largest value.
    rules : list of Rule
    peak : int
    """

    most: float
    is_time: list[bool] = field(default_factory=list)
    start: list[float] = field(default_factory=list)
    free: list[bool] = field(default_factory=list)
    rows: list[tuple[list[Term], float, float]] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    peak: int = -1

    def __post_init__(self) -> None:
        self.peak = self.time()

    def choice(self, start: float, *, free: bool = False) -> int:
        """Add a 0/1 variable."""
        return self._variable(float(start), False, free)

    def time(self) -> int:
        """Add a time."""
        return self._variable(0.0, True, True)

    def _variable(self, start: float, is_time: bool, free: bool) -> int:
        self.start.append(start)
        self.is_time.append(is_time)
        self.free.append(free)
        return len(self.start) - 1

    def row(self, terms: Iterable[Term], lower: float = -np.inf, upper: float = np.inf) -> None:
        """Add a row over 0/1 variables; it may be empty."""
        self.rows.append((list(terms), lower, upper))

    def rule(
        self,
        later: int,
        earlier: int,
        terms: Iterable[Term] = (),
        constant: float = 0.0,
        *,
        when: Iterable[tuple[int, bool]] = (),
    ) -> None:
        """Add a rule."""
        kept = tuple((x, c) for x, c in terms if c > 0)
        self.rules.append(Rule(later, earlier, kept, constant, tuple(when)))

    def settle_times(self) -> None:
        """Give all times their least values under the 0/1 values of the start."""
        start = self.start
        active = [
            (r.later, r.earlier, r.constant + sum(c * start[x] for x, c in r.terms))
            for r in self.rules
            if all((start[x] > 0.5) == holds for x, holds in r.literals)
        ]
        for _ in range(len(start) + 1):
            changed = False
            for later, earlier, length in active:
                least = length + (start[earlier] if earlier >= 0 else 0.0)
                if least > start[later]:
                    start[later], changed = least, True
            if not changed:
                return
        raise ValueError("the times of the start wait for each other")
