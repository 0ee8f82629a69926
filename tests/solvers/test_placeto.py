"""Placeto: groups are legal, the policy learns where the start is bad, plans are legal and no worse than the start."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import placewright as pw
from placewright.algorithm import Budget, Progress
from placewright.arrays import arrays_of
from placewright.evaluate import plan_for
from placewright.left_running import any_left
from placewright.problem import Problem
from placewright.solvers import SOLVERS
from placewright.solvers.makespan.placeto import Placeto, Training
from placewright.solvers.makespan.placeto_groups import groups_of
from placewright.solvers.makespan.start import starting_placement
from placewright.verify import verify
from tests.brute_force import optimum
from tests.random_problems import problems

SOME = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)
SMALL = Placeto(rounds=2, workers=2)


@pytest.fixture
def torch() -> Iterator[object]:
    """The torch module, one thread of it."""
    module = pytest.importorskip("torch", reason="torch is not installed; install placewright[torch]")
    before = module.get_num_threads()
    module.set_num_threads(1)
    yield module
    module.set_num_threads(before)


def chain(n: int = 10) -> tuple[Problem, pw.Plan]:
    """Operators in a row, 4 s each on the slow device, 1 s on the fast one, and the plan that has all on the slow."""
    graph = pw.OperatorGraph(
        [pw.Operator(f"v{k}") for k in range(n)], [pw.Tensor(f"t{k}", k, (k + 1,), 10) for k in range(n - 1)]
    )
    cluster = pw.Cluster([pw.Device("slow"), pw.Device("fast")], [pw.Link(0.2, 1e3, link_class="same-host")])
    problem = pw.Problem(graph, cluster, [[4.0, 1.0]] * n)
    start = plan_for(problem, [0] * n)
    assert start is not None and start.value_s == 4.0 * n
    return problem, start


@settings(SOME, max_examples=200)
@given(problems(), st.integers(1, 6), st.integers(0, 2**31))
def test_groups_hold_whole_units_and_have_a_device(problem: Problem, most: int, seed: int) -> None:
    """However few are asked for, members of a group may share a device, and edges between groups are the operators'."""
    a, rng = arrays_of(problem), np.random.default_rng(seed)
    if not a.allowed.any(axis=1).all():
        return
    n, D = problem.times.processing_s.shape
    groups = groups_of(problem, most, rng.integers(0, D, n).astype(np.int32))
    G = len(groups.allowed)
    assert sorted(set(groups.of.tolist())) == list(range(G))
    firsts = [int(np.flatnonzero(groups.of == x)[0]) for x in range(G)]
    assert firsts == sorted(firsts)
    for x in range(G):
        members = np.flatnonzero(groups.of == x)
        assert groups.allowed[x].tolist() == problem.allowed[members].all(axis=0).tolist()
        assert groups.allowed[x].any()
        for i in np.flatnonzero(groups.allowed[x]):
            assert groups.seconds[x, i] == pytest.approx(problem.times.processing_s[members, i].sum())
    assert all(len({int(groups.of[v]) for v in members}) == 1 for members in problem.graph.colocation)
    edges = {(int(groups.of[v]), int(groups.of[t.producer])) for t in problem.graph.tensors for v in t.readers}
    assert {(y, x) for y, x in edges if y != x} == set(
        zip(*(k.tolist() for k in np.nonzero(groups.reads)), strict=True)
    )
    assert (groups.above | ~groups.reads).all()


def test_groups_keep_to_the_devices_of_the_start() -> None:
    """Of ten operators in a row, the last four on another device, two groups are the two parts; three cut one."""
    problem, _ = chain()
    device = np.array([0] * 6 + [1] * 4, dtype=np.int32)
    assert groups_of(problem, 2, device).of.tolist() == [0] * 6 + [1] * 4
    three = groups_of(problem, 3, device).of
    assert len(set(three.tolist())) == 3
    assert not set(three[:6].tolist()) & set(three[6:].tolist())


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_policy_learns_to_leave_the_slow_device(torch: object, seed: int) -> None:
    """The first episodes draw near evenly from both devices; after 40 updates all that is drawn is near the best.

    A chain of ten takes 40 s on the slow device and 10 s on the fast one; a policy that draws evenly ends near
    10 * 2.5 s and 4 or 5 transfers. The mean end must halve its distance from 10 s at least four times over.
    """
    from placewright.solvers.makespan.placeto_policy import Policy

    problem, start = chain()
    rng, training = np.random.default_rng(seed), Training(problem, start, 10)
    policy = Policy(training.groups, training.features, 4, rng)
    for k in range(40):
        assert training.update(policy, Budget(), rng, 4, 10, 0.02 * (1 - k / 40), 1e-2)
    first, last = np.mean(training.ends[:3]), np.mean(training.ends[-5:])
    assert first > 15.0
    assert last - 10.0 < (first - 10.0) / 16
    assert training.best is not None
    assert training.best.value_s == pytest.approx(10.0)


