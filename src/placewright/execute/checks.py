"""What every way to run a plan asks of it beforehand, and of its outputs."""

from __future__ import annotations

from placewright.errors import InvalidInput
from placewright.plan import Plan

__all__ = ["TOLERANCE", "check_single", "check_timeout"]

TOLERANCE = 1e-5
"""Largest difference of an output from the unsplit network's, relative to that output's largest magnitude."""

LONGEST_S = 86_400.0
"""Longest that a run may be given."""


def check_timeout(timeout_s: float) -> None:
    """Refuse a limit for a run within which nothing can run, or that is none.

    Raises
    ------
    InvalidInput
        If it is not above 0, or longer than a day.
    """
    if not 0 < timeout_s <= LONGEST_S:
        raise InvalidInput(f"--timeout {timeout_s:g} s is not above 0 and at most a day; write for example '60s'")


def check_single(plan: Plan) -> None:
    """Refuse a plan in which something runs several times side by side.

    Raises
    ------
    InvalidInput
    """
    if len(plan.copies) > 1:
        raise InvalidInput(
            f"the plan has {len(plan.copies)} copies of the network side by side, which one sample cannot show; run "
            "many with --processes --micro-batches N, or plan for the makespan"
        )
    if plan.replicas:
        raise InvalidInput(
            "the plan has stages on several devices at once, which one sample can't show; run many with --processes "
            "--micro-batches N, or plan without --replicate"
        )
