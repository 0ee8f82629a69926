"""Bounds of the max-load against the optimum by trying everything, and the fractional load by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from placewright.algorithm import Budget
from placewright.bounds.divided_load import divided_load
from placewright.bounds.max_load.fractional_load import fractional_load
from placewright.cluster import Cluster, Device
from placewright.graph import Operator, OperatorGraph
from placewright.objective import MaxLoad
from placewright.problem import Problem
from placewright.result import Result
from tests.max_load.brute_force import optimum
from tests.max_load.random_problems import max_load_problems

MANY = settings(
    max_examples=500,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)


def bound_of(problem: Problem) -> Result:
    """Run the fractional load."""
    return fractional_load(problem, budget=Budget(60), rng=np.random.default_rng(0))


@MANY
@given(max_load_problems())
def test_the_fractional_load_is_not_above_the_optimum(problem: Problem) -> None:
    """Whatever the options, replicas among them; and it calls infeasible only what is."""
    best, result = optimum(problem), bound_of(problem)
    assert result.lower_bound_s <= best
    assert not (result.infeasible and np.isfinite(best))
    assert result.plan is None


def test_units_are_divided_among_unlike_devices() -> None:
    """Times 1 and 3: the fast device takes three quarters of both operators, 2 x 0.75; the slow one 2 x 0.25 x 3."""
    graph = OperatorGraph([Operator("a"), Operator("b")])
    problem = Problem(graph, Cluster([Device("fast"), Device("slow")]), [[1.0, 3.0], [1.0, 3.0]], MaxLoad("any"))
    assert bound_of(problem).lower_bound_s == pytest.approx(1.5, rel=1e-9)
    assert bound_of(problem).lower_bound_s < 1.5


def test_memory_moves_work_to_the_slow_device() -> None:
    """The fast device holds 4 of 10 bytes; the other 6 take 0.6 of 2 x 3 s on the slow one."""
    graph = OperatorGraph([Operator("a", weight_bytes=5), Operator("b", weight_bytes=5)])
    cluster = Cluster([Device("fast", memory_bytes=4), Device("slow")])
    problem = Problem(graph, cluster, [[1.0, 3.0], [1.0, 3.0]], MaxLoad("any"))
    assert bound_of(problem).lower_bound_s == pytest.approx(3.6, rel=1e-9)


def test_too_little_memory_is_infeasible() -> None:
    """Ten bytes don't fit two devices of four, even divided."""
    graph = OperatorGraph([Operator("a", weight_bytes=5), Operator("b", weight_bytes=5)])
    cluster = Cluster([Device("g0", memory_bytes=4), Device("g1", memory_bytes=4)])
    result = bound_of(Problem(graph, cluster, np.ones((2, 2)), MaxLoad("any")))
    assert "10 B, doesn't fit" in result.infeasible
    assert result.bounds == {}


def test_without_time_for_the_linear_program_there_still_is_a_bound() -> None:
    """Multiplicative weights alone bound four operators on two alike devices by half their time, or a little less."""
    spent = Budget(0.0)
    value = divided_load(np.ones((4, 2)), np.zeros(4), np.full(2, np.inf), spent).lower_bound_s
    assert 1.9 <= value <= 2.0
