"""Modular split of the max-load against brute force: chains of modules, any random problem, and published values."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from placewright._kernel.load_order import closed_at_cut, enters_in_order, in_canonical_order
from placewright.algorithm import Budget
from placewright.bounds.max_load.module_network import module_network, why_no_modules
from placewright.bounds.max_load.module_prices import best_prices
from placewright.cluster import Cluster, Device, Link
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.io.partitioning_file import read_partitioning
from placewright.objective import MaxLoad
from placewright.problem import Problem
from placewright.result import Result, Status
from placewright.solvers.max_load.modular_split import LoadModularSplit
from placewright.solvers.max_load.module_walk import walk
from placewright.verify import verify
from tests.max_load.brute_force import optimum
from tests.max_load.module_chains import module_chain
from tests.max_load.random_problems import max_load_problems
from tests.workloads import workload

SOME = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)


def split(problem: Problem, rounds: int = 8, width: int = 256) -> Result:
    """Result of so many rounds from seed 0, without an incumbent."""
    algorithm = LoadModularSplit(width=width)
    return algorithm(problem, budget=Budget(iterations=rounds), rng=np.random.default_rng(0))


CASES = {
    "inference": {},
    "training": {"backward": True, "most": 6},
    "memory": {"memory": True},
    "memory of alike devices": {"memory": True, "alike": True},
    "unlike links": {"unlike_links": True},
    "channels": {"unlike_links": True, "channels": True},
    "a CPU": {"cpu": True, "unlike_links": True},
    "all at once": {"backward": True, "most": 6, "memory": True, "unlike_links": True, "channels": True, "cpu": True},
}


@pytest.mark.parametrize("contiguity", ["contiguous", "convex", "any"])
@pytest.mark.parametrize("name", CASES)
def test_chains_of_modules_are_solved_to_the_optimum(name: str, contiguity: str) -> None:
    """Six chains a case, with every overlap and both objectives of training: value and proof as by brute force."""
    rng = np.random.default_rng(sorted(CASES).index(name))
    for k in range(6):
        training = "separate" if k % 2 else "sum"
        share = 0.3 if k > 3 else 0.0
        overlap = ("none", "transfers", "full")[k % 3]
        objective = MaxLoad(contiguity, k % 4 < 2, training, overlap, busy_share=share)  # type: ignore[arg-type]
        problem = module_chain(rng, objective, **CASES[name])  # type: ignore[arg-type]
        best, result = optimum(problem), split(problem)
        if best == inf:
            assert result.infeasible
            continue
        assert result.status is Status.OPTIMAL
        assert result.value_s == pytest.approx(best, rel=1e-9)
        assert result.lower_bound_s <= best
        assert verify(problem, result.require_plan()) == ()


@SOME
@given(max_load_problems(replicate=False, most_operators=8))
def test_any_small_problem_is_solved_to_the_optimum(problem: Problem) -> None:
    """No cut is needed: what has none is one module. Links by pair, missing ones, wishes, classes, blocks, memory."""
    best, result = optimum(problem), split(problem)
    assert result.lower_bound_s <= best
    if best < inf:
        assert not result.infeasible
        assert result.status is Status.OPTIMAL
        assert result.value_s == pytest.approx(best, rel=1e-6)
        assert verify(problem, result.require_plan()) == ()
    else:
        assert result.plan is None


@SOME
@given(max_load_problems(replicate=False, most_operators=8), st.integers(1, 3), st.integers(1, 3))
def test_what_is_merged_gives_a_bound_and_plans(problem: Problem, width: int, rounds: int) -> None:
    """Three vectors at a time are far too few: the bound is still none above the optimum, and plans keep the rules."""
    best, result = optimum(problem), split(problem, rounds, width)
    assert result.lower_bound_s <= best
    assert not (result.infeasible and best < inf)
    if result.plan is not None:
        assert verify(problem, result.plan) == ()
        assert result.value_s >= best * (1 - 1e-9)


def test_merging_happens_and_costs_the_proof() -> None:
    """Nine unlike operators and a width of 2: one round merges, leaves a gap; the rounds that follow close it."""
    problem = module_chain(np.random.default_rng(3), MaxLoad("any"), most=9)
    rough, exact = split(problem, 1, 2), split(problem, 12, 2)
    assert rough.gap > 1e-3
    assert exact.status is Status.OPTIMAL
    assert exact.value_s == pytest.approx(optimum(problem), rel=1e-9)


def test_devices_behind_a_cut_are_closed() -> None:
    """Two diamonds, three devices: contiguous, the device of a branch in the first is not used in the second.

    Cuts take 1 s, branches 4 s, tensors nothing. Without order one device takes two branches, and another one and the
    cuts: 8. In order the middle cut's device and one more are there for each diamond: (1 + 4), (4 + 1 + 4), (4 + 1) is
    the best, 9, as is a whole side on one device.
    """
    edges = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (3, 5), (4, 6), (5, 6)]
    tensors = [Tensor(f"t{v}", v, tuple(b for a, b in edges if a == v), 0) for v in range(6)]
    times = np.array([1.0, 4, 4, 1, 4, 4, 1])[:, None] * np.ones((1, 3))
    graph = OperatorGraph([Operator(f"v{v}") for v in range(7)], tensors)
    cluster = Cluster([Device(f"d{i}") for i in range(3)], [Link(0.0, 1.0, link_class="same-host")])
    found = {}
    for contiguity in ("any", "convex", "contiguous"):
        problem = Problem(graph, cluster, times, MaxLoad(contiguity))  # type: ignore[arg-type]
        network = module_network(problem)
        assert network.steps.closes.tolist() == [contiguity != "any" and v in (0, 3, 6) for v in range(7)]
        found[contiguity] = split(problem).value_s
        assert found[contiguity] == optimum(problem)
    assert found == {"any": 8.0, "convex": 9.0, "contiguous": 9.0}


def test_alike_devices_are_seen_once() -> None:
    """Of four alike devices and three operators apart there are five vectors at the end: the partitions of three."""
    graph = OperatorGraph([Operator(v) for v in "abc"])
    cluster = Cluster([Device(f"d{i}") for i in range(4)], [Link(0.0, 1.0, link_class="same-host")])
    problem = Problem(graph, cluster, np.array([[1.0], [2.0], [4.0]]) * np.ones((1, 4)), MaxLoad("any"))
    network = module_network(problem)
    prices = best_prices(network, Budget(), 1)
    found = walk(network, prices, inf, 100, Budget())
    assert found is not None
    assert found.values.tolist() == [4.0, 4.0, 5.0, 6.0, 7.0]  # 4 2 1; 4 2+1; 4+1 2; 4+2 1; 4+2+1
    assert found.merged == 0


def test_names_of_alike_devices_go_by_slot_then_load_then_closed() -> None:
    """Device 2 has the frontier's group, device 0 is closed, devices 1 and 3 hold 5 and 7: the order is 2, 3, 1, 0."""
    device, load = np.array([2], dtype=np.int8), np.array([9.0, 5.0, 1.0, 7.0, 0.0])
    marks, place = np.zeros(5, dtype=np.int64), np.zeros(4, dtype=np.int64)
    marks[1] = 1 << 2  # device 1 leads to device 2
    closed, used = in_canonical_order(
        np.zeros(4, dtype=np.int32), 1, 1, 0, 0, device, load, 1 << 0, 0b1111, marks, place
    )
    assert place.tolist() == [3, 2, 0, 1]
    assert (closed, used, device.tolist()) == (1 << 3, 0b1111, [0])
    assert load.tolist() == [1.0, 7.0, 5.0, 9.0, 0.0]
    assert marks.tolist() == [0, 0, 1, 0, 0]


