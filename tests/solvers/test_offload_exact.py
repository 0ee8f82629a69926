"""The exact models of the offload latency against the optimum by trying everything, on hundreds of random problems."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from placewright.algorithm import Algorithm, Budget, Progress
from placewright.cluster import Cluster, Device, Link
from placewright.evaluate import judge, plan_for
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.io import read_partitioning
from placewright.objective import Offload
from placewright.plan import Plan
from placewright.problem import Problem, Times
from placewright.result import Status
from placewright.solvers.offload.cp_sat import OffloadCpSat
from placewright.solvers.offload.deepening import why_too_large
from placewright.solvers.offload.milp import OffloadMilp
from placewright.solvers.offload.program import build, most_calls, size_of
from tests.offload.brute_force import best_plan, optimum
from tests.offload.random_problems import offload_problems
from tests.workloads import workload

SOLVERS = [pytest.param(OffloadCpSat(), id="cp-sat"), pytest.param(OffloadMilp(), id="milp")]
MANY = settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],  # a problem of six operators is small enough to be read
)


def exact(solver: Algorithm, problem: Problem, incumbent: Plan | None = None) -> None:
    """Fail unless the solver proves the optimum that brute force finds, from below."""
    best = optimum(problem)
    result = solver(problem, budget=Budget(60), rng=np.random.default_rng(0), incumbent=incumbent)
    if np.isinf(best):
        assert result.plan is None
        assert result.status is Status.INFEASIBLE
        return
    assert result.value_s == pytest.approx(best, rel=1e-9, abs=1e-12)
    assert result.lower_bound_s <= best
    assert result.status is Status.OPTIMAL
    assert judge(problem, result.require_plan()).violations == ()


@pytest.mark.slow
@pytest.mark.parametrize("calls", [1, 2, None])
@pytest.mark.parametrize("solver", SOLVERS)
@MANY
@given(data=st.data())
def test_any_problem(solver: Algorithm, calls: int | None, data: st.DataObject) -> None:
    """One call, two calls, any number: unlike accelerators, memory, classes, pins, links that differ, none at all."""
    exact(solver, data.draw(offload_problems(calls=calls)))


@pytest.mark.slow
@pytest.mark.parametrize("solver", SOLVERS)
@MANY
@given(problem=offload_problems(alike=True, uniform_links=True, unreachable=False, infinite_times=False))
def test_alike_accelerators(solver: Algorithm, problem: Problem) -> None:
    """As in the published files: which of alike accelerators is which is fixed."""
    exact(solver, problem)


@pytest.mark.slow
@pytest.mark.parametrize("solver", SOLVERS)
@settings(MANY, max_examples=100)
@given(problem=offload_problems(most_operators=5, most_accelerators=3, alike=False, table=True))
def test_unlike_accelerators_and_links(solver: Algorithm, problem: Problem) -> None:
    """Transfer times that a table gives by tensor and pair of devices."""
    exact(solver, problem)


@pytest.mark.slow
@pytest.mark.parametrize("solver", SOLVERS)
@settings(MANY, max_examples=100)
@given(problem=offload_problems(), data=st.data())
def test_from_any_plan(solver: Algorithm, problem: Problem, data: st.DataObject) -> None:
    """From a random legal plan the optimum is proved too: what is left out as worse than that plan is worse."""
    exact(solver, problem, _drawn_plan(problem, data))


@pytest.mark.slow
@MANY
@given(problem=offload_problems(), whole=st.booleans(), own=st.integers(1, 6), data=st.data())
def test_the_plan_to_start_from_is_a_solution(problem: Problem, whole: bool, own: int, data: st.DataObject) -> None:
    """The values of a legal plan keep every row and rule; without a rest they name its value and placement."""
    plan = _drawn_plan(problem, data)
    if plan is None:
        return
    scale_s = 2.0**-20
    program = build(problem, scale_s, own, whole=whole, most_s=plan.value_s, start=plan)
    start = np.array(program.timed.start)
    for terms, lower, upper in program.timed.rows:
        assert lower - 1e-6 <= sum(c * start[x] for x, c in terms) <= upper + 1e-6
    for rule in program.timed.rules:
        if all((start[x] > 0.5) == holds for x, holds in rule.literals):
            earlier = start[rule.earlier] if rule.earlier >= 0 else 0.0
            least = earlier + rule.constant + sum(c * start[x] for x, c in rule.terms)
            assert start[rule.later] >= least - 1e-6
    value = start[program.timed.peak]
    assert start[program.timed.is_time].max(initial=0.0) == value <= program.timed.most
    assert value <= plan.value_s / scale_s + program.given_away + 1e-6
    if not program.exact:
        return
    device, call = program.placement(start)
    found = plan_for(problem, device, call_of=call)  # on the fastest CPUs
    assert found is not None and found.value_s <= plan.value_s * (1 + 1e-9) + 1e-12
    assert value * scale_s == pytest.approx(found.value_s, abs=1e-4)


@MANY
@given(problem=offload_problems(), whole=st.booleans(), own=st.integers(1, 2))
def test_the_optimum_is_a_solution_of_every_relaxation(problem: Problem, whole: bool, own: int) -> None:
    """With few own calls too, the times of the best plan are no later than its value: the bound can not be above it."""
    value, device, call = best_plan(problem)
    if np.isinf(value) or own >= most_calls(problem):
        return
    plan = plan_for(problem, device, call_of=call)
    assert plan is not None
    program = build(problem, 2.0**-20, own, whole=whole, most_s=2 * value + 1, start=plan)
    assert program.timed.start[program.timed.peak] <= value * 2.0**20 + program.given_away + 1e-6


def _drawn_plan(problem: Problem, data: st.DataObject) -> Plan | None:
    """A random placement with as few calls as it allows, or with every operator a call of its own; if it is legal."""
    unit_of, D = problem.graph.unit_of, len(problem.cluster)
    unit_device = [data.draw(st.integers(0, D - 1)) for _ in range(max(unit_of) + 1)]
    device = [unit_device[k] for k in unit_of]
    each = list(range(len(device))) if data.draw(st.booleans()) else None
    return plan_for(problem, device, call_of=each)


def chain(n: int, accelerators: int, calls: int | None = None) -> Problem:
    """Operators of 1 to 3 s, ten times that on the CPU; a third of the memory that all need on each accelerator."""
    graph = OperatorGraph(
        [Operator(f"v{k}", weight_bytes=1) for k in range(n)],
        [Tensor(f"t{k}", k, tuple(sorted({k + 1, min(n - 1, k + 3)})), 1) for k in range(n - 1)],
    )
    devices = [Device("c", "cpu"), *(Device(f"g{k}", memory_bytes=max(1, n // 3)) for k in range(accelerators))]
    seconds = 1.0 + np.arange(n) % 3
    times = np.stack([10 * seconds, *[seconds] * accelerators], axis=1)
    return Problem(graph, Cluster(devices, [Link(0.5, 4.0, link_class="same-host")]), times, Offload(calls))


@pytest.mark.parametrize("solver", SOLVERS)
def test_calls_of_no_time_do_not_wait_for_each_other(solver: Algorithm) -> None:
    """Two accelerators would need each other's output first: without an epsilon all that takes no time and is free."""
    graph = OperatorGraph(
        [Operator(v) for v in "abcd"], [Tensor("x", 0, (3,), 0), Tensor("y", 1, (2,), 0)], [(0, 2), (1, 3)]
    )
    cluster = Cluster([Device("g0"), Device("g1"), Device("c", "cpu")], [Link(0.0, 1.0, link_class="same-host")])
    seconds = np.array([[0.0, np.inf, 5.0], [np.inf, 0.0, 5.0], [0.0, np.inf, 5.0], [np.inf, 0.0, 5.0]])
    exact(solver, Problem(graph, cluster, Times(seconds), Offload(1)))
    exact(solver, Problem(graph, cluster, Times(seconds), Offload(2)))


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_second_call_where_it_pays(solver: Algorithm) -> None:
    """An operator that only the CPU runs in the middle of what one accelerator runs far faster."""
    graph = OperatorGraph([Operator(v) for v in "abc"], [Tensor("x", 0, (1,), 1), Tensor("y", 1, (2,), 1)])
    cluster = Cluster([Device("g"), Device("c", "cpu")], [Link(0.0, 4.0, link_class="same-host")])
    seconds = np.array([[1.0, 50.0], [np.inf, 1.0], [1.0, 50.0]])
    for calls, value in ((1, 52.25), (2, 3.5), (None, 3.5)):
        found = solver(
            Problem(graph, cluster, seconds, Offload(calls)), budget=Budget(60), rng=np.random.default_rng(0)
        )
        assert (found.value_s, found.status) == (value, Status.OPTIMAL)


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_result_depends_on_the_seed_alone(solver: Algorithm) -> None:
    """With a budget of iterations two runs give the same plan and the same bound."""
    problem = chain(9, 2)
    runs = [solver(problem, budget=Budget(iterations=2), rng=np.random.default_rng(3)) for _ in range(2)]
    assert runs[0].value_s == runs[1].value_s and runs[0].lower_bound_s == runs[1].lower_bound_s
    assert runs[0].require_plan().device_of.tolist() == runs[1].require_plan().device_of.tolist()


