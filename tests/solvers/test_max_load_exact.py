"""The exact models of the max-load against the optimum by trying everything, on hundreds of random problems each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from placewright.algorithm import Algorithm, Budget, Progress
from placewright.cluster import Cluster, Device, Link
from placewright.evaluate import judge, plan_for
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.objective import MaxLoad
from placewright.problem import Problem, Times
from placewright.result import Status
from placewright.solvers.max_load.cp_sat import LoadCpSat
from placewright.solvers.max_load.milp import LoadMilp
from placewright.solvers.max_load.program import build
from tests.max_load.brute_force import optimum
from tests.max_load.by_letters import problem_of
from tests.max_load.random_problems import max_load_problems

HALF = Link(0.5, 2.0, link_class="same-host")
SOLVERS = [pytest.param(LoadCpSat(), id="cp-sat"), pytest.param(LoadMilp(), id="milp")]
MANY = settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],  # a problem of six operators is small enough to be read
)


def exact(solver: Algorithm, problem: Problem, budget: Budget | None = None) -> None:
    """Fail unless the solver proves the optimum that brute force finds, from below."""
    best = optimum(problem)
    result = solver(problem, budget=budget or Budget(60), rng=np.random.default_rng(0))
    if np.isinf(best):
        assert result.plan is None
        assert result.status is Status.INFEASIBLE
        return
    assert result.value_s == pytest.approx(best, rel=1e-9, abs=1e-12)
    assert result.lower_bound_s <= best
    assert result.status is Status.OPTIMAL
    assert judge(problem, result.require_plan()).violations == ()


@pytest.mark.slow
@pytest.mark.parametrize("solver", SOLVERS)
@MANY
@given(problem=max_load_problems(contiguity="contiguous", replicate=False))
def test_contiguous(solver: Algorithm, problem: Problem) -> None:
    """Devices in a chain whose order is free, CPUs in it or not, memory, pins, links that differ by pair, channels."""
    exact(solver, problem)


@pytest.mark.slow
@pytest.mark.parametrize("solver", SOLVERS)
@MANY
@given(problem=max_load_problems(contiguity="contiguous", contiguous_cpus=False, most_devices=4, replicate=False))
def test_contiguous_with_cpus_anywhere(solver: Algorithm, problem: Problem) -> None:
    """Accelerators in a chain, operators on CPUs before, between and behind them."""
    exact(solver, problem)


@pytest.mark.slow
@pytest.mark.parametrize("solver", SOLVERS)
@MANY
@given(problem=max_load_problems(contiguity="convex", replicate=False))
def test_convex(solver: Algorithm, problem: Problem) -> None:
    """No path leaves a device and comes back, though no order of the devices need exist."""
    exact(solver, problem)


@pytest.mark.slow
@pytest.mark.parametrize("solver", SOLVERS)
@MANY
@given(problem=max_load_problems(contiguity="any", most_devices=4, replicate=False))
def test_not_contiguous(solver: Algorithm, problem: Problem) -> None:
    """Any placement, with every other feature."""
    exact(solver, problem)


@pytest.mark.slow
@pytest.mark.parametrize("solver", SOLVERS)
@MANY
@given(problem=max_load_problems(alike=True, uniform_links=True, channels=False, most_devices=4, replicate=False))
def test_alike_devices(solver: Algorithm, problem: Problem) -> None:
    """As in the published files: accelerators that can be exchanged, and nets with equal ends merged."""
    exact(solver, problem)


@pytest.mark.slow
@pytest.mark.parametrize("solver", SOLVERS)
@MANY
@given(problem=max_load_problems(alike=False, backward=True, training="separate", replicate=False))
def test_passes_apart_on_unlike_devices(solver: Algorithm, problem: Problem) -> None:
    """The largest forward load plus the largest backward load, on devices that are all different."""
    exact(solver, problem)


@pytest.mark.slow
@pytest.mark.parametrize("solver", SOLVERS)
@settings(MANY, max_examples=100)
@given(problem=max_load_problems(replicate=False), data=st.data())
def test_from_any_plan(solver: Algorithm, problem: Problem, data: st.DataObject) -> None:
    """From a random legal plan the optimum is proved too: what is left out as worse than that plan is worse."""
    device = np.array([data.draw(st.integers(0, len(problem.cluster) - 1)) for _ in problem.graph.operators])
    incumbent = plan_for(problem, device[[problem.graph.unit_of.index(k) for k in problem.graph.unit_of]])
    best = optimum(problem)
    result = solver(problem, budget=Budget(60), rng=np.random.default_rng(0), incumbent=incumbent)
    assert (result.plan is None) == np.isinf(best)
    assert result.plan is None or result.status is Status.OPTIMAL
    assert result.lower_bound_s <= best


@pytest.mark.slow
@MANY
@given(problem=max_load_problems(replicate=False), whole=st.booleans(), data=st.data())
def test_the_plan_to_start_from_is_a_solution(problem: Problem, whole: bool, data: st.DataObject) -> None:
    """The values that variables get for a legal placement keep every row and name its value and its devices."""
    unit_of = problem.graph.unit_of
    unit_device = [data.draw(st.integers(0, len(problem.cluster) - 1)) for _ in range(max(unit_of) + 1)]
    plan = plan_for(problem, [unit_device[k] for k in unit_of])
    if plan is None:
        return
    program = build(problem, 2.0**-20, whole=whole, incumbent=unit_device)
    start = np.array(program.start)
    assert program.started
    for terms, lower, upper in program.rows:
        assert lower - 1e-6 <= sum(c * start[x] for x, c in terms) <= upper + 1e-6
    value = sum(start[k] for k in program.peaks) * 2.0**-20
    assert value == pytest.approx(plan.value_s, abs=1e-4)
    found = plan_for(problem, program.unit_devices(start)[list(unit_of)])
    assert found is not None
    assert found.value_s == pytest.approx(plan.value_s)


def chain(n: int, devices: int, objective: MaxLoad) -> Problem:
    """Operators of 2 s each in a chain of tensors of 1 s."""
    tensors = [Tensor(f"t{v}", v, (v + 1,), 1) for v in range(n - 1)]
    cluster = Cluster([Device(f"gpu{i}") for i in range(devices)], [Link(0.0, 1.0, link_class="same-host")])
    graph = OperatorGraph([Operator(f"v{v}") for v in range(n)], tensors)
    return Problem(graph, cluster, np.full((n, devices), 2.0), objective)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("contiguity", ["contiguous", "convex", "any"])
def test_a_chain_on_three_devices(solver: Algorithm, contiguity: str) -> None:
    """The inner device takes two operators and two transfers, 2 x 2 + 2 s; the outer ones three, 3 x 2 + 1 = 7 s."""
    problem = chain(8, 3, MaxLoad(contiguity))  # type: ignore[arg-type]
    result = solver(problem, budget=Budget(60), rng=np.random.default_rng(0))
    assert result.value_s == 7.0
    assert result.status is Status.OPTIMAL
    assert result.bounds[result.solver] == result.lower_bound_s <= 7.0


@pytest.mark.parametrize("solver", SOLVERS)
def test_times_of_nanoseconds_and_of_hours_together(solver: Algorithm) -> None:
    """A transfer of 1e12 times an operator's time overflows nothing: both operators stay together, for 2e-9 s."""
    graph = OperatorGraph([Operator("a"), Operator("b")], [Tensor("x", 0, (1,), 1)])
    cluster = Cluster([Device("g0"), Device("g1")], [Link(0.0, 1.0, link_class="same-host")])
    transfer = np.array([[[0.0, 1e3], [1e3, 0.0]]])
    problem = Problem(graph, cluster, Times(np.full((2, 2), 1e-9), transfer), MaxLoad())
    result = solver(problem, budget=Budget(60), rng=np.random.default_rng(0))
    assert result.value_s == 2e-9
    assert result.status is Status.OPTIMAL


