"""Counts of alike units against brute force, closed forms, and a language model's layers beside a CPU."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from placewright.algorithm import Budget
from placewright.bounds.max_load.fractional_load import fractional_load
from placewright.cluster import Cluster, Device, Link
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.loads import loads_of
from placewright.objective import MaxLoad
from placewright.problem import Problem, Times
from placewright.result import Result
from placewright.solvers.max_load.counts import Counts
from placewright.solvers.max_load.counts_program import counts_program, sorts_of
from placewright.verify import verify
from tests.max_load.brute_force import optimum, value_of
from tests.max_load.random_problems import max_load_problems

SOME = settings(
    max_examples=int(os.environ.get("PLACEWRIGHT_EXAMPLES", "100")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)


def counted(problem: Problem, nodes: int = 1000) -> Result:
    """Result of so many nodes of the search."""
    return Counts()(problem, budget=Budget(iterations=nodes), rng=np.random.default_rng(0))


def repeated(problem: Problem, period: int) -> Problem:
    """Make every ``period``-th operator alike: times, bytes, and the sizes of what it sends."""
    graph = problem.graph
    operators = [
        replace(
            v,
            weight_bytes=graph.operators[k % period].weight_bytes,
            kv_cache_bytes=graph.operators[k % period].kv_cache_bytes,
        )
        for k, v in enumerate(graph.operators)
    ]
    sizes: dict[int, int] = {}
    tensors = [replace(t, size_bytes=sizes.setdefault(t.producer % period, t.size_bytes)) for t in graph.tensors]
    times = problem.times.processing_s[np.arange(len(graph)) % period]
    return replace(problem, graph=replace(graph, operators=operators, tensors=tensors), times=Times(times))


@SOME
@given(max_load_problems(replicate=False, table=False), st.integers(1, 4))
def test_the_bound_is_not_above_the_optimum(problem: Problem, period: int) -> None:
    """Whatever the options, links, channels, memory, classes and wishes; plans are verified, and no better."""
    problem = repeated(problem, period)
    best, found = optimum(problem), counted(problem)
    assert found.infeasible == "" or best == np.inf
    assert found.lower_bound_s <= best
    assert found.plan is None or verify(problem, found.plan) == ()


@SOME
@given(max_load_problems(replicate=False, table=False), st.integers(1, 4), st.data())
def test_every_placement_is_a_solution_of_its_value(problem: Problem, period: int, data: st.DataObject) -> None:
    """Its counts, and the least numbers of messages that the rows ask for, need no T above its value.

    So the program is a relaxation, whatever HiGHS makes of it.
    """
    problem = repeated(problem, period)
    a, D = loads_of(problem), len(problem.cluster)
    unit_device = data.draw(st.lists(st.integers(0, D - 1), min_size=a.n_units, max_size=a.n_units))
    value = value_of(problem, a.devices_of(unit_device).tolist())
    if not np.isfinite(value):
        return
    program = counts_program(problem, 1.0)
    counts = np.zeros((len(program.sorts), D))
    np.add.at(counts, (program.sorts.of_unit, unit_device), 1)
    x = np.zeros(len(program.upper))
    x[: counts.size], x[-1] = counts.ravel(), value
    for terms, lower, _ in program.rows:  # the first term of a row of messages is its variable
        v = terms[0][0] if terms else 0
        if counts.size <= v < len(x) - 1 and np.isfinite(lower):
            x[v] = max(x[v], lower - sum(c * x[k] for k, c in terms[1:]))
    assert (x <= program.upper).all()
    for terms, lower, upper in program.rows:
        total = sum(c * x[k] for k, c in terms)
        assert lower - 1e-9 <= total <= upper + 1e-9


def layers(count: int, gpu: Device, cpu: Device) -> Problem:
    """A chain of attention (2 B, 1 s on the GPU, 4 s on the CPU) and feed-forward (4 B, 1 s, 20 s), a byte between."""
    operators = [Operator(f"{name}{k}", weight_bytes=b) for k in range(count) for name, b in (("attn", 2), ("mlp", 4))]
    tensors = [Tensor(f"t{v}", v, (v + 1,), 1) for v in range(2 * count - 1)]
    cluster = Cluster([gpu, cpu], [Link(0.0, 4.0, link_class="same-host", channel="pcie")])
    return Problem(OperatorGraph(operators, tensors), cluster, [[1.0, 4.0], [1.0, 20.0]] * count, MaxLoad("any"))


def test_attention_leaves_for_the_cpu_where_feed_forward_parts_would_take_longer() -> None:
    """Ten layers, 60 B, 48 B on the GPU: 12 B leave. Six attentions take 24 s, three feed-forward parts 60 s.

    Two attentions and two feed-forward parts take 48 s, four and one 36 s. Divided operators take 24 s as well. On the
    GPU: 14 s, and a quarter of a second for each tensor that passes between it and the CPU, of which there are at least
    12 or 11: far from 24 s.
    """
    problem = layers(10, Device("gpu", memory_bytes=48), Device("cpu", "cpu", memory_bytes=64))
    result = counted(problem)
    assert result.value_s == 24.0
    assert result.status.value == "optimal"
    on_cpu = [problem.graph.operators[v].name for v in np.flatnonzero(result.require_plan().device_of == 1)]
    assert len(on_cpu) == 6
    assert all(name.startswith("attn") for name in on_cpu)


def test_unequal_counts_pay_for_transfers() -> None:
    """Attention runs on d0 only, feed-forward parts on d1 only: 4 layers send 4 and 3 tensors of 1 s, none divided.

    Each device computes 4 s, and what leaves one of them enters the other: 4 + 7 = 11 s. Divided operators know 4 s.
    Counts see 4 - 0 - (4 - 4) = 4 of those that lead on, and 4 - 0 - (4 - 3) = 3 of those that lead back: 11 s.
    """
    graph = layers(4, Device("d0"), Device("d1")).graph
    cluster = Cluster([Device("d0"), Device("d1")], [Link(0.0, 1.0, link_class="same-host")])
    problem = Problem(graph, cluster, [[1.0, np.inf], [np.inf, 1.0]] * 4, MaxLoad("any"))
    result = counted(problem)
    assert result.value_s == 11.0 == optimum(problem)
    assert result.lower_bound_s == pytest.approx(11.0, rel=1e-6)
    divided = fractional_load(problem, budget=Budget(), rng=np.random.default_rng(0))
    assert divided.lower_bound_s == pytest.approx(4.0)


def test_alike_units_are_of_one_sort() -> None:
    """Attention and feed-forward parts of ten layers are two sorts of ten units."""
    sorts = sorts_of(loads_of(layers(10, Device("gpu"), Device("cpu", "cpu"))))
    assert sorts.count.tolist() == [10, 10]
    assert sorts.first.tolist() == [0, 1]


def test_what_is_out_of_reach_is_said() -> None:
    """Replicas are left to others, and so are networks of which no operators are alike."""
    problem = layers(3, Device("gpu"), Device("cpu", "cpu"))
    copied = replace(problem, objective=MaxLoad("any", replicate=True))
    assert "no replicas" in str(Counts().supports(copied))
    graph = OperatorGraph([Operator(f"v{v}") for v in range(2001)])
    unlike = Problem(graph, problem.cluster, np.arange(1.0, 2002.0)[:, None] * [1.0, 2.0], MaxLoad("any"))
    assert Counts().supports(unlike) == "4,002 pairs of a sort of operators and a device are more than 4,000"
