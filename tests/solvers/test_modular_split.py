"""Splitting at operators that every path passes, against brute force and against the search without splitting."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import placewright as pw
from placewright.algorithm import Budget
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.objective import Makespan
from placewright.problem import Problem, Times
from placewright.solvers import SOLVERS
from placewright.solvers.makespan.cp_sat import CpSat
from placewright.solvers.makespan.module_trunk import last_sink, without_rest
from placewright.solvers.makespan.modules import cut_operators, modules_of, within
from placewright.verify import verify
from tests.brute_force import optimum
from tests.random_problems import problems

pytestmark = pytest.mark.slow

MANY = settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)


@st.composite
def chains(draw: st.DrawFn) -> Problem:
    """Two or three modules of one to two parallel operators between operators that every path passes."""
    tensors, ends, n = [], [0], 1
    eighth = st.integers(0, 16).map(lambda k: k / 8)
    for _ in range(draw(st.integers(1, 2))):
        entry, width = ends[-1], draw(st.integers(0, 2))
        last = n + width
        skip = width == 0 or draw(st.booleans())
        readers = [*range(n, last), *([last] if skip else [])]
        tensors.append(Tensor(f"t{entry}", entry, tuple(readers), draw(st.integers(0, 40))))
        tensors += [Tensor(f"t{v}", v, (last,), draw(st.integers(0, 40))) for v in range(n, last)]
        ends.append(last)
        n = last + 1
    D = draw(st.integers(2, 3))
    cuts = draw(st.booleans())
    return Problem(
        OperatorGraph([Operator(f"v{k}") for k in range(n)], tensors),
        pw.Cluster(
            [pw.Device(f"d{i}") for i in range(D)],
            [pw.Link(draw(eighth) / 8, 32.0, link_class="same-host", channel=draw(st.sampled_from(["", "bus"])))],
        ),
        Times(
            np.array([[draw(eighth) for _ in range(D)] for _ in range(n)]),
            cut_s=np.array([[draw(eighth) / 4 for _ in range(D)] for _ in range(n)]) if cuts else None,
        ),
        Makespan(draw(st.sampled_from(["none", "link", "port"]))),
    )


def _check(problem: Problem) -> None:
    best = optimum(problem)
    result = SOLVERS["makespan"]["modular-split"].algorithm(problem, budget=Budget(30), rng=np.random.default_rng(0))
    if np.isinf(best):
        assert result.plan is None
        return
    assert result.value_s == pytest.approx(best, rel=1e-8, abs=1e-8)
    assert best * (1 - 1e-6) <= result.lower_bound_s <= best
    assert verify(problem, result.require_plan()) == ()


@settings(MANY, max_examples=200)
@given(chains())
def test_on_chains_of_modules_the_optimum_is_found_and_proved(problem: Problem) -> None:
    """Value and bound equal brute force, with cuts that cost and under every contention."""
    _check(problem)


@MANY
@given(problems(most_operators=6, memory=False))
def test_on_any_network_with_modules_the_optimum_is_found_and_proved(problem: Problem) -> None:
    """The same on random graphs, as far as they have an operator on every path and nothing couples the modules."""
    if SOLVERS["makespan"]["modular-split"].supports(problem) is None and len(modules_of(problem.graph)) > 1:
        _check(problem)


@settings(MANY, max_examples=500)
@given(problems(most_operators=8))
def test_cut_operators_are_those_on_every_path(problem: Problem) -> None:
    """By definition: each path from a source to a sink, listed, holds them; modules share out all operators once."""
    graph = problem.graph
    paths = [[v] for v in range(len(graph)) if not graph.predecessors[v]]
    whole = []
    while paths:
        path = paths.pop()
        following = graph.successors[path[-1]]
        paths += [[*path, w] for w in following]
        whole += [] if following else [set(path)]
    expected = sorted(set.intersection(*whole)) if whole else []
    assert cut_operators(graph) == expected
    modules = modules_of(graph)
    placed = list(itertools.chain(*(m.inner for m in modules), (m.exit for m in modules if m.exit is not None)))
    assert sorted(placed) == list(range(len(graph)))


def test_a_network_without_modules_is_refused() -> None:
    """Operators that nothing joins lie on no common path, and leaving some out would leave nothing."""
    large = pw.Cluster([pw.Device("d0"), pw.Device("d1")])
    apart = OperatorGraph([Operator(v) for v in "abc"])
    supports = SOLVERS["makespan"]["modular-split"].supports
    assert "every path" in (supports(Problem(apart, large, np.ones((3, 2)))) or "")


def _with_side_outputs(problem: Problem) -> Problem:
    """The same with an operator of a quarter of a second behind each of the first two, which nothing reads."""
    graph, n = problem.graph, len(problem.graph)
    ends = [Operator(f"end{v}") for v in range(2)]
    ways = [Tensor(f"way{v}", v, (n + v,), 8) for v in range(2)]
    more = OperatorGraph([*graph.operators, *ends], [*graph.tensors, *ways], graph.colocation)
    times = np.vstack([problem.times.processing_s, np.full((2, len(problem.cluster)), 0.25)])
    return Problem(more, problem.cluster, times, problem.objective)


@settings(MANY, max_examples=40)
@given(chains().filter(lambda problem: len(problem.graph) <= 5))
def test_side_outputs_leave_a_bound(problem: Problem) -> None:
    """Without an operator on every path the trunk is split: a legal plan, and a bound never above the optimum."""
    problem = _with_side_outputs(problem)
    best = optimum(problem)
    trunk = without_rest(problem, last_sink(problem))
    assert optimum(trunk) <= best
    algorithm = SOLVERS["makespan"]["modular-split"].algorithm
    result = algorithm(problem, budget=Budget(30), rng=np.random.default_rng(0))
    assert result.lower_bound_s <= best
    if result.plan is not None:
        assert verify(problem, result.plan) == ()
        assert result.lower_bound_s >= optimum(trunk) * (1 - 1e-6)


@settings(MANY, max_examples=100)
@given(problems(most_operators=6, memory=False), st.integers(0, 8))
def test_what_is_left_out_no_good_schedule_uses(problem: Problem, more: int) -> None:
    """Within a limit at or above the optimum the optimum stays; below it, there is nothing or nothing within it."""
    best = optimum(problem)
    if np.isinf(best):
        return
    kept = within(problem, best + more / 8)
    assert kept is not None and optimum(kept) == pytest.approx(best, rel=1e-9)
    less = within(problem, best * 0.9)
    assert less is None or best == 0.0 or optimum(less) > best * 0.9


def test_sinks_and_trunk() -> None:
    """a feeds b and c, c feeds d; d can end at 3 and b at 2, so that b is left out, with what only it reads."""
    graph = OperatorGraph(
        [Operator(v) for v in "abcd"], [Tensor("x", 0, (1, 2)), Tensor("y", 0, (1,)), Tensor("z", 2, (3,))]
    )
    problem = Problem(graph, pw.Cluster([pw.Device("d0")]), np.ones((4, 1)))
    assert last_sink(problem) == (0, 2, 3)
    trunk = without_rest(problem, (0, 2, 3))
    assert [(t.name, t.producer, t.readers) for t in trunk.graph.tensors] == [
        ("x", 0, (1,)),
        ("y", 0, ()),
        ("z", 1, (2,)),
    ]


def test_cancelled_it_returns_what_it_was_given() -> None:
    """Whatever it has begun with: the incumbent, and a bound."""
    graph = OperatorGraph([Operator(v) for v in "abc"], [Tensor("x", 0, (1,)), Tensor("y", 1, (2,))])
    two = pw.Cluster([pw.Device("d0"), pw.Device("d1")], [pw.Link(1.0, 1.0, link_class="same-host")])
    problem = Problem(graph, two, np.ones((3, 2)))
    plan = CpSat()(problem, budget=Budget(5), rng=np.random.default_rng(0)).plan
    budget = Budget(30)
    budget.cancelled.set()
    algorithm = SOLVERS["makespan"]["modular-split"].algorithm
    result = algorithm(problem, budget=budget, rng=np.random.default_rng(0), incumbent=plan)
    assert result.plan is plan and 0 < result.lower_bound_s <= 3.0
