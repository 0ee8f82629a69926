"""Large-neighbourhood search: sound, never worse than its start, and as good as trying everything on small problems."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import placewright as pw
from placewright._kernel.makespan_search import kept_cost, search_state
from placewright._kernel.path import tails
from placewright._kernel.standing import standing
from placewright._kernel.standing_kept import rebuild
from placewright.algorithm import Budget
from placewright.arrays import arrays_of
from placewright.evaluate import judge
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.solvers.makespan.large_neighbourhood import LargeNeighbourhood
from placewright.solvers.makespan.list_scheduling import heft
from placewright.solvers.makespan.start import limits_of, starting_placement
from placewright.solvers.makespan.windows import Windows
from placewright.strategy.search_and_proof import SearchAndProof
from placewright.verify import verify
from tests.brute_force import optimum
from tests.random_problems import problems

EXPLICIT = settings(max_examples=40, deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate))


def solved(
    problem: Problem, moves: int, incumbent: Plan | None = None, seed: int = 0, windows: bool = True
) -> Plan | None:
    """Search for so many moves."""
    search = LargeNeighbourhood(cycles=2, windows=windows)
    rng = np.random.default_rng(seed)
    return search(problem, budget=Budget(iterations=moves), rng=rng, incumbent=incumbent).plan


@EXPLICIT
@given(problems(most_operators=6))
def test_plans_hold_and_are_never_below_the_optimum(problem: Problem) -> None:
    """On random problems of each contention, with classes, cuts and memory: verified, not better than the optimum."""
    plan = solved(problem, 600, windows=False)
    best = optimum(problem)
    if plan is None:
        return
    assert not verify(problem, plan)
    assert judge(problem, plan).value_s <= plan.value_s
    assert plan.value_s >= best * (1.0 - 1e-12)


def test_small_problems_are_solved_to_optimality() -> None:
    """Of random problems with a plan, more than nine in ten end at the optimum after 2,000 moves and four windows."""
    reached: list[bool] = []

    @settings(max_examples=30, deadline=None, derandomize=True, phases=(Phase.generate,))
    @given(problems(most_operators=6, most_devices=2))
    def run(problem: Problem) -> None:
        best = optimum(problem)
        if np.isfinite(best):
            plan = solved(problem, 2_000)
            reached.append(plan is not None and plan.value_s <= best * (1.0 + 1e-9))

    run()
    assert len(reached) >= 15
    assert sum(reached) > 0.9 * len(reached)


def wired(n: int, devices: int, seed: int, contention: str = "link") -> Problem:
    """Random network of operators that read two of the eight before them, on unlike devices."""
    rng = np.random.default_rng(seed)
    readers: list[set[int]] = [set() for _ in range(n)]
    for v in range(1, n):
        for x in rng.integers(max(0, v - 8), v, 2):
            readers[int(x)].add(v)
    graph = pw.OperatorGraph(
        [pw.Operator(f"v{v}", weight_bytes=10) for v in range(n)],
        [pw.Tensor(f"t{v}", v, tuple(sorted(r)), 16) for v, r in enumerate(readers) if r],
    )
    cluster = pw.Cluster([pw.Device(f"d{i}") for i in range(devices)], [pw.Link(0.1, 64.0, link_class="same-host")])
    return Problem(graph, cluster, rng.uniform(0.5, 2.0, (n, devices)), pw.Makespan(contention))  # type: ignore[arg-type]


@pytest.mark.parametrize("contention", ["none", "link", "port"])
def test_never_worse_than_its_start_and_better_than_a_list_schedule(contention: str) -> None:
    """On 120 operators and four devices a few thousand moves improve on HEFT."""
    problem = wired(120, 4, 1, contention=contention)
    start = heft(problem, budget=Budget(), rng=np.random.default_rng(0)).require_plan()
    plan = solved(problem, 6_000, start, windows=False)
    assert plan is not None
    assert not verify(problem, plan)
    assert plan.value_s < start.value_s
    again = solved(problem, 50, plan, windows=False)
    assert again is not None
    assert again.value_s <= plan.value_s


def test_the_seed_and_the_iterations_decide() -> None:
    """Same seed and moves, windows included: same placement, same start times; another seed: another search."""
    problem = wired(30, 3, 2)
    first, same, other = (solved(problem, 1_500, seed=seed) for seed in (3, 3, 4))
    assert first is not None and same is not None and other is not None
    assert first.device_of.tolist() == same.device_of.tolist()
    assert first.schedule.start_s.tolist() == same.schedule.start_s.tolist()
    assert first.schedule.start_s.tolist() != other.schedule.start_s.tolist()


def test_memory_that_only_just_suffices_is_kept() -> None:
    """Weights fill 200 of 202 bytes a device, tensors of 2 bytes aside: heavy units must be packed, and stay so.

    Twelve units of 70 and twelve of 30 bytes on six devices of 202 bytes fit only as two of each a device (70 + 70 + 30
    + 30 = 200; three of 70 don't fit, and six of 30 with no 70 leave 70s without a place).
    """
    sizes = [30, 30, 70, 70] * 3 + [70, 30, 70, 30] * 3
    graph = pw.OperatorGraph(
        [pw.Operator(f"v{k}", weight_bytes=size) for k, size in enumerate(sizes)],
        [pw.Tensor(f"t{k}", k, (k + 1,), 0) for k in range(len(sizes) - 1)],
    )
    cluster = pw.Cluster(
        [pw.Device(f"d{i}", memory_bytes=202) for i in range(6)], [pw.Link(0.01, 1e9, link_class="same-host")]
    )
    problem = Problem(graph, cluster, np.random.default_rng(0).uniform(0.5, 2.0, (len(sizes), 6)))
    plan = solved(problem, 4_000, windows=False)
    assert plan is not None
    assert not verify(problem, plan)
    start = np.bincount(starting_placement(problem), weights=sizes, minlength=6)
    assert start.max() <= 202


def test_windows_only_improve() -> None:
    """Each window leaves a schedule that is no worse, timed as in full, and some are better."""
    problem = wired(40, 3, 5, contention="port")
    a = arrays_of(problem)
    g, limits = a.network, limits_of(a)
    c = standing(
        g, starting_placement(problem), np.arange(40, dtype=np.int32), np.zeros(len(g.producer), dtype=np.bool_)
    )
    rebuild(g, c, a.unit_of, a.resident)
    s = search_state(g, c, len(a.resident))
    kept_cost(g, limits, c, s)
    windows = Windows(g, limits, np.random.default_rng(0))
    low, better = tails(g)[1].min(axis=1), 0
    for _ in range(4):
        before = float(s.value[0])
        better += windows.solve(c, s, Budget(), low)
        assert s.value[0] <= before
        fresh = standing(g, c.device, c.order, c.eager)
        assert rebuild(g, fresh, a.unit_of, a.resident) == s.value[0]
        assert s.value[2] == 0.0
    assert better > 0


@EXPLICIT
@given(problems(most_operators=5, most_devices=2), st.integers(0, 3))
def test_search_and_proof_hold_together(problem: Problem, seed: int) -> None:
    """With a budget of iterations: the bound is not above the optimum, the value not below."""
    both = SearchAndProof()
    result = both(problem, budget=Budget(iterations=100), rng=np.random.default_rng(seed))
    best = optimum(problem)
    assert result.lower_bound_s <= best
    assert result.value_s >= best * (1.0 - 1e-12)
