"""The genetic algorithm: its operators keep chromosomes legal, its plans are legal, and it finds small optima."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import placewright as pw
from placewright._kernel.genetic import breed, scatter
from placewright.algorithm import Budget, Progress
from placewright.arrays import arrays_of
from placewright.evaluate import plan_for
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.makespan.genetic import Genetic, _empty
from placewright.solvers.makespan.start import limits_of
from placewright.verify import verify
from tests.brute_force import optimum
from tests.random_problems import problems

SOME = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)


def searched(problem: Problem, generations: int, seed: int = 0, **options: object) -> Result:
    budget, rng = Budget(iterations=generations), np.random.default_rng(seed)
    return Genetic(**options)(problem, budget=budget, rng=rng)  # type: ignore[arg-type]


@SOME
@given(problems(), st.integers(0, 2**31))
def test_random_chromosomes_and_their_children_are_orders_and_placements(problem: Problem, seed: int) -> None:
    """At every chance crossed and mutated, orders stay topological, placements allowed, and units together."""
    a, rng = arrays_of(problem), np.random.default_rng(seed)
    n = len(problem.graph)
    if not a.allowed.any(axis=1).all():
        return
    parents, children = _empty(6, n), _empty(6, n)
    scatter(a.network, limits_of(a), parents, 0, rng)
    for _ in range(3):
        breed(a.network, limits_of(a), parents, children, 1.2, 1.0, 1.0, rng)
        parents, children = children, parents
        for device, order in zip(parents.device, parents.order, strict=True):
            assert sorted(order.tolist()) == list(range(n))
            position = np.argsort(order)
            assert all(position[t.producer] < position[v] for t in problem.graph.tensors for v in t.readers)
            assert problem.allowed[np.arange(n), device].all()
            assert all(len(set(device[list(members)])) == 1 for members in problem.graph.colocation)


@pytest.mark.slow
@SOME
@given(problems(most_operators=6), st.integers(0, 2**31))
def test_plans_are_legal_and_never_below_the_optimum(problem: Problem, seed: int) -> None:
    """Brute force and the independent checker agree with what 40 generations of 40 chromosomes end with."""
    best, result = optimum(problem), searched(problem, 40, seed, population=40)
    assert result.lower_bound_s == 0.0
    if result.plan is not None:
        assert verify(problem, result.plan) == ()
        assert result.value_s >= best * (1 - 1e-9)


@SOME
@given(problems(most_operators=5, contention="none", memory=False))
def test_without_contention_and_memory_sixty_generations_find_the_optimum_of_five_operators(problem: Problem) -> None:
    """With at most 3^5 placements and 5! orders, 60 generations of 100 chromosomes meet the best, whatever the seed."""
    best, result = optimum(problem), searched(problem, 60, population=100)
    assert result.value_s == pytest.approx(best, rel=1e-9) or (result.plan is None and np.isinf(best))


@SOME
@given(problems(), st.integers(0, 2**31))
def test_a_start_is_never_made_worse(problem: Problem, seed: int) -> None:
    """From any legal plan, also with no generation or a spent budget, the result is legal and at or below it."""
    rng = np.random.default_rng(seed)
    device = [int(rng.choice(np.flatnonzero(row))) if row.any() else 0 for row in arrays_of(problem).allowed]
    start = plan_for(problem, np.array(device, dtype=np.int32)[arrays_of(problem).unit_of])
    if start is None:
        return
    for budget in (Budget(iterations=5), Budget(iterations=0), Budget(0.0)):
        result = Genetic(population=10)(problem, budget=budget, rng=np.random.default_rng(seed), incumbent=start)
        assert result.value_s <= start.value_s
        assert verify(problem, result.require_plan()) == ()


def wide(n: int = 40) -> Problem:
    """Layers of four operators, each reads two of the layer before; every device is best at some."""
    rng = np.random.default_rng(3)
    tensors = [
        pw.Tensor(f"t{v}", v, tuple(sorted({int(x) for x in rng.integers(v // 4 * 4 + 4, v // 4 * 4 + 8, 2)})), 10)
        for v in range(n - 4)
    ]
    graph = pw.OperatorGraph([pw.Operator(f"v{k}", weight_bytes=10) for k in range(n)], tensors)
    cluster = pw.Cluster(
        [pw.Device(f"d{i}", memory_bytes=300) for i in range(3)], [pw.Link(0.01, 100.0, link_class="same-host")]
    )
    return pw.Problem(graph, cluster, rng.uniform(0.1, 2.0, (n, 3)), pw.Makespan("port"))


def test_more_generations_are_better_and_the_same_seed_gives_the_same_plan() -> None:
    """The elite survives: values fall with the generations; a seed and a number of generations fix every start time."""
    problem = wide()
    values = [searched(problem, k, population=30).value_s for k in (0, 20, 200)]
    assert values[0] > values[1] > values[2]
    a, b = (searched(problem, 20, population=30).require_plan() for _ in range(2))
    assert a.value_s == b.value_s
    assert a.device_of.tolist() == b.device_of.tolist()
    assert a.schedule.start_s.tolist() == b.schedule.start_s.tolist()
    assert a.provenance.parameters == {"generations": 20}


def test_a_target_and_a_cancelled_budget_end_the_search() -> None:
    """It stops at a value that is good enough, and as soon as another thread cancels."""
    problem = wide()
    assert searched(problem, 50, population=30, target_s=1e9).require_plan().provenance.parameters["generations"] == 0
    budget = Budget(iterations=10**9, cancelled=threading.Event())
    reports: list[Progress] = []

    def cancel(progress: Progress) -> None:
        reports.append(progress)
        if len(reports) == 3:
            budget.cancelled.set()

    result = Genetic(population=30)(problem, budget=budget, rng=np.random.default_rng(0), on_progress=cancel)
    assert [r.value_s for r in reports] == sorted((r.value_s for r in reports), reverse=True)
    assert result.value_s == reports[-1].value_s
