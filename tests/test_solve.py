"""solve: merging, statuses, determinism, interruption."""

from __future__ import annotations

import os
import signal
import threading
import time
from math import inf
from types import FunctionType

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import placewright as pw
from placewright.algorithm import Budget, OnProgress, Progress
from placewright.result import Result
from placewright.solve import COMPILER, COMPILER_CALLBACK, _interruptible, heard_while_compiling
from placewright.solvers import SOLVERS
from placewright.solvers.entry import Entry
from placewright.verify import verify
from tests.brute_force import optimum
from tests.random_problems import problems


def _chain(n: int = 12, D: int = 2) -> pw.Problem:
    rng = np.random.default_rng(5)
    graph = pw.OperatorGraph(
        [pw.Operator(f"v{k}") for k in range(n)], [pw.Tensor(f"t{k}", k, (k + 1,), 50) for k in range(n - 1)]
    )
    cluster = pw.Cluster([pw.Device(f"d{i}") for i in range(D)], [pw.Link(0.01, 100.0, link_class="same-host")])
    return pw.Problem(graph, cluster, rng.uniform(0.5, 2.0, (n, D)))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(problems(most_operators=6))
def test_auto_ends_at_the_optimum_of_small_problems(problem: pw.Problem) -> None:
    """The merged result is worth the optimum, is proved so, passes the checker; infeasible problems say why."""
    best = optimum(problem)
    result = pw.solve(problem, budget=20)
    if np.isinf(best):
        assert result.status in (pw.Status.INFEASIBLE, pw.Status.UNKNOWN)
        assert result.plan is None
        return
    assert result.value_s == pytest.approx(best, rel=1e-8, abs=1e-8)
    assert result.lower_bound_s <= best
    assert verify(problem, result.require_plan()) == ()


@pytest.mark.parametrize("name", sorted(SOLVERS["makespan"]))
def test_every_solver_keeps_the_contract(name: str) -> None:
    """Every solver: a legal plan, a bound below it, the same plan again from the same seed and iterations."""
    problem = _chain()
    why_not = SOLVERS["makespan"][name].supports(problem)
    if why_not is not None and "install" in why_not:
        pytest.skip(why_not)
    results = [
        pw.solve(problem, solver=name, budget=Budget(iterations=2000 if name == "annealing" else 5), seed=3)
        for _ in "ab"
    ]
    for result in results:
        assert verify(problem, result.require_plan()) == ()
        assert 0 < result.lower_bound_s <= result.value_s
        assert result.require_plan().provenance.seed == 3
    first, second = (r.require_plan() for r in results)
    assert first.device_of.tolist() == second.device_of.tolist()
    assert first.schedule.start_s.tolist() == second.schedule.start_s.tolist()


def test_a_cancelled_budget_returns_the_best_plan_so_far() -> None:
    """Cancelling from another thread ends a search without limits, with a plan and the interrupted mark."""
    budget = Budget()
    threading.Timer(0.5, budget.cancelled.set).start()
    result = pw.solve(_chain(60, 3), budget=budget)
    assert result.plan is not None
    assert result.interrupted or result.status is pw.Status.OPTIMAL


def test_an_operator_that_fits_nowhere_is_named() -> None:
    """Too little memory is infeasible, not an error, and the operators that don't fit are named with their needs."""
    graph = pw.OperatorGraph([pw.Operator("small", weight_bytes=10), pw.Operator("huge", weight_bytes=3 * 2**30)])
    cluster = pw.Cluster([pw.Device("gpu", memory_bytes=2**30)])
    result = pw.solve(pw.Problem(graph, cluster, np.ones((2, 1))), budget=5)
    assert result.status is pw.Status.INFEASIBLE
    assert "'huge' needs 3 GiB" in result.infeasible
    with pytest.raises(pw.NoPlan, match="huge"):
        result.require_plan()


def test_devices_without_a_link_are_never_split_across() -> None:
    """Where no link joins two devices, connected operators stay together though the other device is idle."""
    problem = _chain(6)
    apart = pw.Problem(problem.graph, pw.Cluster(problem.cluster.devices), problem.times)
    plan = pw.solve(apart, budget=5).require_plan()
    assert len(plan.devices_used) == 1
    assert plan.value_s == pytest.approx(problem.times.processing_s.sum(axis=0).min())


def test_an_unknown_solver_is_bad_input() -> None:
    """The message lists the names that exist."""
    with pytest.raises(pw.InvalidInput, match="makespan-cp-sat"):
        pw.solve(_chain(), solver="magic")


@pytest.mark.parametrize("solver", ["auto", "scripted"])
def test_progress_never_falls_behind_what_it_has_shown(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values only fall and bounds only rise, whatever an algorithm says of itself between two reports."""

    def scripted(problem: pw.Problem, *, budget: Budget, on_progress: OnProgress, **_: object) -> Result:
        for value, bound in ((9.0, 2.0), (inf, 0.0), (8.0, 1.0), (8.5, 3.0), (8.2, 0.0)):
            on_progress(Progress("scripted", value, bound, budget.elapsed_s))
        return Result()

    entry = Entry(scripted, False, "a test's", lambda problem: None)  # type: ignore[arg-type]
    seen: list[tuple[float, float]] = []
    pw.solve(
        _chain(),
        solver=solver,
        budget=Budget(iterations=20),
        given={"scripted": entry},
        on_progress=lambda p: seen.append((p.value_s, p.lower_bound_s)),
    )
    assert len(seen) > 1
    assert seen == [(min(v for v, _ in seen[: k + 1]), max(b for _, b in seen[: k + 1])) for k in range(len(seen))]


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_in_a_callback_of_the_compiler_is_raised_behind_it() -> None:
    """An exception within it would be dropped: the callback ends, and what called it is interrupted."""
    ended = []

    def callback() -> None:
        signal.raise_signal(signal.SIGINT)
        ended.append(True)

    named = FunctionType(callback.__code__.replace(co_name=COMPILER_CALLBACK), globals(), closure=callback.__closure__)
    with pytest.raises(KeyboardInterrupt), heard_while_compiling():
        named()
        assert ended
        for _ in range(6_000):
            time.sleep(0.01)
    with pytest.raises(KeyboardInterrupt), heard_while_compiling():
        callback()
    assert len(ended) == 1


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_while_kernels_of_the_first_plan_are_compiled_interrupts_at_once() -> None:
    """Once a plan was shown it ends the search instead, and nothing is lost."""

    def compiling() -> None:
        signal.raise_signal(signal.SIGINT)

    named, budget = FunctionType(compiling.__code__.replace(co_name=COMPILER), globals()), Budget()
    with pytest.raises(KeyboardInterrupt), _interruptible(budget, []):
        named()
    assert not budget.cancelled.is_set()
    with _interruptible(budget, [Progress("heft", 1.0, 0.5, 0.1)]):
        named()
    assert budget.cancelled.is_set()
    with _interruptible(budget := Budget(), []):
        compiling()
    assert budget.cancelled.is_set()


def test_the_name_of_what_compiles_is_the_compilers() -> None:
    """It is looked for in the frames of a Ctrl-C."""
    from numba.core.dispatcher import Dispatcher

    assert callable(getattr(Dispatcher, COMPILER))