def test_a_device_that_leads_to_another_is_not_led_to_by_it() -> None:
    """An edge from device 0 to 1, then one from 1 to 2, then one from 2 to 0: the last closes a cycle."""
    bound, device, marks = np.ones(3, dtype=np.bool_), np.array([0, 1, 2], dtype=np.int8), np.zeros(6, dtype=np.int64)
    slots = [np.array([w], dtype=np.int32) for w in range(3)]
    assert enters_in_order(1, slots[0], 1, 1, bound, device, marks)
    assert enters_in_order(1, slots[1], 2, 2, bound, device, marks)
    assert marks[:3].tolist() == [0b110, 0b100, 0]
    assert not enters_in_order(1, slots[2], 0, 0, bound, device, marks)


def test_a_closed_device_leaves_its_largest_entry() -> None:
    """Devices 0 and 1 hold (3, 2) and (1, 6) of computing and transfers; a cut on device 0 closes device 1 with 6."""
    load, marks = np.array([3.0, 2.0, 1.0, 6.0, 4.0, 5.0, 0.0]), np.full(3, 7, dtype=np.int64)
    closed, used = closed_at_cut(0, 0, np.ones(2, dtype=np.bool_), 1, 2, 0, 1, 0, 0b11, marks, load)
    assert (closed, used) == (0b10, 0b01)
    assert load.tolist() == [3.0, 2.0, 0.0, 0.0, 4.0, 0.0, 6.0]
    assert marks.tolist() == [0, 0, 1]


def test_what_is_out_of_reach_says_why() -> None:
    """Replicas; more devices than states can name; frontiers with too many states."""
    one = OperatorGraph([Operator("a")])

    def why(graph: OperatorGraph, devices: int, objective: MaxLoad) -> str | None:
        cluster = Cluster([Device(f"d{i}") for i in range(devices)], [Link(0.0, 1.0, link_class="same-host")])
        return why_no_modules(Problem(graph, cluster, np.ones((len(graph), devices)), objective))

    assert "replicas" in str(why(one, 2, MaxLoad(replicate=True)))
    assert "up to 12" in str(why(one, 13, MaxLoad()))
    n = 24  # a clique: every operator is in use to the end
    clique = OperatorGraph(
        [Operator(f"v{v}") for v in range(n)], [Tensor(f"t{v}", v, tuple(range(v + 1, n)), 1) for v in range(n - 1)]
    )
    assert "too few operators" in str(why(clique, 4, MaxLoad()))
    assert why(one, 12, MaxLoad()) is None


def test_a_published_network_is_proved() -> None:
    """Operator ResNet-50, contiguous, the published optimum to seven digits, from nothing: no incumbent."""
    problem = read_partitioning(workload("dnn-partitioning/throughput/op_resnet50_inference.json"))
    result = split(problem, 6)
    assert result.status is Status.OPTIMAL
    assert result.value_s == pytest.approx(0.124348780, rel=1e-6)
