"""Splits of a row against every split of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.cluster import Cluster, Device, Link
from placewright.evaluate import evaluate
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.problem import Problem
from placewright.solvers.chain_split import split_chain
from tests.export.rows import best_row, rows


def placed(problem: Problem, groups: list[list[int]], at: tuple[int, ...]) -> np.ndarray:
    device = np.zeros(len(problem.graph), dtype=np.int32)
    for row, i in zip(groups, at, strict=True):
        device[row] = i
    return device


def untied(problem: Problem) -> Problem:
    graph = OperatorGraph(problem.graph.operators, problem.graph.tensors)
    return Problem(graph, problem.cluster, problem.times, problem.objective)


@settings(max_examples=120)
@given(st.booleans().flatmap(rows), st.booleans())
def test_exact_where_it_says_so_and_never_better_than_every_split(problem: Problem, first: bool) -> None:
    """The value is the judge's and the least of all splits where it is exact, and no split beats it elsewhere."""
    problem = untied(problem)
    groups = [[v] for v in range(len(problem.graph))]
    cpus = [i for i, d in enumerate(problem.cluster.devices) if d.kind == "cpu" and first]
    best = best_row(problem, groups, "first" if first else "anywhere")
    split = split_chain(problem, groups, range(len(problem.cluster)), first_only=cpus)
    if split is None:
        assert best == float("inf")
        return
    judged = evaluate(problem, placed(problem, groups, split.device_of_group))
    if split.exact:
        assert judged.feasible
        assert split.value_s == pytest.approx(best, rel=1e-9)
        assert judged.value_s == pytest.approx(best, rel=1e-9)
    else:
        assert not judged.feasible or judged.value_s >= best * (1 - 1e-9)


def row_of(n: int, devices: int) -> Problem:
    graph = OperatorGraph(
        [Operator(f"h.{k}", weight_bytes=10) for k in range(n)],
        [Tensor(f"t{k}", k, (k + 1,), 100) for k in range(n - 1)],
    )
    cluster = Cluster(
        [Device(f"d{i}", memory_bytes=30) for i in range(devices)], [Link(0.5, 1e9, link_class="same-host")]
    )
    return Problem(graph, cluster, np.ones((n, devices)), "makespan")


def test_many_alike_devices_are_no_more_work_than_a_few() -> None:
    """Of 40 devices that can be exchanged only the number in use counts; 2**40 sets would not end."""
    problem = row_of(60, 40)
    split = split_chain(problem, [[v] for v in range(60)], range(40))
    assert split is not None
    assert split.exact
    assert len(set(split.device_of_group)) == 20  # 60 layers of 10 bytes in 30 bytes each


def test_no_split_fits() -> None:
    """Less memory than the layers need is said by ``None``."""
    assert split_chain(row_of(8, 2), [[v] for v in range(8)], range(2)) is None


def test_too_many_unlike_devices_are_taken_in_their_order_and_nothing_is_claimed() -> None:
    """Ten unlike devices have more than 512 sets: blocks follow the cluster's order, and nothing is proved."""
    n, D = 12, 10
    graph = OperatorGraph(
        [Operator(f"h.{k}") for k in range(n)], [Tensor(f"t{k}", k, (k + 1,), 1) for k in range(n - 1)]
    )
    cluster = Cluster([Device(f"d{i}") for i in range(D)], [Link(0.1, 1e9, link_class="same-host")])
    times = np.random.default_rng(0).uniform(1, 2, (n, D))
    split = split_chain(Problem(graph, cluster, times, "max-load"), [[v] for v in range(n)], range(D))
    assert split is not None
    assert not split.exact
    assert list(split.device_of_group) == sorted(split.device_of_group)