@pytest.mark.parametrize("solver", SOLVERS)
def test_replicas_are_left_to_others(solver: LoadCpSat | LoadMilp) -> None:
    """A problem with replicas is refused, and the reason says who takes it."""
    reason = solver.supports(chain(3, 2, MaxLoad(replicate=True)))
    assert reason is not None
    assert "ideal-dp" in reason


@pytest.mark.parametrize("solver", SOLVERS)
def test_progress_and_cancelling(solver: Algorithm) -> None:
    """Reports have bounds below values; a budget that is cancelled from the start returns the incumbent, unharmed."""
    problem = chain(12, 3, MaxLoad("any"))
    reports: list[Progress] = []
    solver(problem, budget=Budget(60), rng=np.random.default_rng(0), on_progress=reports.append)
    assert reports
    assert all(r.lower_bound_s <= r.value_s for r in reports)
    incumbent, budget = plan_for(problem, [0] * 12), Budget(60)
    budget.cancelled.set()
    result = solver(problem, budget=budget, rng=np.random.default_rng(0), incumbent=incumbent)
    assert result.value_s <= 24.0
    assert result.lower_bound_s <= 10.0  # four operators a device, two transfers for the inner one


@pytest.mark.parametrize("solver", SOLVERS)
def test_cancelled_while_it_runs(solver: Algorithm) -> None:
    """A search that is cancelled by its first report returns a legal plan and a bound that holds; 7 s is best."""
    problem, budget = chain(8, 3, MaxLoad("any")), Budget(60)
    result = solver(
        problem, budget=budget, rng=np.random.default_rng(0), on_progress=lambda report: budget.cancelled.set()
    )
    assert budget.cancelled.is_set()
    assert judge(problem, result.require_plan()).violations == ()
    assert result.lower_bound_s <= 7.0 <= result.value_s


