"""The sentence that a page is titled with, and its bar."""

from __future__ import annotations

import re

import numpy as np

from placewright.cluster import Cluster, Device
from placewright.graph import Operator, OperatorGraph
from placewright.objective import MaxLoad
from placewright.problem import Problem
from placewright.report.answer import answer, proof_bar
from placewright.result import Result

from .pipelines import chain, planned
from .two_branches import measured, problem, solved


def test_the_value_the_devices_and_the_distance_are_told():
    """6.022 ms against 5 ms is 20.44% longer; a run took 1.25 times that."""
    given = problem()
    result, _ = solved(given, [0, 1, 0, 0], bound=0.005)
    assert (
        answer(given, result, "fork") == "fork takes 6.02 ms on fast and slow, at most 20.4% longer than the best plan"
    )
    runs = [measured(given, result.plan)]
    expected = "fork took 7.53 ms on fast and slow: the prediction is 6.02 ms, at most 20.4% longer than the best plan"
    assert answer(given, result, "fork", runs) == expected


def test_a_proved_plan_on_one_device_says_both():
    """1 + 2 + 2 + 1 ms, and the bound is the value."""
    given = problem()
    result, _ = solved(given, [0, 0, 0, 0], bound=0.006)
    assert answer(given, result, "fork, big") == "fork, big: it takes 6 ms on fast alone, and no plan is faster"


def test_a_pipeline_tells_its_rate():
    """4.5 ms a sample are 222 samples/s; with 4.32 ms it would be 4% more, so these are 4% fewer."""
    given, result, _ = planned(chain(MaxLoad()), [0, 0, 1, 2], bound=0.00432)
    expected = "chain makes 222 samples/s on gpu0, gpu1 and gpu2, at most 4% fewer than the best plan"
    assert answer(given, result, "chain") == expected


def test_many_devices_are_counted():
    """Six operators on six devices, which nobody wants listed."""
    devices = [Device(f"gpu{k}") for k in range(6)]
    given = Problem(OperatorGraph([Operator(v) for v in "abcdef"], []), Cluster(devices), np.full((6, 6), 1e-3))
    result, _ = solved(given, [0, 1, 2, 3, 4, 5])
    assert answer(given, result, "wide") == "wide takes 1 ms on 6 devices"


def test_no_plan_is_told_too():
    """Proved impossible, or not found."""
    given = problem()
    assert answer(given, Result(infeasible="too big"), "fork") == "No plan can run fork"
    assert answer(given, Result(), "fork") == "No plan for fork was found within the budget"


def test_the_bar_ends_at_the_bound():
    """5 of 6.022 ms are 83.03%; without a bound there is no bar."""
    result, _ = solved(problem(), [0, 1, 0, 0], bound=0.005)
    assert re.findall(r"width:([\d.]+)%", proof_bar(result)) == ["83.03"]
    assert proof_bar(solved(problem(), [0, 1, 0, 0])[0]) == ""
