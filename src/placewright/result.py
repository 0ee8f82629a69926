"""What an algorithm returns: a plan or none, a proven lower bound or 0, and a status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from placewright.errors import NoPlan
from placewright.plan import Plan

__all__ = ["Result", "Status"]

OPTIMALITY_TOLERANCE = 1e-6
"""A relative gap below this counts as proven optimal."""


class Status(StrEnum):
    """What is known when an algorithm returns."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


@dataclass(frozen=True, eq=False)
class Result:
    """The outcome of an algorithm. A heuristic leaves the bound at 0, a bound leaves the plan ``None``.

    Attributes
    ----------
    plan : Plan or None
    lower_bound_s : float
        Proved; no plan can be below it. ``inf`` for a problem proved infeasible.
    infeasible : str
        Why there can't be a plan; empty when that is not known.
    runtime_s : float
    solver : str
        Name of the algorithm that found the plan.
    bounds : mapping of str to float
        Each bound that was computed, in seconds, by name.
    alternatives : mapping of str to float
        Values in seconds of the other plans that were met on the way, by name; ``inf`` where that one is infeasible.
    interrupted : bool
        Whether the user stopped the search.
    rejected_s : float
        Value in seconds of a placement that the algorithm ended with and that breaks a rule, so that it is no plan:
        some published algorithms know no memory limits. ``inf``: there is none.
    rejected : str
        The rule that it breaks.

    Examples
    --------
    >>> Result(lower_bound_s=2.0).merge(Result(lower_bound_s=3.0)).lower_bound_s
    3.0
    >>> Result().status.value
    'unknown'
    """

    plan: Plan | None = None
    lower_bound_s: float = 0.0
    infeasible: str = ""
    runtime_s: float = 0.0
    solver: str = ""
    bounds: Mapping[str, float] = field(default_factory=dict)
    alternatives: Mapping[str, float] = field(default_factory=dict)
    interrupted: bool = False
    rejected_s: float = float("inf")
    rejected: str = ""

    @property
    def value_s(self) -> float:
        """The plan's objective; ``inf`` without a plan."""
        return float("inf") if self.plan is None else self.plan.value_s

    @property
    def gap(self) -> float:
        """(objective - lower bound) / objective, 0 for an objective of 0; 1 without a plan."""
        if self.plan is None:
            return 1.0
        return 0.0 if self.value_s <= 0 else max(0.0, (self.value_s - self.lower_bound_s) / self.value_s)

    @property
    def status(self) -> Status:
        """Optimal when the gap is closed to 1e-6, feasible with a plan, infeasible when proved so, else unknown."""
        if self.plan is not None:
            return Status.OPTIMAL if self.gap <= OPTIMALITY_TOLERANCE else Status.FEASIBLE
        return Status.INFEASIBLE if self.infeasible else Status.UNKNOWN

    def merge(self, other: Result) -> Result:
        """Keep the better plan (the earlier one on a tie) and the higher bound, also of each name; runtimes add up."""
        better = other if other.value_s < self.value_s else self
        # Of placements that break a rule the one of less value, like of plans.
        rejected = self if self.rejected and (not other.rejected or self.rejected_s <= other.rejected_s) else other
        return replace(
            better,
            lower_bound_s=max(self.lower_bound_s, other.lower_bound_s),
            infeasible=self.infeasible or other.infeasible,
            runtime_s=self.runtime_s + other.runtime_s,
            bounds={name: max(self.bounds.get(name, s), s) for name, s in {**self.bounds, **other.bounds}.items()},
            alternatives={**self.alternatives, **other.alternatives},
            interrupted=self.interrupted or other.interrupted,
            rejected_s=rejected.rejected_s,
            rejected=rejected.rejected,
        )

    def require_plan(self) -> Plan:
        """Return the plan.

        Raises
        ------
        NoPlan
            If the problem is infeasible, or the budget was spent before a plan was found.
        """
        if self.plan is not None:
            return self.plan
        if self.infeasible:
            raise NoPlan(self.infeasible, infeasible=True)
        raise NoPlan("the budget was spent before a plan was found; give more with --budget", infeasible=False)
