"""The lattice of ideals against brute force, closed forms and the published values."""

from __future__ import annotations

import csv
import logging
import os
from math import comb, inf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from placewright._kernel.ideals import Ideals
from placewright.algorithm import Budget
from placewright.cluster import Cluster, Device, Link
from placewright.evaluate import judge, plan_for
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.io.partitioning_file import read_partitioning
from placewright.objective import MaxLoad
from placewright.problem import Problem
from placewright.result import Status
from placewright.solvers.max_load.blocks import blocks_of, bounds_hold, exactly_modelled, in_order
from placewright.solvers.max_load.ideal_dp import IdealDp
from placewright.solvers.max_load.lattice import all_ideals, fractional_bound
from placewright.solvers.max_load.orders import order_of
from placewright.verify import verify
from tests.max_load.brute_force import optimum
from tests.max_load.random_problems import max_load_problems

MANY = settings(
    max_examples=400,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)
SOME = settings(MANY, max_examples=200)
WORKLOADS = Path(os.environ.get("PLACEWRIGHT_WORKLOADS", Path(__file__).parents[3] / "shared" / "workloads"))
EXACT = {"contiguity": "contiguous", "contiguous_cpus": True, "channels": False, "uniform_links": True}


def solved(problem, *, iterations=1, incumbent=None, solver=None):
    """Result with an own search of so many orders: one makes a poor incumbent, which leaves the lattice much to do."""
    run = solver or IdealDp()
    return run(problem, budget=Budget(iterations=iterations), rng=np.random.default_rng(0), incumbent=incumbent)


def exact(problem, iterations):
    """Plan and bound are the optimum; the bound is never above it."""
    best, result = optimum(problem), solved(problem, iterations=iterations)
    assert result.lower_bound_s <= best
    if best == inf:
        assert result.plan is None and result.status is Status.INFEASIBLE
        return
    assert result.value_s == pytest.approx(best, rel=1e-8, abs=1e-12)
    assert result.lower_bound_s >= best * (1 - 1e-8)
    assert verify(problem, result.require_plan()) == ()


@pytest.mark.slow
@MANY
@given(max_load_problems(**EXACT), st.sampled_from([1, 30]))
def test_any_devices_memory_wishes_overlap_and_passes_are_exact(problem, iterations):
    """Unlike devices and CPUs, every option of the objective: the optimum of brute force, and a bound equal to it."""
    exact(problem, iterations)


@pytest.mark.slow
@MANY
@given(max_load_problems(most_devices=4, alike=True, replicate=True, **EXACT), st.sampled_from([1, 30]))
def test_replicas_are_exact(problem, iterations):
    """Up to four alike devices that may run copies, with synchronisation when training."""
    exact(problem, iterations)


@pytest.mark.slow
@MANY
@given(max_load_problems(most_devices=4, backward=True, training="separate", **EXACT), st.sampled_from([1, 30]))
def test_passes_that_count_apart_are_exact(problem, iterations):
    """The largest forward load plus the largest backward load, by pairs that no other pair beats."""
    exact(problem, iterations)


@pytest.mark.slow
@SOME
@given(max_load_problems(most_operators=9, **EXACT), st.sampled_from([1, 30]))
def test_wider_orders_are_exact(problem, iterations):
    """Nine operators: more ideals, more leaves that join their neighbours."""
    exact(problem, iterations)


@pytest.mark.slow
@MANY
@given(max_load_problems())
def test_no_bound_is_above_the_optimum_of_any_problem(problem):
    """Links by pair, shared channels, any contiguity: a bound below the optimum or none, plans that the judge takes."""
    best, result = optimum(problem), solved(problem)
    assert result.lower_bound_s <= best
    assert result.value_s >= best * (1 - 1e-9)
    if not bounds_hold(problem):
        assert result.lower_bound_s == 0.0 and result.bounds == {} and not result.infeasible
    if result.plan is not None:
        assert verify(problem, result.plan) == ()
        noted = result.plan.provenance.parameters["exact"]
        assert noted == (bounds_hold(problem) and exactly_modelled(problem))


