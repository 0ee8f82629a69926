"""Search and proof at the same time: small problems solved to proven optimality, and ended when asked."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import placewright as pw
from placewright.algorithm import Budget
from placewright.problem import Problem
from placewright.solvers.max_load.pair_search import PairSearch
from placewright.strategy.side_by_side import SideBySide
from placewright.verify import verify
from tests.max_load.brute_force import optimum
from tests.max_load.random_problems import max_load_problems


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)
@given(max_load_problems(contiguity="any", training="sum", overlap="none", replicate=False, channels=False))
def test_value_and_bound_hold_the_optimum_between_them(problem: Problem) -> None:
    """Two threads, each with what the other knows: a verified plan, and a bound that is one."""
    if PairSearch().supports(problem) is not None:
        return
    best = optimum(problem)
    result = SideBySide(patience_s=0.05)(problem, budget=Budget(1.0), rng=np.random.default_rng(0))
    assert result.lower_bound_s <= best <= result.value_s * (1 + 1e-9)
    assert result.plan is None or verify(problem, result.plan) == ()


def cycle(n: int) -> Problem:
    """Operators of different times, each read by the next two, on three devices."""
    rng = np.random.default_rng(1)
    graph = pw.OperatorGraph(
        [pw.Operator(f"v{k}") for k in range(n)],
        [pw.Tensor(f"t{k}", k, tuple(range(k + 1, min(n, k + 3))), int(rng.integers(1, 5))) for k in range(n - 1)],
    )
    cluster = pw.Cluster([pw.Device(f"d{i}") for i in range(3)], [pw.Link(0.0, 10.0, link_class="same-host")])
    return Problem(graph, cluster, rng.uniform(0.1, 2.0, (n, 1)) * np.ones((1, 3)), pw.MaxLoad("any"))


def test_solving_ends_with_a_proof() -> None:
    """Twenty operators: optimal long before the budget is spent, and both parts are named."""
    result = pw.solve(cycle(20), budget=60)
    assert result.status.value == "optimal"
    assert result.runtime_s < 30
    assert "configuration" in result.bounds and "pair-search" in result.alternatives


def test_cancelling_ends_both() -> None:
    """As Ctrl-C does: the best so far is returned at once."""
    budget = Budget(600.0)
    threading.Timer(0.5, budget.cancelled.set).start()
    begun = time.monotonic()
    result = SideBySide()(cycle(400), budget=budget, rng=np.random.default_rng(0))
    assert time.monotonic() - begun < 20
    assert result.plan is not None


def test_with_iterations_alone_nothing_depends_on_the_clock() -> None:
    """One after the other, from one seed: the same plan and bound twice."""
    found = [SideBySide()(cycle(15), budget=Budget(iterations=5), rng=np.random.default_rng(2)) for _ in range(2)]
    assert found[0].value_s == found[1].value_s
    assert found[0].lower_bound_s == found[1].lower_bound_s
    assert found[0].require_plan().device_of.tolist() == found[1].require_plan().device_of.tolist()


@pytest.mark.parametrize("contiguity", ["contiguous", "convex"])
def test_bounds_of_placements_without_order_serve_those_with_one(contiguity: str) -> None:
    """The relaxation is valid for both; solving ends in a plan whose value it does not exceed."""
    problem = Problem(
        cycle(12).graph,
        cycle(12).cluster,
        cycle(12).times,
        pw.MaxLoad(contiguity),  # type: ignore[arg-type]
    )
    result = pw.solve(problem, budget=20)
    assert result.lower_bound_s <= result.value_s
    assert result.status.value == "optimal"
