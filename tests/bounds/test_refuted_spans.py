"""Wide spans refuted time after time: below the optimum of every small problem, and what no other bound sees."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings

from placewright import Cluster, Device, Link, Operator, OperatorGraph, Problem, Tensor
from placewright._kernel.span_refute import FOUND, REFUTED, UNKNOWN, refute
from placewright._kernel.span_search import scratch_for
from placewright.algorithm import Budget
from placewright.bounds.makespan.refuted_spans import RefutedSpans
from placewright.bounds.makespan.span import Reach, alike_devices, span_between
from placewright.solvers.single_device import single_device
from tests.bounds.test_makespan_bounds import some_problems
from tests.brute_force import optimum

ABOVE = 1.0 + 1e-9


def bound(problem: Problem, searches: int = 60, widest: int = 100) -> float:
    algorithm = RefutedSpans(widest=widest, tried=2)
    return algorithm(problem, budget=Budget(iterations=searches), rng=np.random.default_rng(0)).lower_bound_s


def search(problem: Problem, limit: float, nodes: int) -> tuple[int, int]:
    """Search for a placement of the whole network; outcome, and how often it had to go on."""
    span = span_between(problem, None, None, Reach.of(problem).between(None, None))
    U, D = span.allowed.shape
    stack, size, calls = np.zeros((U * D + 2, U), dtype=np.int32), 1, 0
    stack[0] = span.allowed @ (1 << np.arange(D))
    own = span.network._replace(processing=span.network.processing.copy())
    outcome = UNKNOWN
    while outcome == UNKNOWN:
        outcome, size = refute(
            own, span.network.processing, span.unit_ptr, span.member, alike_devices(problem), limit, stack, size,
            nodes, 3, scratch_for(span.network),
        )  # fmt: skip
        calls += 1
    return outcome, calls


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(some_problems())
def test_bound_is_below_the_optimum_of_every_small_problem(problem: Problem) -> None:
    """Every contention, cuts, classes, pins, tables and alike devices; spans joined to one, or not at all."""
    best = optimum(problem)
    assert bound(problem) <= best * ABOVE
    assert bound(problem, searches=20, widest=1) <= best * ABOVE


@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(some_problems())
def test_no_time_that_a_schedule_meets_is_refuted(problem: Problem) -> None:
    """The search says FOUND at the optimum, by itself and in pieces of one node."""
    best = optimum(problem)
    if np.isfinite(best):
        assert search(problem, best, 10_000)[0] == FOUND
        assert search(problem, best, 1)[0] == FOUND


def two_rows(width: int) -> Problem:
    """Two rows of ``width`` operators of 1 s between two that take nothing; each sends to the next of both rows.

    A transfer takes 1 s on the one bus, so that to use both devices costs more than it brings: each operator that
    is not where its reader is makes the path one second longer.
    """
    names = [f"{row}{k}" for k in range(width) for row in "ab"]
    operators = [Operator("in"), *(Operator(v) for v in names), Operator("out")]
    tensors = [Tensor("t0", 0, (1, 2), 1)]
    for k in range(width - 1):
        below = (3 + 2 * k, 4 + 2 * k)
        tensors += [Tensor(f"a{k}", 1 + 2 * k, below, 1), Tensor(f"b{k}", 2 + 2 * k, below, 1)]
    last = len(operators) - 1
    tensors += [Tensor("ya", last - 2, (last,), 1), Tensor("yb", last - 1, (last,), 1)]
    pair = Cluster([Device("g0"), Device("g1")], [Link(0, 1, link_class="same-host", channel="bus")])
    return Problem(OperatorGraph(operators, tensors), pair, [[0.0] * 2, *[[1.0] * 2] * (2 * width), [0.0] * 2])


def test_sees_more_than_paths_and_halves_of_the_work() -> None:
    """Two rows of four: a path takes 4 s, half of the work 4 s, and 6.9 s are refuted all the same.

    On one device the eight operators take 8 s, so that 8 s can't be refuted.
    """
    problem = two_rows(4)
    assert search(problem, 6.9, 10_000)[0] == REFUTED
    assert search(problem, 8.0, 10_000)[0] == FOUND


def test_a_search_in_pieces_ends_as_in_one() -> None:
    """The nodes that are left stand on the stack."""
    problem = two_rows(4)
    outcome, calls = search(problem, 6.9, 1)
    assert outcome == REFUTED
    assert calls > 1


def test_more_searches_never_lower_the_bound() -> None:
    """And the same budget gives the same bound."""
    problem = two_rows(3)
    values = [bound(problem, searches=k) for k in (1, 5, 20)]
    assert values == sorted(values)
    assert bound(problem, searches=20) == values[-1]


def test_two_networks_in_a_row_take_twice_as_long() -> None:
    """Joined by one operator each has its span, and the bound is 0.998 of the sum or more: leaps end at 0.0005."""
    one = two_rows(4)
    n = len(one.graph)
    operators = [*one.graph.operators, *(replace(v, name=f"{v.name}'") for v in one.graph.operators[1:])]
    tensors = list(one.graph.tensors)
    tensors += [
        Tensor(f"{t.name}'", t.producer + n - 1, tuple(x + n - 1 for x in t.readers), t.size_bytes)
        for t in one.graph.tensors
    ]
    times = np.vstack([one.times.processing_s, one.times.processing_s[1:]])
    both = Problem(OperatorGraph(operators, tensors), one.cluster, times)
    assert bound(both, searches=200, widest=8) >= 0.998 * 2.0 * bound(one, searches=100)
    assert bound(both, searches=200, widest=8) <= 16.0  # all on one device


def test_stops_at_the_value_of_the_incumbent() -> None:
    """Nothing above the plan's value is claimed, and with it in hand the bound comes no further than that."""
    problem = two_rows(3)
    plan = single_device(problem, budget=Budget(), rng=np.random.default_rng(0)).plan
    assert plan is not None
    assert plan.value_s == 6.0
    found = RefutedSpans()(problem, budget=Budget(iterations=60), rng=np.random.default_rng(0), incumbent=plan)
    assert 4.9 < found.lower_bound_s <= 6.0