@pytest.mark.slow
@SOME
@given(max_load_problems(contiguity="contiguous", contiguous_cpus=True), st.integers(1, 40))
def test_too_many_ideals_leave_a_plan_and_a_valid_bound(problem, most):
    """With room for a few ideals only, nothing is claimed that is not so: the bound stays below, exact is false."""
    best, result = optimum(problem), solved(problem, solver=IdealDp(most_ideals=most))
    assert result.lower_bound_s <= best
    assert result.value_s >= best * (1 - 1e-9)
    if result.plan is not None and "cut_short" in result.plan.provenance.parameters:
        assert result.plan.provenance.parameters["exact"] is False


@SOME
@given(max_load_problems(**EXACT), st.integers(0, 2**32 - 1))
def test_a_given_incumbent_is_never_made_worse(problem, seed):
    """From any plan of the problem the result is the optimum all the same."""
    rng = np.random.default_rng(seed)
    device = rng.integers(0, len(problem.cluster), size=max(problem.graph.unit_of) + 1)
    plan = plan_for(problem, device[list(problem.graph.unit_of)])
    result = solved(problem, incumbent=plan)
    assert result.value_s <= (inf if plan is None else plan.value_s)
    assert result.value_s == pytest.approx(solved(problem).value_s, rel=1e-8)


def grid(width, length):
    """``width`` chains of ``length`` operators side by side."""
    operators = [Operator(f"v{k}") for k in range(width * length)]
    tensors = [
        Tensor(f"t{w}.{k}", w * length + k, (w * length + k + 1,), 1) for w in range(width) for k in range(length - 1)
    ]
    return OperatorGraph(operators, tensors)


def alike(n_devices, **options):
    """Alike devices, a byte a second."""
    return Cluster([Device(f"d{i}", **options) for i in range(n_devices)], [Link(0.0, 1.0, link_class="same-host")])


@pytest.mark.parametrize(("width", "length"), [(1, 7), (2, 5), (3, 4), (4, 3)])
def test_every_ideal_is_enumerated_once(width, length):
    """w chains of n have (n + 1)^w ideals, all different, each a parent and one element; antichains 2^n."""
    problem = Problem(grid(width, length), alike(2), np.full((width * length, 2), 2.0), MaxLoad())
    ideals = all_ideals(order_of(blocks_of(problem)), Budget(), 10_000)
    assert isinstance(ideals, Ideals) and len(ideals.parent) == (length + 1) ** width
    assert len({tuple(row) for row in ideals.bits.tolist()}) == len(ideals.parent)
    for k in range(1, len(ideals.parent)):
        v, parent = int(ideals.last[k]), int(ideals.parent[k])
        assert parent < k
        assert int(ideals.bits[k, 0]) == int(ideals.bits[parent, 0]) | 1 << v


def test_ideals_of_a_reach_are_those_near_to_the_order():
    """Ten loose operators: 2^10 ideals whole, and fewer the shorter the reach; one leaves the order alone."""
    cut_short = grid(10, 1)
    problem = Problem(cut_short, alike(2), np.ones((10, 2)), MaxLoad())
    blocks, order = blocks_of(problem), np.arange(10, dtype=np.int32)[::-1].copy()
    counts = [len(all_ideals(order_of(in_order(blocks, order, reach)), Budget(), 5000).parent) for reach in (1, 2, 10)]
    assert counts[0] == 11 and counts[2] == sum(comb(10, k) for k in range(11))
    assert counts[0] < counts[1] < counts[2]


def test_a_chain_of_equal_operators_is_shared_out_evenly():
    """12 operators of 1 s on 4 devices without transfers: 3 s; with transfers of 1 s an inner stage takes 5 s."""
    times = np.ones((12, 4))
    free = Problem(OperatorGraph([Operator(f"v{k}") for k in range(12)], []), alike(4), times, MaxLoad())
    paid = Problem(grid(1, 12), alike(4), times, MaxLoad())
    assert solved(free).value_s == pytest.approx(3.0, rel=1e-9)
    assert solved(paid).value_s == pytest.approx(5.0, rel=1e-9)


