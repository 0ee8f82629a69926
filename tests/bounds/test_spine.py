"""The spine bound: below the optimum of every small problem, and the published values."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from math import inf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from placewright import Cluster, Device, Link, Offload, Operator, OperatorGraph, Problem, Tensor
from placewright.algorithm import Algorithm, Budget
from placewright.bounds import BOUNDS, PROOFS
from placewright.bounds.offload import interval_program
from placewright.bounds.offload.intervals import Spine
from placewright.bounds.offload.relaxed import Relaxed, relaxed
from placewright.evaluate import judge
from placewright.io import read_partitioning
from placewright.solvers.offload.spine_plan import SpinePlan
from tests.offload.brute_force import optimum
from tests.offload.random_problems import offload_problems

WORKLOADS = Path(__file__).resolve().parents[3] / "shared" / "workloads"

QUICK, SPINE = BOUNDS["offload"]["critical-path"], PROOFS["offload"]["spine"]

ABOVE = 1.0 + 1e-9


def examples(count: int) -> settings:
    quiet = HealthCheck.too_slow, HealthCheck.data_too_large
    phases = Phase.explicit, Phase.generate
    return settings(max_examples=count, deadline=None, derandomize=True, phases=phases, suppress_health_check=quiet)


def bound(algorithm: Algorithm, problem: Problem, budget: Budget | None = None) -> float:
    return algorithm(problem, budget=budget or Budget(), rng=np.random.default_rng(0)).lower_bound_s


def paths(r: Relaxed) -> list[list[int]]:
    """All paths from an operator without producers to one without readers."""
    found, open_ = [], [[v] for v in range(len(r)) if not r.makers[v]]
    while open_:
        path = open_.pop()
        after = r.readers[path[-1]]
        found += [] if after else [path]
        open_ += [[*path, v] for v in after]
    return found


def of_path(r: Relaxed, path: list[int], price: float = 0.0, buckets: int = 0) -> float:
    value, _ = Spine(r, path, Budget(), price, buckets).shortest(inf, lambda value: None)
    return value - price * r.total_capacity if price else value


@pytest.fixture(autouse=True, scope="module")
def unhurried() -> Iterator[None]:
    """Give each linear program all the time that it needs: how tight the bound is depends on no clock here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interval_program, "MOST_S", 60.0)
        yield


@examples(400)
@given(offload_problems(most_operators=6))
def test_below_the_optimum(problem: Problem) -> None:
    """Both bounds hold for pools, pins, classes, unlike accelerators and links, any memory and number of calls."""
    best = optimum(problem)
    assert bound(SPINE, problem) <= best
    assert bound(QUICK, problem) <= best


@examples(400)
@given(offload_problems(most_operators=5, calls=2, cpus=1, alike=True, uniform_links=True), st.data())
def test_every_path_and_price(problem: Problem, data: st.DataObject) -> None:
    """Not only the longest path bounds the latency, and memory may have any price."""
    best, r = optimum(problem), relaxed(problem)
    for path in paths(r)[:8]:
        assert of_path(r, path) <= best * ABOVE or best == inf
        price, buckets = data.draw(st.sampled_from([0.0, 0.25, 1.0, 4.0])), data.draw(st.sampled_from([0, 3, 50]))
        if 0 < r.total_capacity < inf:
            assert of_path(r, path, price, buckets) <= best * ABOVE + 1e-9 or best == inf


@examples(300)
@given(offload_problems(most_operators=6))
def test_plan_of_the_bound(problem: Problem) -> None:
    """What is made of the intervals is a plan that breaks no rule, and its bound is not above it."""
    result = SpinePlan()(problem, budget=Budget(), rng=np.random.default_rng(0))
    if result.plan is not None:
        judged = judge(problem, result.plan)
        assert judged.feasible
        assert judged.value_s == result.value_s
        assert result.lower_bound_s <= result.value_s


def box(accelerators: int = 1, memory: int | None = None) -> Cluster:
    devices = [Device("c", kind="cpu"), *(Device(f"g{k}", memory_bytes=memory) for k in range(accelerators))]
    return Cluster(devices, [Link(0, 1, link_class="same-host")])