def test_iterations_make_results_repeatable() -> None:
    """Under a budget of iterations two runs return the same bytes."""

    def runs(solver: Algorithm) -> Iterator[bytes]:
        for _ in range(2):
            result = solver(chain(12, 3, MaxLoad("any")), budget=Budget(iterations=3), rng=np.random.default_rng(5))
            yield result.require_plan().device_of.tobytes() + np.float64(result.lower_bound_s).tobytes()

    for solver in (LoadCpSat(), LoadMilp()):
        first, second = runs(solver)
        assert first == second


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_program_that_presolve_solves(solver: Algorithm) -> None:
    """c on the CPU takes 3 s beside ab and d: 3 s for both passes together. HiGHS 1.16 returned the start, of 4 s."""
    options = {"contiguous_cpus": False, "training": "separate", "overlap": "transfers"}
    seconds = [[0, 0, 3], [0, 0, 1], [1, 1, 3], [3, 3, 3]]
    problem = problem_of(
        seconds, [("ab", 0), ("bd", 0), ("cd", 0)], options, devices="ggc", links=(HALF,), tied=["ad"], backward="cd"
    )
    exact(solver, problem)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_program_that_presolve_spoilt(solver: Algorithm) -> None:
    """Unlike links of a table, and a channel: 4 s. CP-SAT 9.15 with presolve claimed that 5 s is best."""
    inf = float("inf")
    first = [[4, inf, 1, 0], [0, 4, inf, 3], [1, 0, 4, 3], [2, 1, 1, 4]]
    second = [[1, 3, 3, 0], [3, 1, 3, 2], [1, 0, 1, 3], [2, 0, 0, 1]]
    operators = [
        Operator("a", kv_cache_bytes=1),
        *(Operator(x, weight_bytes=w) for x, w in zip("bcde", (2, 2, 1, 2), strict=True)),
    ]
    graph = OperatorGraph(operators, [Tensor("t", 0, (1, 2, 3), 1), Tensor("u", 2, (3, 4), 4)])
    devices = [Device(f"g{i}", host="B", memory_bytes=3) for i in range(2)]
    devices += [Device(f"c{i}", kind="cpu", host="A") for i in range(2)]
    links = [Link(0.0, 2.0, link_class="same-host"), Link(0.5, 2.0, link_class="between-hosts", channel="nic")]
    seconds = [[3, 3, 2, 2], [3, 3, 3, 3], [3, 3, 3, 3], [inf, inf, 3, 3], [3, 3, 1, 1]]
    times = Times(np.array(seconds, dtype=float), np.array([first, second], dtype=float))
    exact(solver, Problem(graph, Cluster(devices, links), times, MaxLoad("any", overlap="full")))
