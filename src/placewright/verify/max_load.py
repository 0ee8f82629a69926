"""The checker of plans for the max-load: loads, order of devices, replicas, memory."""

from __future__ import annotations

from placewright.plan import Plan
from placewright.problem import Problem

__all__ = ["verify_max_load"]


def verify_max_load(problem: Problem, plan: Plan, *, tolerance: float = 1e-9) -> tuple[str, ...]:
    """Check a plan; see :func:`placewright.verify.verify`."""
    raise NotImplementedError
