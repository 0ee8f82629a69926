"""Modules that memory and classes couple, and times of a module that are refuted, against brute force."""

from __future__ import annotations

import numpy as np
import pytest

import placewright as pw
from placewright.algorithm import Budget
from placewright.evaluate import plan_for
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.objective import Makespan
from placewright.problem import Problem, Times
from placewright.solvers import SOLVERS
from placewright.solvers.makespan.module_refute import schedule_within
from placewright.verify import verify
from tests.brute_force import optimum

pytestmark = pytest.mark.slow

HEAVY = 10**6
"""Bytes: so much more than tensors that activations never decide what fits."""


def coupled_chain(rng: np.random.Generator, most: int = 7) -> Problem:
    """Up to three modules in a row on two or three devices that can't hold all, with classes across the modules."""
    tensors, ends, n = [], [0], 1
    for _ in range(int(rng.integers(1, 4))):
        entry, width = ends[-1], int(rng.integers(0, 3))
        last = n + width
        if last >= most:
            break
        readers = [*range(n, last), *([last] if width == 0 or rng.random() < 0.5 else [])]
        tensors.append(Tensor(f"t{entry}", entry, tuple(readers), int(rng.integers(0, 40))))
        tensors += [Tensor(f"t{v}", v, (last,), int(rng.integers(0, 40))) for v in range(n, last)]
        ends.append(last)
        n = last + 1
    D = int(rng.integers(2, 4))
    weights = rng.integers(0, 4, n)
    pool = rng.permutation(n).tolist()
    classes = [sorted(pool[:2])] if n >= 3 and rng.random() < 0.5 else []
    graph = OperatorGraph(
        [Operator(f"v{k}", weight_bytes=int(w) * HEAVY) for k, w in enumerate(weights)], tensors, classes
    )
    limits = [int(rng.integers(1, max(2, weights.sum()))) * HEAVY + HEAVY // 2 for _ in range(D)]
    times = rng.integers(0, 17, (n, D)) / 8
    times[rng.random((n, D)) < 0.1] = np.inf
    return Problem(
        graph,
        pw.Cluster(
            [pw.Device(f"d{i}", memory_bytes=limits[i]) for i in range(D)],
            [pw.Link(int(rng.integers(0, 17)) / 64, 32.0, link_class="same-host")],
        ),
        Times(times),
        Makespan(("none", "link", "port")[int(rng.integers(3))]),
    )


def test_memory_and_classes_across_modules_are_exact() -> None:
    """Value and bound meet brute force where a plan exists; where none does there is none, and no bound is too high."""
    closed = feasible = 0
    for seed in range(150):
        problem = coupled_chain(np.random.default_rng(seed))
        best = optimum(problem)
        solver = SOLVERS["makespan"]["modular-split"].algorithm
        result = solver(problem, budget=Budget(30), rng=np.random.default_rng(0))
        if np.isinf(best):
            assert result.plan is None
            continue
        feasible += 1
        assert result.lower_bound_s <= best * (1 + 1e-12)
        if result.plan is not None:
            assert verify(problem, result.plan) == ()
            assert result.value_s >= best * (1 - 1e-9)
            closed += result.value_s <= best * (1 + 1e-7) and result.lower_bound_s >= best * (1 - 1e-6)
    assert feasible > 60
    assert closed == feasible


@pytest.mark.parametrize("contention", ["none", "link", "port"])
def test_a_time_is_refuted_just_when_no_schedule_meets_it(contention: str) -> None:
    """Below the optimum there is no plan and the time is a bound; at and above it a plan within the time is found."""
    rng = np.random.default_rng(7)
    seen = 0
    while seen < 8:
        problem = coupled_chain(rng)
        free = Problem(
            OperatorGraph(
                [Operator(v.name) for v in problem.graph.operators], problem.graph.tensors, problem.graph.colocation
            ),
            pw.Cluster([pw.Device(d.name) for d in problem.cluster.devices], problem.cluster.links),
            problem.times,
            Makespan(contention),  # type: ignore[arg-type]
        )
        best = optimum(free)
        alone = [int(i) for i in np.flatnonzero(free.allowed.all(axis=0))]
        known = plan_for(free, np.full(len(free.graph), alone[0])) if alone else None
        if known is None or not 0 < best < np.inf:
            continue
        seen += 1
        for factor in (0.5, 0.99, 1.0, 1.3):
            limit = best * factor * (1 + 1e-9)
            answer = schedule_within(free, limit, known, Budget(30), np.random.default_rng(0), workers=1)
            assert answer.bound_s <= best
            if factor < 1.0:
                assert answer.plan is None
                assert answer.bound_s >= limit * (1 - 1e-9)
            else:
                assert answer.plan is not None
                assert answer.plan.value_s <= limit * (1 + 1e-9)
