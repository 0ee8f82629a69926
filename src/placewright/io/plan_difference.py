"""In what a plan's problem and another one differ first, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from placewright.io.plan_document import PlanDocument
from placewright.io.problem_file import problem_content
from placewright.problem import Problem

__all__ = ["first_difference"]


def first_difference(plan: PlanDocument, carried: Problem | None, given: Problem) -> str:
    """Name the first thing in which the problem of a plan differs from the one that is given.

    Parameters
    ----------
    plan : PlanDocument
    carried : Problem or None
        The plan's own problem, when its file carries it; without it counts and names of operators are all there is.
    given : Problem
    """
    for what, theirs, ours in (
        ("operators", plan.problem.operators, len(given.graph)),
        ("devices", plan.problem.devices, len(given.cluster)),
    ):
        if theirs != ours:
            return f"the plan's has {theirs} {what}, this one {ours}"
    for name, operator in zip(plan.schedule.operators.name, given.graph.operators, strict=False):
        if name != operator.name:
            return f"the plan's has the operator {name!r} where this one has {operator.name!r}"
    if carried is None:
        return "operators and number of devices are the same; times, sizes, limits, links, objective or wishes differ"
    a, b = problem_content(carried), problem_content(given)
    for key in a:
        at = _differs(a[key], b[key], key)
        if at:
            return at
    raise AssertionError("two problems of one content have one hash")


def _differs(theirs: Any, ours: Any, at: str) -> str:
    if theirs == ours:
        return ""
    if isinstance(theirs, dict) and isinstance(ours, dict) and theirs.keys() == ours.keys():
        return next(found for key in theirs if (found := _differs(theirs[key], ours[key], f"{at}.{key}")))
    if _is_list(theirs) and _is_list(ours):
        if len(theirs) != len(ours):
            return f"{at} has {len(theirs)} entries in the plan's, {len(ours)} in this one"
        return next(found for k in range(len(ours)) if (found := _differs(theirs[k], ours[k], f"{at}[{k}]")))
    return f"{at} is {_shown(theirs)} in the plan's, {_shown(ours)} in this one"


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."
