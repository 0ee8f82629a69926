"""Decision diagrams against brute force: exact where they know the whole model, and bounds elsewhere."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from placewright.algorithm import Budget
from placewright.cluster import Cluster, Device, Link
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.objective import Contention, Makespan
from placewright.problem import Problem
from placewright.solvers import SOLVERS
from placewright.solvers.makespan.decision_diagram import DecisionDiagram
from placewright.verify import verify
from tests.brute_force import optimum
from tests.random_problems import problems

MANY = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)
SLACK = 1e-8


def narrow(operators: int, devices: int, contention: Contention = "none", seed: int = 0) -> Problem:
    """Layers of one to three operators that read one or two of the layer before; transfers as long as computing."""
    rng = np.random.default_rng(seed)
    layers = [[0]]
    while layers[-1][-1] + 1 < operators:
        first = layers[-1][-1] + 1
        layers.append(list(range(first, min(operators, first + int(rng.integers(1, 4))))))
    readers: list[set[int]] = [set() for _ in range(operators)]
    for above, layer in itertools.pairwise(layers):
        for v in layer:
            for u in rng.choice(above, size=min(2, len(above)), replace=False):
                readers[int(u)].add(v)
    tensors = [Tensor(f"t{u}", u, tuple(sorted(r)), int(rng.integers(30, 90))) for u, r in enumerate(readers) if r]
    cluster = Cluster([Device(f"d{i}") for i in range(devices)], [Link(0.0, 10.0, link_class="same-host")])
    times = rng.integers(8, 80, (operators, devices)) / 8
    return Problem(
        OperatorGraph([Operator(f"v{k}") for k in range(operators)], tensors), cluster, times, Makespan(contention)
    )


def solved(problem: Problem, width: int, rounds: int = 2):  # type: ignore[no-untyped-def]
    """Rounds of the solver from its own start."""
    return DecisionDiagram(width=width)(problem, budget=Budget(iterations=rounds), rng=np.random.default_rng(0))


@MANY
@given(problems(most_operators=6, contention="none", memory=False))
def test_without_contention_the_bound_is_never_above_the_optimum_and_meets_it_without_cuts(problem: Problem) -> None:
    """Any width bounds, with merged states too; wide ones are exact where nothing is left out of the model."""
    best = optimum(problem)
    for width in (1, 3, 200):
        found = solved(problem, width)
        assert found.lower_bound_s <= best
        if found.plan is not None:
            assert verify(problem, found.plan) == ()
            assert found.value_s >= best * (1 - SLACK)
    alone = not problem.cut_s.any() and not problem.graph.colocation
    if np.isfinite(best) and alone:
        assert found.value_s == pytest.approx(best, rel=SLACK, abs=SLACK)
        assert found.lower_bound_s >= best * (1 - 1e-6)


@pytest.mark.parametrize("contention", ["link", "port"])
def test_what_the_model_leaves_out_only_delays(contention: str) -> None:
    """Contention, memory, cuts and classes are not modelled: the bound stays below the optimum with them."""

    @settings(MANY, max_examples=50)
    @given(problems(most_operators=5, contention=contention))
    def holds(problem: Problem) -> None:
        best = optimum(problem)
        for width in (2, 50):
            found = solved(problem, width)
            assert found.lower_bound_s <= best
            assert found.plan is None or verify(problem, found.plan) == ()

    holds()


def test_twenty_operators_are_proved_in_one_wide_round_and_bounded_in_a_narrow_one() -> None:
    """Narrow diagrams merge states, so their bound is lower, and never above the optimum that a wide one proves."""
    problem = narrow(20, 3)
    wide, slim = solved(problem, 400, 1), solved(problem, 2, 1)
    assert wide.lower_bound_s >= wide.value_s * (1 - 1e-6)
    assert 0.5 * wide.value_s < slim.lower_bound_s < wide.value_s * (1 - 1e-6)
    assert slim.value_s >= wide.value_s * (1 - SLACK)


def test_a_hundred_narrow_operators_are_bounded_within_a_twentieth() -> None:
    """Under port contention too, which only the plan knows."""
    found = solved(narrow(100, 2, "port"), 16, 2)
    assert found.gap < 0.05


def test_the_same_rounds_give_the_same_plan() -> None:
    """Nothing is drawn at random, and a better incumbent is never lost."""
    problem = narrow(30, 3, "link")
    first, second = solved(problem, 4), solved(problem, 4)
    assert first.lower_bound_s == second.lower_bound_s
    assert first.require_plan().device_of.tolist() == second.require_plan().device_of.tolist()
    again = DecisionDiagram(width=1)(
        problem, budget=Budget(iterations=1), rng=np.random.default_rng(0), incumbent=first.plan
    )
    assert again.value_s <= first.value_s


def test_a_wide_network_is_refused_with_its_number_of_ideals() -> None:
    """Sixteen operators without edges have 2^16 = 65,536 ideals."""
    problem = Problem(OperatorGraph([Operator(f"v{k}") for k in range(16)]), Cluster([Device("one")]), np.ones((16, 1)))
    reason = SOLVERS["makespan"]["decision-diagram"].supports(problem)
    assert reason is not None and "20,000 ideals" in reason


def test_a_cancelled_budget_returns_the_start_and_no_bound() -> None:
    """Nothing is claimed from a pass that did not end."""
    budget = Budget()
    budget.cancelled.set()
    found = DecisionDiagram()(narrow(12, 2), budget=budget, rng=np.random.default_rng(0))
    assert found.plan is not None and found.lower_bound_s == 0.0