def test_nothing_is_learned_at_a_rate_of_zero(torch: object) -> None:
    """With weights that stay as drawn, the last episodes end no nearer to the best than the first: training does it."""
    from placewright.solvers.makespan.placeto_policy import Policy

    problem, start = chain()
    rng, training = np.random.default_rng(0), Training(problem, start, 10)
    policy = Policy(training.groups, training.features, 4, rng)
    for _ in range(20):
        training.update(policy, Budget(), rng, 4, 10, 0.0, 0.0)
    assert np.mean(training.ends[-10:]) - 10.0 > (np.mean(training.ends[:10]) - 10.0) / 2


@pytest.mark.slow
@SOME
@given(problems(most_operators=6), st.integers(0, 2**31))
def test_plans_are_legal_never_below_the_optimum_and_never_above_the_start(
    torch: object, problem: Problem, seed: int
) -> None:
    """Two updates, with and without a start, against brute force and the independent checker."""
    if not arrays_of(problem).allowed.any(axis=1).all():
        return
    best, start = optimum(problem), plan_for(problem, starting_placement(problem))
    for incumbent in (None, start):
        rng = np.random.default_rng(seed)
        result = SMALL(problem, budget=Budget(iterations=2), rng=rng, incumbent=incumbent)
        assert result.lower_bound_s == 0.0
        if result.plan is not None:
            assert verify(problem, result.plan) == ()
            assert result.value_s >= best * (1 - 1e-9)
        if start is not None:
            assert result.value_s <= start.value_s


def test_the_same_seed_gives_the_same_plan_and_torch_is_left_as_it_was(torch: object) -> None:
    """Neither torch's threads nor its generator move, and neither does what they were before change the plan."""
    import torch as t

    problem, start = chain()
    found = []
    for threads in (1, 2):
        t.set_num_threads(threads)
        t.manual_seed(threads)
        before = t.get_rng_state()
        result = SMALL(problem, budget=Budget(iterations=6), rng=np.random.default_rng(5), incumbent=start)
        assert t.get_num_threads() == threads
        assert t.equal(t.get_rng_state(), before)
        found.append((result.value_s, result.require_plan().device_of.tolist()))
    assert found[0] == found[1]
    assert found[0][0] < start.value_s


def test_a_cancelled_budget_ends_the_episode(torch: object) -> None:
    """Cancelled at the first better plan, the result is that plan; with no time left it is the start."""
    problem, start = chain()
    budget = Budget(iterations=10**9, cancelled=threading.Event())
    reports: list[Progress] = []

    def cancel(progress: Progress) -> None:
        reports.append(progress)
        budget.cancelled.set()

    rng = np.random.default_rng(0)
    result = SMALL(problem, budget=budget, rng=rng, incumbent=start, on_progress=cancel)
    assert [r.value_s for r in reports] == [result.value_s]
    assert SMALL(problem, budget=Budget(0.0), rng=rng, incumbent=start).plan is start


def test_a_cancelled_budget_does_not_wait_for_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """While torch is loading a cancelled search returns its start, and the loading goes on by itself."""
    problem, start = chain()
    loading, go_on = threading.Event(), threading.Event()

    def load(name: str) -> None:
        loading.set()
        go_on.wait(60.0)

    budget = Budget()
    monkeypatch.setattr("placewright.solvers.makespan.placeto.import_module", load)
    canceller = threading.Thread(target=lambda: (loading.wait(60.0), budget.cancelled.set()))
    canceller.start()
    found = Placeto()(problem, budget=budget, rng=np.random.default_rng(0), incumbent=start)
    canceller.join()
    assert found.plan is start and any_left()
    go_on.set()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.daemon and thread.name.endswith("(load)"):
            thread.join(60.0)
    assert not any_left()


def test_without_torch_the_registry_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason names the extra; nothing is imported to find out."""
    problem, _ = chain()
    monkeypatch.setattr("placewright.solvers.makespan.placeto.find_spec", lambda name: None)
    assert SOLVERS["makespan"]["placeto"].supports(problem) == (
        'it needs torch; install it with pip install "placewright[torch]"'
    )


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_with_torch_every_makespan_problem_is_taken() -> None:
    """There is no other reason against a problem."""
    assert SOLVERS["makespan"]["placeto"].supports(chain()[0]) is None
