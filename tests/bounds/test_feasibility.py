"""Reasons of infeasibility: none is claimed of a problem that has a plan, and what can't be is said."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.bounds.feasibility import why_infeasible
from placewright.cluster import Cluster, Device, Link
from placewright.evaluate import evaluate
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.objective import MaxLoad
from placewright.problem import Problem
from placewright.solve import solve

from ..random_problems import problems

GiB = 2**30


@given(problems(most_operators=4, most_devices=2, memory=False), st.data())
@settings(max_examples=60, deadline=None)
def test_no_problem_with_a_plan_is_called_infeasible(problem: Problem, data: st.DataObject) -> None:
    """Every placement in every order is judged, with room for little more than tensors; times may be 0."""
    operators = [replace(v, weight_bytes=data.draw(st.integers(0, 20))) for v in problem.graph.operators]
    graph = OperatorGraph(operators, problem.graph.tensors, problem.graph.colocation)
    rooms = [data.draw(st.integers(0, 250)) for _ in problem.cluster.devices]
    devices = [replace(d, memory_bytes=room) for d, room in zip(problem.cluster.devices, rooms, strict=True)]
    tight = replace(problem, graph=graph, cluster=Cluster(devices, problem.cluster.links))
    n, D = len(graph), len(devices)
    after = {(t.producer, v) for t in graph.tensors for v in t.readers}
    orders = [o for o in permutations(range(n)) if all(o.index(a) < o.index(b) for a, b in after)]
    judged = (evaluate(tight, at, order=o).feasible for at in product(range(D), repeat=n) for o in orders)
    assert not why_infeasible(tight) or not any(judged)


def chain(sizes: list[int], rooms: list[int], p: list[list[float]]) -> Problem:
    """Operators a, b, ... in a row with tensors of these sizes between them, on devices with so much memory."""
    operators = [Operator(name, weight_bytes=GiB) for name in "abc"[: len(sizes) + 1]]
    tensors = [Tensor(f"t{k}", k, (k + 1,), size) for k, size in enumerate(sizes)]
    devices = [Device(f"d{i}", memory_bytes=room) for i, room in enumerate(rooms)]
    return Problem(OperatorGraph(operators, tensors), Cluster(devices, [Link(0.0, 1e9, link_class="same-host")]), p)


def test_tensors_that_must_be_there_at_once_fit_no_device() -> None:
    """b reads 4 GiB and makes 3 GiB beside its 1 GiB: 8 GiB, above 7; its neighbours need 5 and 4."""
    problem = chain([4 * GiB, 3 * GiB], [7 * GiB, 6 * GiB], [[1.0, 1.0]] * 3)
    assert why_infeasible(problem) == (
        "operator 'b' needs 8 GiB (weights 1 GiB, tensors that are there at once 7 GiB) and the largest device that "
        "may run it, 'd0', has 7 GiB; allow more devices or raise their memory"
    )
    result = solve(problem, budget=5)
    assert result.status.value == "infeasible" and result.plan is None
    assert why_infeasible(replace(problem, objective=MaxLoad())) == ""  # which does not count live tensors
    enough = chain([4 * GiB, 3 * GiB], [8 * GiB, 6 * GiB], [[1.0, 1.0]] * 3)
    assert why_infeasible(enough) == "" and solve(enough, budget=5).plan is not None


@pytest.mark.parametrize("seconds", [0.0, 1e-12])
def test_an_operator_without_a_time_holds_nothing_at_any_instant(seconds: float) -> None:
    """b ends when it starts, or as good as: no claim. On a device where it takes time there is one."""
    free = chain([4 * GiB, 3 * GiB], [7 * GiB, 7 * GiB], [[1.0, 1.0], [seconds, 1.0], [1.0, 1.0]])
    assert why_infeasible(free) == ""
    if not seconds:
        assert evaluate(free, np.zeros(3, dtype=np.int32)).devices[0].memory_bytes == 7 * GiB


def test_what_fits_one_device_alone_because_of_its_tensors_is_told_with_what_else_is_there() -> None:
    """Only d0 has room for b while it runs (3 + 3 + 1 of 7.5 GiB); a may run nowhere else either: 8 GiB together."""
    inf = float("inf")
    problem = chain([3 * GiB, 3 * GiB], [15 * GiB // 2, 6 * GiB], [[1.0, inf], [1.0, 1.0], [1.0, 1.0]])
    assert why_infeasible(problem).startswith(
        "device 'd0' has 7.5 GiB, but what can run nowhere else needs 8 GiB there: 2 operators or classes"
    )
