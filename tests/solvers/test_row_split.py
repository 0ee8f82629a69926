"""The best split of a row against every split, and beside what a language model's layers are split into by hand."""

from __future__ import annotations

from itertools import combinations_with_replacement, permutations

import numpy as np
import pytest

from placewright.algorithm import Budget
from placewright.cluster import Cluster, Device, Link
from placewright.evaluate import plan_for
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.problem import Problem
from placewright.result import Result
from placewright.solve import solve
from placewright.solvers.makespan.row_split import row_split, why_no_row


def chain(rng: np.random.Generator, n: int = 8, devices: int = 3, colocated: bool = False) -> Problem:
    """Operators in a row with weights, on devices that hold about half of them."""
    operators = [Operator(f"v{k}", weight_bytes=int(rng.integers(1, 5))) for k in range(n)]
    tensors = [Tensor(f"t{k}", k, (k + 1,), 0) for k in range(n - 1)]
    held = sum(v.weight_bytes for v in operators)
    cluster = Cluster(
        [Device(f"d{i}", memory_bytes=held // 2 + i) for i in range(devices)], [Link(0.5, 1e9, link_class="same-host")]
    )
    graph = OperatorGraph(operators, tensors, [(1, 3)] if colocated else [])
    return Problem(graph, cluster, rng.integers(1, 9, (n, devices)).astype(float))


def split(problem: Problem) -> Result:
    return row_split(problem, budget=Budget(), rng=np.random.default_rng(0))


def best_by_hand(problem: Problem) -> float:
    """Every order of devices, and every way to cut the row between them."""
    n, D = len(problem.graph), len(problem.cluster)
    best = np.inf
    for order in permutations(range(D)):
        for cuts in combinations_with_replacement(range(n + 1), D - 1):
            ends = [0, *cuts, n]
            where = [order[k] for k in range(D) for _ in range(ends[k], ends[k + 1])]
            plan = plan_for(problem, where)
            best = min(best, np.inf if plan is None else plan.value_s)
    return best


@pytest.mark.parametrize("colocated", [False, True])
def test_it_is_the_best_of_a_block_a_device(colocated: bool) -> None:
    """Twelve chains, where memory forces a split."""
    rng = np.random.default_rng(3)
    for _ in range(12):
        problem = chain(rng, colocated=colocated)
        assert split(problem).value_s == pytest.approx(best_by_hand(problem), rel=1e-9)


def test_long_rows_are_cut_between_some_operators_only() -> None:
    """6,000 operators on four devices are joined to some 500 first; two halves of 3,000 s are found within 1 %."""
    n = 6000
    graph = OperatorGraph(
        [Operator(f"v{k}", weight_bytes=1) for k in range(n)], [Tensor(f"t{k}", k, (k + 1,), 0) for k in range(n - 1)]
    )
    cluster = Cluster([Device(f"d{i}", memory_bytes=3010) for i in range(4)], [Link(1.0, 1e9, link_class="same-host")])
    found = split(Problem(graph, cluster, np.ones((n, 4))))
    assert 6001.0 <= found.value_s <= 6002.0


def test_what_does_not_fit_or_has_too_many_devices() -> None:
    """No plan, and a reason."""
    problem = chain(np.random.default_rng(0), devices=1)
    assert split(problem).plan is None
    many = Cluster([Device(f"d{i}") for i in range(9)], [Link(0.0, 1.0, link_class="same-host")])
    assert why_no_row(Problem(problem.graph, many, np.ones((8, 9)))) == (
        "9 devices are more than the 8 of which all orders are tried"
    )
    assert why_no_row(problem) is None


def test_auto_is_no_worse_than_it() -> None:
    """Even with hardly any budget."""
    rng = np.random.default_rng(5)
    for _ in range(2):
        problem = chain(rng, n=12)
        assert solve(problem, budget=Budget(iterations=1)).value_s <= split(problem).value_s * (1 + 1e-12)