@pytest.mark.parametrize("solver", SOLVERS)
def test_progress_only_gets_better(solver: Algorithm) -> None:
    """Values and bounds that are reported on the way enclose the optimum."""
    problem, seen = chain(6, 2, 1), list[Progress]()
    best = optimum(problem)
    solver(problem, budget=Budget(60), rng=np.random.default_rng(0), on_progress=seen.append)
    assert seen
    assert all(p.lower_bound_s <= best <= p.value_s * (1 + 1e-9) for p in seen)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_cancelled_search_returns_what_it_has(solver: Algorithm) -> None:
    """Ctrl-C sets the budget's event: the plan to start from, or a better one, comes back with a bound below it."""
    problem, budget = chain(40, 4), Budget(60)
    threading.Timer(1.0, budget.cancelled.set).start()
    begun = time.monotonic()
    found = solver(problem, budget=budget, rng=np.random.default_rng(0))
    assert time.monotonic() - begun < 30
    assert found.plan is not None and found.lower_bound_s <= found.value_s


def test_too_large_a_model_is_refused() -> None:
    """The reason names the size; what is small enough is taken."""
    problem = chain(12, 2)
    assert OffloadCpSat().supports(problem) is None and OffloadMilp().supports(problem) is None
    size = size_of(problem)
    assert why_too_large(problem, size, "x") is None
    assert (
        why_too_large(problem, size - 1, "x")
        == f"the model would have about {size} variables; x takes up to {size - 1}"
    )


@pytest.mark.slow
def test_layer_bert_is_bounded_from_below() -> None:
    """The optimum of layer BERT-24 is 100.2185 ms, and neither a relaxation nor one call an accelerator says more."""
    path = workload("dnn-partitioning/offload/layer_bert24_inference.json")
    for calls in (None, 1):
        problem = read_partitioning(path, Offload(calls))
        for solver in (OffloadCpSat(), OffloadMilp()):
            found = solver(problem, budget=Budget(10), rng=np.random.default_rng(0))
            assert 0.08 < found.lower_bound_s <= 0.1002185 <= found.value_s * (1 + 1e-9)
