"""Moirai's integer program on HiGHS against brute force, in each contention."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from placewright.algorithm import Budget
from placewright.cluster import Cluster, Device, Link
from placewright.coarsen import per_edge
from placewright.evaluate import plan_for
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.objective import Makespan
from placewright.plan import Plan
from placewright.problem import Problem, Times
from placewright.solvers import SOLVERS
from placewright.solvers.makespan.moirai_milp import MoiraiMilp
from placewright.solvers.makespan.moirai_model import build
from placewright.verify import verify
from tests.brute_force import optimum
from tests.random_problems import problems

pytestmark = pytest.mark.slow

SOME = settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)
NODES = 10_000


def _solved(problem: Problem, incumbent: Plan | None = None):  # type: ignore[no-untyped-def]
    budget = Budget(iterations=NODES)
    return MoiraiMilp()(problem, budget=budget, rng=np.random.default_rng(0), incumbent=incumbent)


def _exact(problem: Problem) -> None:
    best = optimum(problem)
    result = _solved(problem)
    if np.isinf(best):
        assert result.plan is None
        return
    assert result.value_s == pytest.approx(best, rel=1e-8, abs=1e-8)
    assert best * (1 - 1e-6) <= result.lower_bound_s <= best
    assert verify(problem, result.require_plan()) == ()


@SOME
@given(problems(most_operators=6, contention="port"))
def test_under_port_contention_it_equals_brute_force(problem: Problem) -> None:
    """As published: the plan is worth the optimum, and the bound meets it and is never above it."""
    _exact(problem)


@SOME
@given(problems(most_operators=6, contention="link").map(per_edge))
def test_under_link_contention_it_equals_brute_force(problem: Problem) -> None:
    """The same where each link carries one transfer at a time, here with one transfer for each edge."""
    _exact(problem)


@SOME
@given(problems(most_operators=6, contention="none"))
def test_without_contention_it_equals_brute_force(problem: Problem) -> None:
    """The same where transfers never wait."""
    _exact(problem)


@SOME
@given(problems(most_operators=6))
def test_a_plan_is_a_solution_of_the_program(problem: Problem) -> None:
    """Every row holds for the columns that a plan gives, and the plan comes back from them with no greater value."""
    plan = plan_for(problem, problem.allowed.argmax(axis=1))
    if plan is None or plan.value_s == 0.0:
        return
    program = build(problem, plan.value_s, 1000.0)
    values = np.array(program.values_of(plan))
    for terms, low, high in program.rows:
        total = sum(c * values[k] for k, c in terms)
        assert low - 1e-6 <= total <= high + 1e-6
    device = program.placement(values)
    assert device.tolist() == plan.device_of.tolist()
    again = plan_for(problem, device, schedule=program.schedule(values, device))
    assert again is not None and again.value_s <= plan.value_s * (1 + 1e-9)


def _two_ports() -> Problem:
    """a and b, which only d0 can run in 1 s each, feed c and d, which only d1 can; a transfer takes 3 s.

    d0 is free at 2; its port sends from 1 to 4 and from 4 to 7, so that the last reader ends at 8; without contention
    the second transfer starts at 2, and the last reader ends at 6.
    """
    graph = OperatorGraph([Operator(v) for v in "abcd"], [Tensor("x", 0, (2,)), Tensor("y", 1, (3,))])
    two = Cluster([Device("d0"), Device("d1")], [Link(3.0, 1.0, link_class="same-host")])
    inf = float("inf")
    return Problem(graph, two, Times(np.array([[1, inf], [1, inf], [inf, 1], [inf, 1]])), Makespan("port"))


def test_two_transfers_out_of_one_port() -> None:
    """They follow each other: 8 s; without contention 6 s."""
    problem = _two_ports()
    assert _solved(problem).value_s == 8.0
    free = Problem(problem.graph, problem.cluster, problem.times, Makespan("none"))
    assert _solved(free).value_s == 6.0


def test_it_is_never_worse_than_its_incumbent_and_is_seeded() -> None:
    """Cancelled at once it returns the incumbent; two runs with one seed give the same bytes."""
    problem = _two_ports()
    plan = plan_for(problem, [0, 0, 1, 1])
    budget = Budget(iterations=1)
    budget.cancelled.set()
    stopped = MoiraiMilp()(problem, budget=budget, rng=np.random.default_rng(0), incumbent=plan)
    assert plan is not None and stopped.value_s == plan.value_s and stopped.lower_bound_s <= plan.value_s
    first, second = _solved(problem), _solved(problem)
    assert first.lower_bound_s == second.lower_bound_s
    assert first.require_plan().schedule.start_s.tolist() == second.require_plan().schedule.start_s.tolist()


def test_what_is_too_large_is_refused() -> None:
    """With the number of rows, before the program is built."""
    graph = OperatorGraph([Operator(f"v{k}") for k in range(600)])
    problem = Problem(graph, _two_ports().cluster, np.ones((600, 2)))
    reason = SOLVERS["makespan"]["moirai-milp"].supports(problem)
    assert reason is not None and reason.startswith("its program could have 720,000 rows, more than 500,000")