def chain(*sizes: int) -> list[Tensor]:
    return [Tensor(f"t{v}", v, (v + 1,), size) for v, size in enumerate(sizes)]


def test_unit_closes_an_interval() -> None:
    """With one call, a first step whose unit comes again later is no interval of its own, but a longer one is."""
    graph = OperatorGraph([Operator(v) for v in "abc"], chain(1, 1), [(0, 2)])
    problem = Problem(graph, box(), [[10.0, 1.0]] * 3, Offload(1))
    assert optimum(problem) == 3.0
    assert 3.0 / ABOVE <= bound(SPINE, problem) <= 3.0


def test_only_the_first_call_waits() -> None:
    """A slow producer beside the path holds up the second of two calls of one unit, not the first."""
    graph = OperatorGraph([Operator(v) for v in "xab"], [Tensor("t", 0, (2,), 0), Tensor("s", 1, (2,), 0)], [(1, 2)])
    problem = Problem(graph, box(), [[10.0, inf], [100.0, 8.0], [100.0, 2.0]], Offload(2))
    assert optimum(problem) == 12.0
    assert all(of_path(relaxed(problem), path) <= 12.0 * ABOVE for path in ([1, 2], [0, 2]))
    single = Problem(graph, box(), problem.times, Offload(1))
    assert optimum(single) == 20.0
    assert of_path(relaxed(single), [1, 2]) >= 20.0 / ABOVE  # and with one call it holds up both


def test_change_of_call_costs_both_transfers() -> None:
    """Memory for one of two operators: 1 + 3 out, 3 in + 1."""
    graph = OperatorGraph([Operator(v, weight_bytes=6) for v in "ab"], chain(3))
    problem = Problem(graph, box(2, 8), [[9.0, 1.0, 1.0]] * 2, Offload())
    assert optimum(problem) == 8.0
    assert bound(SPINE, problem) >= 8.0 / ABOVE
    assert bound(QUICK, problem) <= 2.0


@pytest.mark.parametrize("accelerators", [0, 1])
def test_nothing_to_find(accelerators: int) -> None:
    """Without accelerators the path on CPUs is exact; where nothing may run no bound is claimed."""
    graph = OperatorGraph([Operator("a"), Operator("b")], chain(1))
    times = [[2.0, inf][: accelerators + 1]] * 2
    assert 4.0 / ABOVE <= bound(SPINE, Problem(graph, box(accelerators), times, Offload())) <= 4.0
    nowhere = [[inf, inf][: accelerators + 1]] * 2
    assert bound(SPINE, Problem(graph, box(accelerators), nowhere, Offload())) == 0.0


def test_any_time() -> None:
    """With no time at all there is a bound that holds, and so there is after a cancellation."""
    n = 60
    graph = OperatorGraph([Operator(f"v{v}", weight_bytes=1) for v in range(n)], chain(*[1] * (n - 1)))
    problem = Problem(graph, box(2, 10), [[3.0, 1.0, 1.0]] * n, Offload())
    whole = bound(SPINE, problem)
    cancelled = Budget()
    cancelled.cancelled.set()
    for budget in (Budget(0.0), cancelled):
        assert n / ABOVE <= bound(SPINE, problem, budget) <= whole


def published() -> list[tuple[str, float]]:
    table = WORKLOADS / "reference.csv"
    if not table.exists():
        return []
    with table.open() as lines:
        rows = [row for row in csv.DictReader(lines) if row["problem"] == "offload" and row["method"] == "best-known"]
    return [(row["file"], float(row["value"])) for row in rows if "layer" in row["file"]]


@pytest.mark.skipif(not published(), reason="the published files are not here")
@pytest.mark.parametrize("calls", [1, None])
def test_published_layer_graphs(calls: int | None) -> None:
    """The bound is the value of the best plan that is known, with one call and with any number."""
    for name, best_ms in published():
        file = next(p for p in WORKLOADS.rglob(Path(name).name) if p.parent.name == "offload")
        found = bound(SPINE, read_partitioning(file, Offload(calls))) * 1e3
        assert found == pytest.approx(best_ms, rel=1e-6)
