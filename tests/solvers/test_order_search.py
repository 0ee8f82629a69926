"""Order search against brute force, the best cut of an order against trying all cuts, and the published values."""

from __future__ import annotations

import csv
import itertools
import os
from math import inf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from placewright._kernel.order_moves import Order, random_order
from placewright._kernel.segment import cut
from placewright.algorithm import Budget
from placewright.cluster import Cluster, Device, Link
from placewright.evaluate import evaluate, plan_for
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.io.partitioning_file import read_partitioning
from placewright.objective import MaxLoad
from placewright.problem import Problem
from placewright.solvers.max_load.blocks import blocks_of
from placewright.solvers.max_load.order_search import OrderSearch
from placewright.solvers.max_load.orders import Orders, order_of
from placewright.verify import verify
from tests.max_load.brute_force import optimum
from tests.max_load.by_letters import problem_of
from tests.max_load.random_problems import max_load_problems

SOME = settings(
    max_examples=500,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)
WORKLOADS = Path(os.environ.get("PLACEWRIGHT_WORKLOADS", Path(__file__).parents[3] / "shared" / "workloads"))
EXACT = {"contiguity": "contiguous", "contiguous_cpus": True, "channels": False, "uniform_links": True}


def searched(problem, iterations, incumbent=None):
    """Result of so many orders from seed 0."""
    return OrderSearch()(
        problem, budget=Budget(iterations=iterations), rng=np.random.default_rng(0), incumbent=incumbent
    )


@pytest.mark.slow
@SOME
@given(max_load_problems(**EXACT))
def test_hundreds_of_orders_find_the_optimum_of_small_problems(problem):
    """Seven operators have few orders: the best one is met, whatever the devices and the options."""
    best, result = optimum(problem), searched(problem, 400)
    assert result.lower_bound_s == 0.0
    assert result.value_s == pytest.approx(best, rel=1e-9)
    if result.plan is not None:
        assert verify(problem, result.plan) == ()


@pytest.mark.slow
@SOME
@given(max_load_problems(), st.booleans())
def test_plans_of_any_problem_keep_its_rules(problem, with_incumbent):
    """Links by pair, channels, any contiguity: a plan that breaks no rule, never worse than the incumbent."""
    plan = plan_for(problem, np.zeros(len(problem.graph), dtype=np.int32)) if with_incumbent else None
    result = searched(problem, 20, plan)
    assert result.value_s <= (inf if plan is None else plan.value_s)
    assert result.value_s >= optimum(problem) * (1 - 1e-9)
    if result.plan is not None:
        assert verify(problem, result.plan) == ()


def chains(*times):
    """Chains of operators side by side on two devices, a byte a tensor, a byte a second."""
    operators = [Operator(f"v{k}") for k in range(sum(map(len, times)))]
    tensors, first = [], 0
    for chain in times:
        tensors += [Tensor(f"t{first + k}", first + k, (first + k + 1,), 1) for k in range(len(chain) - 1)]
        first += len(chain)
    two = Cluster([Device("d0"), Device("d1")], [Link(0.0, 1.0, link_class="same-host")])
    seconds = np.array([s for chain in times for s in chain], dtype=np.float64)
    return Problem(OperatorGraph(operators, tensors), two, seconds[:, None] * np.ones((1, 2)), MaxLoad())


