"""Annealing of splits into calls: its judge, its plans, and what stops it."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from placewright import Problem
from placewright._kernel.calls import split_latency
from placewright.algorithm import Budget, OnProgress, ignore
from placewright.evaluate import evaluate, judge, plan_for
from placewright.evaluate.offload import fewest_calls
from placewright.offloads import offloads_of
from placewright.result import Result
from placewright.solvers.offload.call_annealing import CallAnnealing
from placewright.solvers.offload.call_network import call_network, devices_of, places_of
from placewright.verify import verify
from tests.offload.brute_force import optimum
from tests.offload.random_problems import offload_problems


def examples(count: int) -> settings:
    quiet = HealthCheck.too_slow, HealthCheck.data_too_large
    phases = Phase.explicit, Phase.generate
    return settings(max_examples=count, deadline=None, derandomize=True, phases=phases, suppress_health_check=quiet)


def annealed(problem: Problem, moves: int, seed: int = 0, seen: OnProgress = ignore) -> Result:
    return CallAnnealing()(problem, budget=Budget(iterations=moves), rng=np.random.default_rng(seed), on_progress=seen)


@examples(500)
@given(offload_problems(most_operators=8, most_accelerators=3), st.randoms(use_true_random=False))
def test_kernel_is_the_judge(problem: Problem, random: object) -> None:
    """The kernel's latency and calls of any placement are those of the judge, unlike links and circles included."""
    o, network = offloads_of(problem), call_network(problem)[0]
    rng, n = np.random.default_rng(random.getrandbits(32)), len(problem.graph)  # type: ignore[attr-defined]
    assume(len(o.accelerator) or (o.cpu_device >= 0).all())
    device = np.array([rng.choice(np.append(o.accelerator, c) if c >= 0 else o.accelerator) for c in o.cpu_device])
    call = np.zeros(n, dtype=np.int32)
    value = split_latency(network, places_of(o, device), n, call)
    judged = evaluate(problem, device)
    assert np.array_equal(call, fewest_calls(problem, device))
    assert value == judged.value_s or abs(value - judged.value_s) <= 1e-12 * value
    assert np.array_equal(devices_of(o, places_of(o, device)), device)


@examples(300)
@given(offload_problems(most_operators=6))
def test_plans(problem: Problem) -> None:
    """A plan passes the independent check, has the value that it says, and is not below the optimum."""
    result = annealed(problem, 300)
    if result.plan is not None:
        assert verify(problem, result.plan) == ()
        assert judge(problem, result.plan).value_s == result.value_s
        assert result.value_s >= optimum(problem) * (1.0 - 1e-12)


@examples(100)
@given(offload_problems(most_operators=6, calls=1, cpus=1, memory=False, infinite_times=False, pins=False))
def test_close_to_the_optimum(problem: Problem) -> None:
    """Short coolings from all on CPUs end near the optimum: with one call the fewest calls are all that there are."""
    search, rng = CallAnnealing(first=300), np.random.default_rng(0)
    assert search(problem, budget=Budget(iterations=5000), rng=rng).value_s <= optimum(problem) * 1.3 + 1e-12


@examples(50)
@given(offload_problems(most_operators=6))
def test_never_worse_and_repeatable(problem: Problem) -> None:
    """The incumbent is kept, and a seed and a number of moves give one result."""
    first, again = annealed(problem, 200, 1), annealed(problem, 200, 1)
    assert first.value_s == again.value_s
    if first.plan is not None:
        assert again.plan is not None
        assert np.array_equal(first.plan.device_of, again.plan.device_of)
        kept = CallAnnealing()(
            problem, budget=Budget(iterations=50), rng=np.random.default_rng(0), incumbent=first.plan
        )
        assert kept.value_s <= first.value_s
        none = CallAnnealing()(problem, budget=Budget(0.0), rng=np.random.default_rng(0), incumbent=first.plan)
        assert none.plan is first.plan
        assert plan_for(problem, first.plan.device_of, call_of=first.plan.call_of) is not None
