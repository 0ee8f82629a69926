"""Pair search against brute force, its dynamic program against all ways to share out, and the published values."""

from __future__ import annotations

import itertools
from math import inf

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from placewright.algorithm import Budget
from placewright.bounds.max_load.hypergraph import hypergraph_of, incidence
from placewright.evaluate import evaluate, plan_for
from placewright.io.partitioning_file import read_partitioning
from placewright.objective import MaxLoad
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.max_load.pair_moves import PairMoves
from placewright.solvers.max_load.pair_search import PairSearch
from placewright.verify import verify
from tests.max_load.brute_force import optimum
from tests.max_load.random_problems import max_load_problems
from tests.workloads import workload

MANY = settings(
    max_examples=600,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)
TAKEN = {
    "contiguity": "any",
    "training": "sum",
    "overlap": "none",
    "replicate": False,
    "uniform_links": True,
    "channels": False,
}


def searched(problem: Problem, rounds: int = 30, seed: int = 0, start: object = None) -> Result:
    """Result of so many rounds."""
    budget = Budget(iterations=rounds)
    return PairSearch()(problem, budget=budget, rng=np.random.default_rng(seed), incumbent=start)  # type: ignore[arg-type]


@MANY
@given(max_load_problems(**TAKEN), st.booleans())  # type: ignore[arg-type]
def test_plans_keep_the_rules_and_are_not_better_than_the_optimum(problem: Problem, with_start: bool) -> None:
    """Unlike devices, CPUs, classes, wishes, memory: a verified plan, no worse than where it began."""
    if PairSearch().supports(problem) is not None:
        return
    start = plan_for(problem, np.zeros(len(problem.graph), dtype=np.int32)) if with_start else None
    result = searched(problem, 10, start=start)
    assert result.value_s >= optimum(problem) * (1 - 1e-9)
    assert result.value_s <= (inf if start is None else start.value_s)
    assert result.plan is None or verify(problem, result.plan) == ()


def test_most_small_problems_are_solved() -> None:
    """Without memory limits at least 97 % of 400 problems of up to seven operators end at the optimum, in 30 rounds."""
    found = []

    @settings(MANY, max_examples=400)
    @given(max_load_problems(**TAKEN, memory=False))  # type: ignore[arg-type]
    def count(problem: Problem) -> None:
        best = optimum(problem)
        if PairSearch().supports(problem) is None and best < inf:
            found.append(searched(problem).value_s <= best * (1 + 1e-9))

    count()
    assert len(found) > 100
    assert sum(found) >= 0.97 * len(found)


@pytest.mark.parametrize("seed", range(40))
def test_the_ways_to_share_out_are_the_pareto_front_of_all(seed: int) -> None:
    """With buckets for every load: of all 2^n ways no one has less on both devices, tensors to others included."""
    rng = np.random.default_rng(seed)
    n, E, D = 8, 9, 3
    ends = sorted({tuple(sorted(rng.choice(n, int(rng.integers(2, 5)), replace=False).tolist())) for _ in range(E)})
    time, weight = rng.integers(1, 9, (D, n)).astype(float), rng.integers(1, 6, (D, len(ends))).astype(float)
    if seed % 2:
        weight[1] = 0.0  # a device that does not pay
    h = hypergraph_stub(time, weight, ends)
    order = rng.permutation(n).astype(np.int32)
    moves = PairMoves(h, incidence(n, ends), [order], np.zeros(n), np.full(D, inf), 1e6, 4096)
    device = rng.integers(0, D, n).astype(np.int32)
    mine = np.flatnonzero(device != 2)
    all_loads = []
    for bits in itertools.product((0, 1), repeat=len(mine)):
        tried = device.copy()
        tried[mine] = bits
        all_loads.append(tuple(loads_by_hand(time, weight, ends, tried)[:2].tolist()))
    limit = float(np.median([max(pair) for pair in all_loads]))
    within = sorted({pair for pair in all_loads if max(pair) <= limit})
    front = [p for p in within if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in within)]
    choice = moves.choice(device, (0, 1), limit, 0)
    assert [tuple(row) for row in choice.loads.tolist()] == front
    for k, pair in enumerate(front):
        made = choice.placement(k)
        assert made is not None
        assert tuple(loads_by_hand(time, weight, ends, made)[:2].tolist()) == pair
        assert moves.loads(made).tolist() == loads_by_hand(time, weight, ends, made).tolist()


def hypergraph_stub(time, weight, ends):  # type: ignore[no-untyped-def]
    """Every device a kind of its own."""
    from placewright.bounds.max_load.hypergraph import Hypergraph

    D, n = time.shape
    kinds, groups = tuple((i,) for i in range(D)), tuple((v,) for v in range(n))
    return Hypergraph(kinds, np.ones(D, dtype=bool), time, tuple(ends), weight, groups, True)


def loads_by_hand(time, weight, ends, device):  # type: ignore[no-untyped-def]
    """Loads, from their definition."""
    loads = np.zeros(len(time))
    for v, i in enumerate(device.tolist()):
        loads[i] += time[i, v]
    for e, row in enumerate(ends):
        used = {int(device[v]) for v in row}
        for i in used if len(used) > 1 else ():
            loads[i] += weight[i, e]
    return loads


@MANY
@given(max_load_problems(**{**TAKEN, "memory": False}))  # type: ignore[arg-type]
def test_loads_of_a_hypergraph_are_those_of_the_judge(problem: Problem) -> None:
    """Where it says that it is exact; and never more than the judge's."""
    h = hypergraph_of(problem)
    rng = np.random.default_rng(len(h))
    kind = {i: c for c, alike in enumerate(h.kinds) for i in alike}
    rows = [kind[i] for i in range(len(problem.cluster))]
    device = rng.integers(0, len(rows), len(h)).astype(np.int32)
    unit_of = np.array(problem.graph.unit_of)
    judged = evaluate(problem, device[unit_of])
    found = loads_by_hand(h.time[rows], h.weight[rows], h.ends, device)
    theirs = np.array([use.loads[0].load_s for use in judged.devices])
    assert (found <= theirs * (1 + 1e-12)).all() or not np.isfinite(found).all()
    if h.exact and np.isfinite(found).all():
        assert found == pytest.approx(theirs, rel=1e-12)


def test_the_same_seed_and_rounds_give_the_same_plan() -> None:
    """Without a limit of seconds nothing depends on the clock."""
    path = workload("dnn-partitioning/throughput/layer_bert24_inference.json")
    problem = read_partitioning(path, MaxLoad("any"))
    first, second = searched(problem, 3), searched(problem, 3)
    assert first.require_plan().device_of.tolist() == second.require_plan().device_of.tolist()
    assert first.require_plan().provenance.parameters == second.require_plan().provenance.parameters
