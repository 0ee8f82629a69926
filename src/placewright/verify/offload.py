"""The checker of plans for the offload latency: calls, their order, times, memory."""

from __future__ import annotations

from placewright.plan import Plan
from placewright.problem import Problem

__all__ = ["verify_offload"]


def verify_offload(problem: Problem, plan: Plan, *, tolerance: float = 1e-9) -> tuple[str, ...]:
    """Check a plan; see :func:`placewright.verify.verify`."""
    raise NotImplementedError
