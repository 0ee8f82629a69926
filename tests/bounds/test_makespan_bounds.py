"""Bounds of the makespan by spans: below the optimum of every small problem, and closed forms."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from placewright import Cluster, Device, Link, Makespan, Operator, OperatorGraph, Problem, Tensor, Times
from placewright._kernel.energy import least_energy
from placewright._kernel.span_search import scratch_for
from placewright.algorithm import Budget
from placewright.arrays import arrays_of
from placewright.bounds.makespan.priced_spans import PricedSpans, priced
from placewright.bounds.makespan.series import series_of
from placewright.bounds.makespan.span import Reach, alike_devices, members_of
from placewright.bounds.makespan.span_master import sound
from placewright.bounds.makespan.span_path import longest_path, steps_of
from placewright.bounds.makespan.span_prices import Pricing
from placewright.bounds.makespan.span_times import SpanTimes, finishes
from placewright.bounds.makespan.spans import spans
from tests.brute_force import optimum
from tests.random_problems import problems

ABOVE = 1.0 + 1e-9


def examples(count: int) -> settings:
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


def bound(problem: Problem) -> float:
    return spans(problem, budget=Budget(), rng=np.random.default_rng(0)).lower_bound_s


@st.composite
def some_problems(draw: st.DrawFn) -> Problem:
    """Random problems; some with a table of transfer times, some with devices that can be swapped, but for one."""
    problem = draw(problems(most_operators=6))
    kind = draw(st.sampled_from(["plain", "plain", "table", "alike"]))
    if kind == "plain":
        return problem
    if kind == "table":
        shape = len(problem.graph.tensors), len(problem.cluster), len(problem.cluster)
        size = int(np.prod(shape))
        seconds = draw(st.lists(st.sampled_from([0.0, 0.125, 1.0, 3.0, inf]), min_size=size, max_size=size))
        times = Times(problem.times.processing_s, np.array(seconds).reshape(shape), cut_s=problem.cut_s)
        return Problem(problem.graph, problem.cluster, times, problem.objective)
    one, D = problem.cluster.devices[0], len(problem.cluster)
    columns = [0] * (D - 1) + [draw(st.sampled_from([0, D - 1]))]
    devices = [replace(one, name=f"d{i}") for i in range(D)]
    times = Times(problem.times.processing_s[:, columns], cut_s=problem.cut_s[:, columns])
    return Problem(problem.graph, Cluster(devices, problem.cluster.links[:1]), times, problem.objective)


@examples(200)
@given(some_problems())
def test_spans_are_below_the_optimum(problem: Problem) -> None:
    """With each contention, cuts, pins, classes, memory and devices that can be swapped."""
    assert bound(problem) <= optimum(problem)


@examples(100)
@given(some_problems(), st.data())
def test_any_path_and_any_steps(problem: Problem, data: st.DataObject) -> None:
    """Along any chain of descendants, with every pair of its operators for a step, however few nodes are searched."""
    best, reach = optimum(problem), Reach.of(problem)
    if not problem.allowed.any(axis=1).all():
        return
    path = [data.draw(st.integers(0, len(problem.graph) - 1))]
    while below := list(members_of(reach.below[path[-1]])):
        if data.draw(st.booleans()):
            path.append(data.draw(st.sampled_from(below)))
        else:
            break
    steps = [(x, y) for y in range(len(path) + 1) for x in range(-1, y)]
    nodes = data.draw(st.sampled_from([1, 5, 1000]))
    done, last = finishes(problem, path, steps, SpanTimes(problem, reach, Budget(), nodes, 10**9))
    assert last <= best * ABOVE
    assert done.min(axis=1).max() <= best * ABOVE


def cluster(devices: int, seconds: float, **link: str) -> Cluster:
    """Alike devices; one byte takes ``seconds``."""
    return Cluster([Device(f"g{k}") for k in range(devices)], [Link(0, 1 / seconds, link_class="same-host", **link)])


def fork(branches: int, sizes: int = 1) -> OperatorGraph:
    """Operators 1.. ``branches`` between 0 and the last, each reading a tensor of its own."""
    inner = range(1, branches + 1)
    tensors = [Tensor(f"i{v}", 0, (v,), sizes) for v in inner]
    tensors += [Tensor(f"o{v}", v, (branches + 1,), sizes) for v in inner]
    return OperatorGraph([Operator(f"v{v}") for v in range(branches + 2)], tensors)


def test_branches_stay_where_transfers_are_dear() -> None:
    """1 + 3 x 2 + 1 s on one device, as there and back takes 2 x 3 s; path 4 s and load 8 / 2 s say less."""
    problem = Problem(fork(3), cluster(2, 3.0), [[float(p)] * 2 for p in (1, 2, 2, 2, 1)])
    assert optimum(problem) == 8.0
    assert 8.0 / ABOVE <= bound(problem) <= 8.0


def test_transfers_wait_for_each_other_on_a_channel() -> None:
    """Ends on unlike devices: three tensors of 1 s each cross one after the other, 0 + 3 x 1 + 1."""
    graph = OperatorGraph([Operator(v) for v in "abcd"], [Tensor(f"t{v}", v, (3,), 1) for v in range(3)])
    times = [[1.0, inf], [1.0, inf], [1.0, inf], [inf, 1.0]]
    # a, b, c end at 1, 2, 3; the last tensor arrives at 4 whatever the order: 4 + 1.
    assert bound(Problem(graph, cluster(2, 1.0), times)) == pytest.approx(5.0)
    # Tensors of 2 s: 1 + 3 x 2 + 1 under contention, 3 + 2 + 1 without.
    assert bound(Problem(graph, cluster(2, 2.0), times)) == pytest.approx(8.0)
    assert bound(Problem(graph, cluster(2, 2.0), times, Makespan("none"))) == pytest.approx(6.0)


def test_spans_follow_each_other() -> None:
    """Two forks of three branches of 2 s: 3 + 2 x 6 s, though a mask from the start reaches over both."""
    one = [Tensor(f"i{v}", 0, (v,), 1) for v in (1, 2, 3)] + [Tensor(f"o{v}", v, (4,), 1) for v in (1, 2, 3)]
    two = [Tensor(f"j{v}", 4, (v,), 1) for v in (5, 6, 7)] + [Tensor(f"q{v}", v, (8,), 1) for v in (5, 6, 7)]
    mask = [Tensor("mask", 9, (10, 11), 1)]  # the mask is an operator of its own that both forks read
    graph_order = [9, 0, 1, 2, 3, 4, 5, 6, 7, 8]
    new = {v: k for k, v in enumerate(graph_order)} | {10: 2, 11: 6}
    tensors = [Tensor(t.name, new[t.producer], tuple(new[r] for r in t.readers), 1) for t in [*mask, *one, *two]]
    graph = OperatorGraph([Operator(f"v{v}") for v in range(10)], sorted(tensors, key=lambda t: t.producer))
    times = [[0.0] * 2, *([float(p)] * 2 for p in (1, 2, 2, 2, 1, 2, 2, 2, 1))]
    assert bound(Problem(graph, cluster(2, 3.0), times)) == pytest.approx(15.0)


def test_nothing_to_bound() -> None:
    """An operator that may run nowhere, and one without a link to its input, give no bound and no error."""
    graph = OperatorGraph([Operator("a"), Operator("b")], [Tensor("x", 0, (1,), 1)])
    pair = Cluster([Device("g0"), Device("g1")])
    assert bound(Problem(graph, pair, [[inf, inf], [1.0, 1.0]])) == 0.0
    assert bound(Problem(graph, pair, [[1.0, inf], [inf, 1.0]])) == 0.0


def test_alike_devices() -> None:
    """Devices are of one class when swapping them changes nothing: not with another capacity, time, link or table."""
    graph = OperatorGraph([Operator("a"), Operator("b")], [Tensor("x", 0, (1,), 1)])
    three = cluster(3, 1.0)
    assert alike_devices(Problem(graph, three, np.ones((2, 3)))).tolist() == [0, 0, 0]
    assert alike_devices(Problem(graph, three, [[1.0, 1.0, 2.0], [1.0, 1.0, 1.0]])).tolist() == [0, 0, 2]
    table = np.ones((1, 3, 3))
    table[0, 0, 2] = 5.0
    assert alike_devices(Problem(graph, three, Times(np.ones((2, 3)), table))).tolist() == [0, 1, 2]
    less = Cluster([Device("g0", memory_bytes=9), Device("g1"), Device("g2")], three.links)
    assert alike_devices(Problem(graph, less, np.ones((2, 3)))).tolist() == [0, 1, 1]
    near = Cluster(three.devices, [*three.links, Link(0, 9, between=("g0", "g1"))])
    assert alike_devices(Problem(graph, near, np.ones((2, 3)))).tolist() == [0, 0, 2]
    one_way = Cluster(three.devices, [*three.links, Link(0, 9, between=("g0", "g1"), one_way=True)])
    assert alike_devices(Problem(graph, one_way, np.ones((2, 3)))).tolist() == [0, 1, 2]


def test_steps_pass_where_everything_does() -> None:
    """Of a diamond: from its first operator to its last, and along the path; from outside to each."""
    tensors = [Tensor("x", 0, (1, 2), 1), Tensor("y", 1, (3,), 1), Tensor("z", 2, (3,), 1)]
    problem = Problem(OperatorGraph([Operator(v) for v in "abcd"], tensors), cluster(1, 1.0), np.ones((4, 1)))
    steps = steps_of(problem, Reach.of(problem), [0, 1, 3], 9)
    assert (0, 2) in steps
    assert {(-1, 0), (0, 1), (1, 2), (2, 3)} <= set(steps)
    assert steps_of(problem, Reach.of(problem), [0, 1, 3], 1) == [s for s in steps if s != (0, 2)]


def series_bound(problem: Problem, chain: list[int], rounds: int) -> float:
    """Run the priced bound along a given chain."""
    reach = Reach.of(problem)
    return max(priced(series_of(problem, reach, chain), Budget(iterations=rounds)), default=0.0)


@examples(150)
@given(some_problems())
def test_energy_is_below_the_optimum(problem: Problem) -> None:
    """The load between heads and tails, of the whole network."""
    g = arrays_of(problem).network
    assert least_energy(g, scratch_for(g)) <= optimum(problem) * ABOVE


@examples(100)
@given(some_problems(), st.data())
def test_priced_spans_are_below_the_optimum(problem: Problem, data: st.DataObject) -> None:
    """Along the chain that is chosen and along any other, with memory that binds, at every choice of multipliers."""
    best, reach = optimum(problem), Reach.of(problem)
    assert PricedSpans()(problem, budget=Budget(iterations=12), rng=np.random.default_rng(0)).lower_bound_s <= best
    if not problem.allowed.any(axis=1).all():
        return
    chain = list[int]()
    below = list(range(len(problem.graph)))
    while below and data.draw(st.booleans()):
        chain.append(data.draw(st.sampled_from(below)))
        below = list(members_of(reach.below[chain[-1]]))
    assert series_bound(problem, chain, 12) <= best


@examples(100)
@given(some_problems(), st.data())
def test_any_multipliers_give_a_bound(problem: Problem, data: st.DataObject) -> None:
    """Not only those of the linear program: windows and prices drawn at random, too."""
    if not problem.allowed.any(axis=1).all():
        return
    chain = [v for v in longest_path(problem) if data.draw(st.booleans())]
    series = series_of(problem, Reach.of(problem), chain)
    rows = []
    for _ in range(data.draw(st.integers(0, 6))):
        x = data.draw(st.integers(0, series.instants - 2))
        sort = data.draw(st.integers(0, 1 if len(series.ports_in) else 0))
        classes = len(series.ports_in) if sort else len(series.devices_in)
        y = data.draw(st.integers(x + 1, series.instants - 1))
        rows.append((x, y, sort, data.draw(st.integers(0, classes - 1))))
    weight = np.array([data.draw(st.sampled_from([0.1, 0.5, 1.0])) for _ in rows])
    windows = sound(np.array(rows, dtype=np.int32).reshape(-1, 4), weight, len(series.spans))
    capacity = arrays_of(problem).capacity
    room = np.array([capacity[series.device_class == c].sum() for c in range(len(series.devices_in))])
    prices = np.array([data.draw(st.sampled_from([0.0, 1e-7, 1e-6])) if np.isfinite(m) else 0.0 for m in room])
    total, _ = Pricing(series).at(windows, prices, inf)
    paid = float((prices[np.isfinite(room)] * room[np.isfinite(room)]).sum())
    assert total - paid <= optimum(problem) * ABOVE + 1e-9


def test_devices_are_free_between_heads_and_tails_only() -> None:
    """Eight branches of 1 s on two devices; the second gets its first input at 2 s and sends its last 2 s before T.

    Divided: T on the first and T - 4 on the second are 8 in all, T = 6. The path is 2 s, the load 4 s.
    """
    graph = fork(8)
    times = [[0.0, inf], *[[1.0, 1.0]] * 8, [0.0, inf]]
    g = arrays_of(Problem(graph, cluster(2, 2.0), times, Makespan("none"))).network
    assert least_energy(g, scratch_for(g)) == pytest.approx(6.0, rel=1e-3)


def test_any_time() -> None:
    """With no time at all, or cancelled, both bounds hold and are at the critical path or above."""
    problem = Problem(fork(3), cluster(2, 3.0), [[float(p)] * 2 for p in (1, 2, 2, 2, 1)])
    cancelled = Budget()
    cancelled.cancelled.set()
    for budget in (Budget(0.0), cancelled):
        for found in (spans, PricedSpans()):
            assert 4.0 / ABOVE <= found(problem, budget=budget, rng=np.random.default_rng(0)).lower_bound_s <= 8.0


def test_what_lies_beside_the_spans_is_seen_by_its_load() -> None:
    """Three operators of 2 s beside a chain of three of 1 s each, which all end in one: 3 + 3 x 2 + 1 s.

    To send the tensor of one takes 100 s, so that all stay on one device; the chain alone is 4 s.
    """
    tensors = [Tensor(f"t{v}", v, (v + 1,), 1) for v in range(2)]
    tensors += [Tensor("t2", 2, (6,), 1), *(Tensor(f"t{v}", v, (6,), 1) for v in (3, 4, 5))]
    graph = OperatorGraph([Operator(f"v{v}") for v in range(7)], tensors)
    problem = Problem(graph, cluster(2, 100.0), [[p] * 2 for p in (1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 1.0)])
    assert series_bound(problem, [0, 1, 2, 6], 1) == pytest.approx(4.0)  # without windows: the chain
    assert series_bound(problem, [0, 1, 2, 6], 40) == pytest.approx(5.0)  # half of it on each device, divided
    pinned = Problem(graph, problem.cluster, [[p, inf] for p in (1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 1.0)])
    assert series_bound(pinned, [0, 1, 2, 6], 40) == pytest.approx(10.0)