def test_leaves_join_their_neighbours_only_where_nothing_is_lost():
    """A free leaf joins; one that holds memory that may bind, or that costs more than its transfer, does not."""
    graph = OperatorGraph([Operator("a", weight_bytes=1), Operator("b", weight_bytes=2)], [Tensor("t", 0, (1,), 1)])
    free, dear = np.array([[0.0, 0.0], [3.0, 3.0]]), np.array([[1.5, 1.5], [3.0, 3.0]])
    assert blocks_of(Problem(graph, alike(2), free, MaxLoad())).n_blocks == 1
    assert blocks_of(Problem(graph, alike(2), dear, MaxLoad())).n_blocks == 2
    tight = Problem(graph, alike(2, memory_bytes=2), free, MaxLoad())
    assert blocks_of(tight).n_blocks == 2
    assert blocks_of(tight, forget=True).n_blocks == 1 and blocks_of(tight, forget=True).forgetful
    assert solved(tight).value_s == pytest.approx(4.0, rel=1e-9)


def test_more_ideals_than_room_are_reported(caplog):
    """40 loose operators have 2^40 ideals: a plan, the bound of fractional assignment, a warning and no claim."""
    rng = np.random.default_rng(1)
    times = rng.integers(1, 60, size=(40, 1)) * np.ones((1, 3))
    problem = Problem(grid(40, 1), alike(3), times, MaxLoad())
    with caplog.at_level(logging.WARNING):
        result = solved(problem, iterations=60, solver=IdealDp(most_ideals=20_000))
    assert "20,000 ideals" in caplog.text
    plan = result.require_plan()
    assert plan.provenance.parameters["exact"] is False and "20,000" in plan.provenance.parameters["cut_short"]
    assert 0 < result.lower_bound_s <= fractional_bound(blocks_of(problem)) <= result.value_s < inf


def test_a_budget_that_is_spent_leaves_what_is_known():
    """Without time there is the incumbent and no more than a bound that holds; cancelled in mid-walk the same."""
    problem = Problem(grid(3, 4), alike(2), np.ones((12, 2)), MaxLoad())
    plan = plan_for(problem, np.zeros(12, dtype=np.int32))
    result = IdealDp()(problem, budget=Budget(0.0), rng=np.random.default_rng(0), incumbent=plan)
    assert result.plan is plan and result.lower_bound_s <= 6.0
    budget = Budget(iterations=1)
    seen = []

    def stop(progress):
        seen.append(progress)
        budget.cancelled.set()

    cut = IdealDp()(problem, budget=budget, rng=np.random.default_rng(0), incumbent=plan, on_progress=stop)
    assert seen and cut.value_s <= 12.0 and cut.lower_bound_s <= 6.0 + 2.0


def test_the_same_seed_gives_the_same_plan():
    """With a number of orders instead of seconds, nothing depends on the clock."""
    problem = Problem(grid(3, 4), alike(3), np.arange(1.0, 13.0)[:, None] * np.ones((1, 3)), MaxLoad())
    plans = [solved(problem, iterations=40).require_plan() for _ in range(2)]
    assert plans[0].device_of.tolist() == plans[1].device_of.tolist()


def published():
    """(file, value in ms) of the contiguous workloads, and of the offload folder's files as max-load problems."""
    if not (WORKLOADS / "reference.csv").exists():
        return [pytest.param("", 0.0, marks=pytest.mark.skip(reason=f"no workloads at {WORKLOADS}"))]
    wanted = {("max-load-contiguous", "best-known"), ("max-load-of-offload-file", "published-dp")}
    with (WORKLOADS / "reference.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if (row["problem"], row["method"]) in wanted]
    return [pytest.param(row["file"], float(row["value"]), id=row["file"]) for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "value"), published())
def test_published_values(name, value):
    """Every published file is solved to its value and proved, the plan is one that the checker takes."""
    problem = read_partitioning(WORKLOADS / name, MaxLoad())
    result = IdealDp()(problem, budget=Budget(60.0), rng=np.random.default_rng(0))
    assert result.value_s * 1e3 == pytest.approx(value, rel=1e-6)
    assert result.status is Status.OPTIMAL
    assert judge(problem, result.require_plan()).violations == ()
