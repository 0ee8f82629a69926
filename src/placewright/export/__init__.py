"""Plans and problems in the words of other programs. ``PLAN_FORMATS`` and ``PROBLEM_FORMATS`` list them by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from placewright.errors import InvalidInput
from placewright.evaluate import Evaluation, judge
from placewright.io import problem_to_partitioning, problem_to_text, split_to_json, write_atomic
from placewright.plan import Plan
from placewright.problem import Problem

__all__ = ["PLAN_FORMATS", "PROBLEM_FORMATS", "check_format", "plan_text", "write_problem_as"]

PLAN_FORMATS: Mapping[str, Callable[[Problem, Plan, Evaluation], str]] = MappingProxyType(
    {"dnn-partitioning": split_to_json}
)
"""Name of a format -> what makes a file's text of a plan."""

PROBLEM_FORMATS: Mapping[str, Callable[[Problem], str | bytes]] = MappingProxyType(
    {"problem": problem_to_text, "dnn-partitioning": problem_to_partitioning}
)
"""Name of a format -> what makes a file's text of a problem."""


def check_format(name: str, known: Iterable[str]) -> None:
    """Refuse a format that is not known, before work is done for it.

    Raises
    ------
    InvalidInput
        That lists those that are.
    """
    names = list(known)
    if name not in names:
        raise InvalidInput(f"--format {name!r} is unknown; use {'one of ' if len(names) > 1 else ''}{', '.join(names)}")


def plan_text(problem: Problem, plan: Plan, format: str) -> str:
    """Make the text of a plan in a format of :data:`PLAN_FORMATS`.

    Raises
    ------
    InvalidInput
        If the format is unknown, or can't say this plan.
    """
    check_format(format, PLAN_FORMATS)
    return PLAN_FORMATS[format](problem, plan, judge(problem, plan))


def write_problem_as(path: Path | str, problem: Problem, format: str) -> None:
    """Write a problem in a format of :data:`PROBLEM_FORMATS`.

    Raises
    ------
    InvalidInput
        If the format is unknown, can't say this problem, or the path can't be written to.
    """
    check_format(format, PROBLEM_FORMATS)
    write_atomic(path, PROBLEM_FORMATS[format](problem))
