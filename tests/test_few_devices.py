"""The best few devices, against every set of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings

from placewright.algorithm import Budget
from placewright.cluster import Cluster, Device, Link
from placewright.errors import InvalidInput
from placewright.evaluate import plan_for
from placewright.few_devices import only_on, solve_on_few
from placewright.graph import Operator, OperatorGraph
from placewright.problem import Problem
from placewright.solve import solve
from tests.brute_force import optimum
from tests.random_problems import problems


def best_on(problem: Problem, devices: tuple[int, ...]) -> float:
    """Least value of all placements and orders on some devices; ``inf`` where none fits."""
    here = np.isin(np.arange(len(problem.cluster)), devices)
    times = np.where(here, problem.times.processing_s, np.inf)
    if np.isinf(times).all(axis=1).any():
        return float("inf")
    alone = replace(problem.times, processing_s=times)
    return optimum(Problem(problem.graph, problem.cluster, alone, problem.objective))


@settings(max_examples=12)
@given(problems(most_operators=4, contention="none", memory=False))
def test_bounds_hold_for_every_set_and_the_best_set_is_found(problem: Problem) -> None:
    """No set of so many devices has a plan below the bound; where the plan is proved, no set has a better one."""
    for most in range(1, len(problem.cluster) + 1):
        few = solve_on_few(problem, most, budget=Budget(float("inf"), iterations=100))
        best = min(best_on(problem, row) for row in combinations(range(len(problem.cluster)), most))
        assert few.lower_bounds_s[most] <= best * (1 + 1e-9)
        plan = few.result.plan
        if plan is None:
            assert best == float("inf")
            continue
        assert len(plan.devices_used) <= most
        assert plan_for(few.problem, plan.device_of) is not None
        assert plan.value_s >= best * (1 - 1e-9)


def independent(times: list[float]) -> Problem:
    """Six equal operators that nothing joins, on devices that need so long for each."""
    graph = OperatorGraph([Operator(f"v{k}") for k in range(6)])
    cluster = Cluster([Device(f"d{i}") for i in range(len(times))], [Link(0.0, 1e9, link_class="same-host")])
    return Problem(graph, cluster, np.tile(times, (6, 1)))


@pytest.mark.parametrize(
    ("min_gain", "used"),
    [
        (0.0, 3),  # 6 s on one, 3 s on two, 2 s on three
        (0.3, 3),  # 3 s are half of 6 s, 2 s a third less than 3 s
        (0.4, 2),  # a third is too little, and 2 s are no 0.36 of 6 s
        (0.6, 1),  # half is too little, and a third of 6 s no 0.16
    ],
)
def test_a_further_device_is_used_where_it_gains_enough(min_gain: float, used: int) -> None:
    """Each further device must save the wished share of the time that is left."""
    few = solve_on_few(independent([1.0, 1.0, 1.0]), min_gain=min_gain, budget=Budget(float("inf"), iterations=100))
    assert few.result.plan is not None
    assert len(few.result.plan.devices_used) == used
    if min_gain:
        assert few.values_s == {1: 6.0, 2: 3.0, 3: 2.0}
        assert f"{min_gain:.0%} a device" in few.sentence or used == 3


def test_the_problem_that_is_returned_is_the_one_that_was_solved() -> None:
    """Other devices are forbidden in it, also where their names have signs that patterns know."""
    graph = OperatorGraph([Operator("a")])
    cluster = Cluster([Device("gpu[0]"), Device("gpu[1]"), Device("*")])
    problem = Problem(graph, cluster, [[2.0, 1.0, 3.0]])
    assert only_on(problem, (1,)).allowed.tolist() == [[False, True, False]]
    assert only_on(problem, (0, 2)).allowed.tolist() == [[True, False, True]]


def test_alike_devices_are_one_choice() -> None:
    """Of 40 alike devices there is one set of two; unlike ones that make too many sets are refused."""
    few = solve_on_few(independent([1.0] * 40), 2, budget=Budget(float("inf"), iterations=10))
    assert few.result.value_s == pytest.approx(3.0)
    unlike = [1.0 + k for k in range(40)]
    with pytest.raises(InvalidInput, match="more than 256 sets of 20 devices that differ"):
        solve_on_few(independent(unlike), 20)


def test_few_of_many_unlike_devices_are_found_at_once() -> None:
    """One of 40 has 40 sets, and 39 of 40 as many; to go through all 2^40 subsets for them would take days."""
    unlike = independent([1.0 + k for k in range(40)])
    one = solve_on_few(unlike, 1, solver="single-device", budget=Budget(float("inf"), iterations=1))
    assert one.result.value_s == pytest.approx(6.0)
    assert one.sentence.startswith("chosen of 40 devices: d0 ")
    all_but_one = solve_on_few(unlike, 39, solver="single-device", budget=Budget(float("inf"), iterations=1))
    assert all_but_one.result.value_s == pytest.approx(6.0)


def test_a_set_that_is_infeasible_says_nothing_of_another_without_a_plan() -> None:
    """Two of three devices hold all 200 B, which a heuristic does not find; each other two are too small."""
    sizes = [27, 26, 23, 21, 19, 17, 16, 14, 13, 12, 7, 5]  # 27 + 23 + 19 + 14 + 12 + 5 = 100
    graph = OperatorGraph([Operator(f"v{k}", weight_bytes=size) for k, size in enumerate(sizes)])
    devices = [Device("x", memory_bytes=100), Device("y", memory_bytes=100), Device("z", memory_bytes=1)]
    cluster = Cluster(devices, [Link(0.0, 1e9, link_class="same-host")])
    problem = Problem(graph, cluster, np.ones((len(sizes), 3)))
    few = solve_on_few(problem, 2, solver="etf", budget=0)
    assert few.result.plan is None and not few.result.infeasible
    assert [wish.device for wish in few.problem.wishes] == ["z"]


@pytest.mark.parametrize(("most", "min_gain"), [(0, 0.0), (4, 0.0), (None, 1.0), (None, -0.1)])
def test_wishes_out_of_range(most: int | None, min_gain: float) -> None:
    """The limit is named."""
    with pytest.raises(InvalidInput, match="is not between"):
        solve_on_few(independent([1.0, 1.0, 1.0]), most, min_gain=min_gain)


def test_a_plan_to_start_from_is_never_lost() -> None:
    """Without any budget the plan that was given is returned, and stands among the alternatives."""
    problem = independent([1.0, 1.0])
    start = plan_for(problem, [0, 1, 0, 1, 0, 1])
    assert start is not None
    result = solve(problem, budget=0, start=start)
    assert result.value_s == pytest.approx(3.0)
    assert result.alternatives["given"] == pytest.approx(3.0)


def test_a_plan_that_breaks_a_rule_is_no_start() -> None:
    """It is passed over, and told so."""
    problem = Problem(OperatorGraph([Operator("a")]), Cluster([Device("x"), Device("y")]), [[1.0, np.inf]])
    start = plan_for(Problem(problem.graph, problem.cluster, [[1.0, 1.0]]), [1])
    assert start is not None
    result = solve(problem, budget=1, start=start)
    assert result.value_s == 1.0
    assert result.alternatives["given"] == float("inf")
