"""Results: status and gap by hand, merging, insisting on a plan."""

from __future__ import annotations

import math

import numpy as np
import pytest

from placewright.errors import NoPlan
from placewright.plan import Plan, Schedule
from placewright.result import Result, Status


def plan(value_s: float) -> Plan:
    return Plan(np.zeros(1), Schedule(np.zeros(1), np.array([value_s])), value_s)


@pytest.mark.parametrize(
    ("result", "status", "gap"),
    [
        (Result(), Status.UNKNOWN, 1.0),
        (Result(lower_bound_s=3.0), Status.UNKNOWN, 1.0),
        (Result(infeasible="too large", lower_bound_s=math.inf), Status.INFEASIBLE, 1.0),
        (Result(plan(4.0), 3.0), Status.FEASIBLE, 0.25),
        (Result(plan(4.0), 4.0), Status.OPTIMAL, 0.0),
        (Result(plan(4.0), 4.0 - 3.9e-6), Status.OPTIMAL, 0.975e-6),
        (Result(plan(4.0), 4.0 - 4.1e-6), Status.FEASIBLE, 1.025e-6),
        (Result(plan(0.0)), Status.OPTIMAL, 0.0),
    ],
)
def test_status_and_gap(result: Result, status: Status, gap: float) -> None:
    """(objective - bound) / objective; up to 1e-6 counts as optimal; a plan of 0 s can't be improved."""
    assert result.status is status and result.gap == pytest.approx(gap, rel=1e-6)


def test_merge_keeps_the_best_of_each() -> None:
    """The better plan with its solver, the higher bound, all bounds and alternatives, the sum of runtimes."""
    first = Result(plan(5.0), 1.0, "", 2.0, "heft", {"path": 1.0}, {"heft": 5.0})
    second = Result(plan(4.0), 0.0, "", 3.0, "annealing", {"load": 0.5}, {"annealing": 4.0}, interrupted=True)
    for merged in (first.merge(second), second.merge(first)):
        assert merged.value_s == 4.0 and merged.solver == "annealing" and merged.lower_bound_s == 1.0
        assert merged.runtime_s == 5.0 and merged.interrupted
        assert merged.bounds == {"path": 1.0, "load": 0.5}
        assert merged.alternatives == {"heft": 5.0, "annealing": 4.0}


def test_on_a_tie_the_earlier_plan_stays() -> None:
    """So that the order of solvers, not chance, decides."""
    assert Result(plan(4.0), solver="first").merge(Result(plan(4.0), solver="second")).solver == "first"


def test_merging_a_bound_closes_the_gap() -> None:
    """A heuristic's plan and a bound's proof are an optimal result together."""
    merged = Result(plan(4.0), solver="heft").merge(Result(lower_bound_s=4.0, solver="path"))
    assert merged.status is Status.OPTIMAL and merged.solver == "heft"


def test_a_name_keeps_its_higher_bound_in_whichever_order() -> None:
    high, low = Result(lower_bound_s=3.0, bounds={"path": 3.0}), Result(lower_bound_s=1.0, bounds={"path": 1.0})
    assert high.merge(low).bounds == low.merge(high).bounds == {"path": 3.0}


def test_a_reason_of_infeasibility_survives_a_merge() -> None:
    """From either side."""
    why = Result(infeasible="too large", lower_bound_s=math.inf)
    assert Result().merge(why).status is why.merge(Result()).status is Status.INFEASIBLE


def test_require_plan() -> None:
    """The plan, or an error whose exit code tells infeasible (3) from out of budget (4)."""
    made = plan(1.0)
    assert Result(made).require_plan() is made
    with pytest.raises(NoPlan, match=r"^too large$") as caught:
        Result(infeasible="too large").require_plan()
    assert caught.value.infeasible and caught.value.exit_code == 3
    with pytest.raises(NoPlan, match="the budget was spent before a plan was found") as caught:
        Result(lower_bound_s=1.0).require_plan()
    assert not caught.value.infeasible and caught.value.exit_code == 4