@pytest.mark.parametrize("seed", range(5))
def test_the_best_cut_of_an_order_is_that_of_trying_all(seed):
    """For random orders of two chains of four the value is the least over all 8 places to change the device."""
    problem = chains([2, 5, 3, 4], [6, 2, 2, 7])
    blocks = blocks_of(problem)
    assert blocks.n_blocks == 8
    orders = Orders(blocks, np.random.default_rng(seed))
    order = random_order(order_of(blocks), seed % 3, np.random.default_rng(seed))
    value, _, _ = cut(orders.stages, orders.table, order, inf)
    tried = []
    for place in range(9):
        device = np.zeros(8, dtype=np.int32)
        device[order[place:]] = 1
        judged = evaluate(problem, device[blocks.block_of])
        assert judged.feasible
        tried.append(judged.value_s)
    assert value == pytest.approx(min(tried), rel=1e-12)
    assert cut(orders.stages, orders.table, order, value)[0] == inf
    assert cut(orders.stages, orders.table, order, value * 1.001)[0] == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_random_orders_are_topological_and_reach_all(kind):
    """Of two chains of two, every kind of order keeps both; any order at all is met by the first kind."""
    edges = np.array([[0, 2], [1, 3]])
    before = np.array([0, 0, 0, 1, 2], dtype=np.int32), np.array([0, 1], dtype=np.int32)
    after = np.array([0, 1, 2, 2, 2], dtype=np.int32), np.array([2, 3], dtype=np.int32)
    graph, rng, met = Order(*before, *after), np.random.default_rng(0), set()
    for _ in range(200):
        order = random_order(graph, kind, rng).tolist()
        assert sorted(order) == [0, 1, 2, 3]
        assert all(order.index(a) < order.index(b) for a, b in edges)
        met.add(tuple(order))
    legal = [p for p in itertools.permutations(range(4)) if all(p.index(a) < p.index(b) for a, b in edges)]
    assert len(met) == (len(legal) if kind == 0 else 2)


def test_moves_keep_orders_topological():
    """After a thousand moves the order is still one of the blocks, and its cut is the value that was reported."""
    problem = chains([2, 5, 3, 4, 4, 3], [6, 2, 2, 7], [3, 3, 9])
    blocks = blocks_of(problem)
    orders = Orders(blocks, np.random.default_rng(3))
    orders.run(Budget(), 1000, hot=0.5, cold=0.01)
    place = np.argsort(orders.order)
    assert sorted(orders.order.tolist()) == list(range(blocks.n_blocks))
    assert all(place[a] < place[b] for a, b in blocks.edges)
    assert cut(orders.stages, orders.table, orders.order, inf)[0] == orders.value_s
    assert sum(len(members) for members, _, _ in orders.best_stages()) == blocks.n_blocks


def test_the_same_seed_and_iterations_give_the_same_plan():
    """Without a limit of seconds nothing depends on the clock, and a target ends the search."""
    problem = chains([2, 5, 3, 4, 4, 3], [6, 2, 2, 7], [3, 3, 9])
    first, second = searched(problem, 150).require_plan(), searched(problem, 150).require_plan()
    assert first.device_of.tolist() == second.device_of.tolist()
    assert first.provenance.parameters == {"orders": 150}
    sure = OrderSearch(target_s=1e9)(problem, budget=Budget(iterations=150), rng=np.random.default_rng(0))
    assert sure.require_plan().provenance.parameters["orders"] < 150


def published():
    """(file, value in ms) of the contiguous workloads."""
    if not (WORKLOADS / "reference.csv").exists():
        return [pytest.param("", 0.0, marks=pytest.mark.skip(reason=f"no workloads at {WORKLOADS}"))]
    with (WORKLOADS / "reference.csv").open() as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if (row["problem"], row["method"]) == ("max-load-contiguous", "best-known")
        ]
    return [pytest.param(row["file"], float(row["value"]), id=row["file"]) for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "value"), published())
def test_a_hundred_orders_come_near_to_the_published_values(name, value):
    """Within 1 % of the optimum on every file, never below it."""
    result = searched(read_partitioning(WORKLOADS / name, MaxLoad()), 100)
    assert value * (1 - 1e-6) <= result.value_s * 1e3 <= value * 1.01


def test_one_unit_leaves_nothing_to_order() -> None:
    """A single operator is searched within seconds of budget without a flood of moves: 2 s on the faster device."""
    problem = problem_of([[3, 2]], devices="gg")
    result = OrderSearch()(problem, budget=Budget(0.3), rng=np.random.default_rng(0))
    assert result.value_s == 2.0
