"""From the files that a user names to a plan and its problem, and to the placement that a solver starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from placewright.coarsen import per_device, transfers_of
from placewright.errors import InvalidInput
from placewright.io import PlanFile, read_any_problem, read_plan, read_split
from placewright.io.plan_file import PLAN_SCHEMA
from placewright.objective import MaxLoad
from placewright.problem import Problem
from placewright.solvers.entry import Entry
from placewright.solvers.expert import Expert

__all__ = ["given_solvers", "posed_plan"]


def posed_plan(problem_path: Path, plan_path: Path) -> tuple[Problem, PlanFile]:
    """Read a plan and the problem that it is to be judged on: a file of its own, or the one that a plan file carries.

    A workload states no objective, and a sheet a default one: they are judged by the plan's.

    Raises
    ------
    InvalidInput
        If either can't be read, or the plan is for another problem.
    """
    if problem_path.suffix.lower() in (".txt", ".onnx", ".pt2"):
        raise InvalidInput(
            f"{str(problem_path)!r} has neither devices nor their times; give a problem file, as 'placewright convert' "
            "writes it, or the plan itself"
        )

    unreadable: list[InvalidInput] = []

    def planned() -> Problem | None:
        try:
            return read_plan(plan_path).problem
        except InvalidInput as error:
            if "does not carry its problem" not in str(error):
                unreadable.append(error)
            return None

    try:
        found = read_any_problem(problem_path, lambda: MaxLoad() if (p := planned()) is None else p.objective)
        problem = found.problem
        if found.kind == "sheet" and (carried := planned()) is not None:
            if transfers_of(carried) == "per-device":
                problem = per_device(problem)
            problem = replace(problem, objective=carried.objective)
    except InvalidInput as not_a_problem:
        try:
            return (problem := read_plan(problem_path).problem), read_plan(plan_path, problem)
        except InvalidInput as error:
            is_plan = f"says that it is {PLAN_SCHEMA!r}" in str(not_a_problem)
            about_it = error.what.startswith(f"plan file {str(problem_path)!r}")
            raise (not_a_problem if about_it and not is_plan else error) from None
    if unreadable:
        raise unreadable[0]
    return problem, read_plan(plan_path, problem)


def given_solvers(expert: Path | None, problem: Problem) -> Mapping[str, Entry]:
    """Solvers that a command line brings with it: ``expert`` with the placement of a split file.

    Raises
    ------
    InvalidInput
        If the split can't be read, or is none of this problem.
    """
    if expert is None:
        return {}
    placement = Expert(tuple(read_split(expert, problem).device_of.tolist()))
    summary = f"the placement of {expert}"
    return {"expert": Entry(placement, False, summary, placement.supports, starts_afresh=True)}
