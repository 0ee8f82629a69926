"""Go on after a device is lost: plan again on the devices that are left, and run that plan."""

from __future__ import annotations

import glob
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from placewright.errors import DeviceLost, NoPlan
from placewright.evaluate import judge
from placewright.io import write_plan
from placewright.plan import Plan
from placewright.problem import Problem, Wish
from placewright.result import Result
from placewright.solve import solve
from placewright.units import format_seconds

__all__ = ["Ran", "beside", "run_replanning", "without"]

T = TypeVar("T")


@dataclass(frozen=True)
class Ran(Generic[T]):
    """What was run in the end.

    Attributes
    ----------
    problem : Problem
        Without the devices that were lost.
    result : Result
        Its plan.
    outcome : object
        Of the run.
    lost : tuple of DeviceLost
        In the order in which they were lost.
    path : Path
        The plan's file.
    """

    problem: Problem
    result: Result
    outcome: T
    lost: tuple[DeviceLost, ...]
    path: Path


def run_replanning(
    problem: Problem,
    result: Result,
    path: Path,
    run: Callable[[Problem, Plan, Path], T],
    *,
    output: Path | None,
    budget_s: float,
    tell: Callable[[str], None],
) -> Ran[T]:
    """Run a plan; whenever a device is lost, plan again without it and run the new plan, until one ends well.

    Parameters
    ----------
    problem : Problem
    result : Result
        With the plan to begin with.
    path : Path
        Its file.
    run : callable
        Given a problem, a plan and the plan's file.
    output : Path or None
        Where a new plan is written, before it is run; ``None``: a device that is lost is the end.
    budget_s : float
        For each search.
    tell : callable
        Called with a line about each device that is lost, and each new plan.

    Raises
    ------
    NoPlan
        If there is none on the devices that are left.
    DeviceLost
        Without ``output``.
    """
    lost: list[DeviceLost] = []
    while True:
        plan = result.require_plan()
        try:
            return Ran(problem, result, run(problem, plan, path), tuple(lost), path)
        except DeviceLost as error:
            if output is None:
                raise
            lost.append(error)
            tell(f"{error.device} is lost: {error}; planning again without it for {format_seconds(budget_s)}")
            problem = without(problem, error.device)
            result = solve(problem, budget=budget_s, seed=plan.provenance.seed or 0)
            if result.plan is None:
                names = ", ".join(repr(e.device) for e in lost)
                why = result.infeasible or f"none was found within --budget {format_seconds(budget_s)}; give more time"
                raise NoPlan(f"without {names} there is no plan: {why}", infeasible=bool(result.infeasible)) from error
            write_plan(output, problem, result, judge(problem, result.plan))
            was, new = format_seconds(plan.value_s), format_seconds(result.value_s)
            tell(f"the plan without {error.device} takes {new}, the one before took {was}; it is in {output}")
            path = output


def without(problem: Problem, device: str) -> Problem:
    """Forbid all operators to run on a device.

    Examples
    --------
    >>> from placewright import Cluster, Device, Operator, OperatorGraph
    >>> pair = Problem(OperatorGraph([Operator("a")]), Cluster([Device("gpu"), Device("cpu")]), [[1.0, 2.0]])
    >>> without(pair, "gpu").allowed.tolist()
    [[False, True]]
    """
    wish = Wish("*", glob.escape(device), forbid=True)
    return replace(problem, wishes=(*problem.wishes, wish))


def beside(plan_path: Path) -> Path:
    """Where a new plan is written unless the user says where.

    Examples
    --------
    >>> beside(Path("plans/box.json")).name
    'box.replanned.json'
    """
    return plan_path.parent / f"{plan_path.stem}.replanned.json"  # ``with_name`` refuses the paths '' and '.'
