"""Annealing level by level: nested groups, plans that are plans of the problem, and what single moves don't find."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings

from placewright.algorithm import Budget
from placewright.cluster import Cluster, Device, Link
from placewright.evaluate import plan_for
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.loads import loads_of
from placewright.objective import MaxLoad
from placewright.problem import Problem
from placewright.strategy.coarse_to_fine import CoarseToFine, nested_groups
from placewright.verify import verify
from tests.max_load.brute_force import optimum
from tests.max_load.random_problems import max_load_problems

SOME = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)


@SOME
@given(max_load_problems(contiguity="any", replicate=False))
def test_plans_keep_the_rules_and_are_no_worse_than_the_start(problem: Problem) -> None:
    """Wishes, classes, memory, links and channels; never below the optimum."""
    start = plan_for(problem, [0] * len(problem.graph))
    found = CoarseToFine()(problem, budget=Budget(iterations=600), rng=np.random.default_rng(0), incumbent=start)
    assert found.value_s >= optimum(problem) * (1 - 1e-9)
    assert found.value_s <= (np.inf if start is None else start.value_s)
    assert found.plan is None or verify(problem, found.plan) == ()


def blocks(count: int) -> Problem:
    """Blocks of four operators in a row; within a block tensors take 5 s to send, between blocks 0.01 s."""
    operators = [Operator(f"b{k}.{c}") for k in range(count) for c in "abcd"]
    tensors = [Tensor(f"t{v}", v, (v + 1,), 1 if v % 4 == 3 else 500) for v in range(4 * count - 1)]
    cluster = Cluster([Device("x"), Device("y")], [Link(0.0, 100.0, link_class="same-host")])
    return Problem(OperatorGraph(operators, tensors), cluster, np.ones((4 * count, 2)), MaxLoad("any"))


def test_groups_are_nested_and_joined_by_what_takes_longest_to_send() -> None:
    """32 operators of 1 s: 16 parts have 2 of them each, 8 parts are the blocks, 4 parts two neighbouring blocks."""
    fine, whole, coarse = nested_groups(loads_of(blocks(8)), (4, 8, 16))[::-1]
    names = [len(set(groups.tolist())) for groups in (fine, whole, coarse)]
    assert names[1:] == [8, 4]
    assert [len(set(whole[4 * k : 4 * k + 4].tolist())) for k in range(8)] == [1] * 8
    for inner, outer in ((fine, whole), (whole, coarse)):
        assert all(len(set(outer[inner == group].tolist())) == 1 for group in set(inner.tolist()))


def test_operators_that_may_run_elsewhere_are_not_joined() -> None:
    """A group must have a device: one of each block is kept off x."""
    problem = blocks(2)
    times = problem.times.processing_s.copy()
    times[1::4, 0] = np.inf
    groups = nested_groups(loads_of(replace(problem, times=times)), (1,))[0]
    assert not set(groups[1::4].tolist()) & set(np.delete(groups, [1, 5]).tolist())


def test_blocks_change_devices_as_a_whole() -> None:
    """Twelve blocks of 4 s: six on each device are 24 s, and a cut between two blocks 0.01 s."""
    problem = blocks(12)
    found = CoarseToFine()(problem, budget=Budget(iterations=30_000), rng=np.random.default_rng(0))
    assert 24.0 < found.value_s <= 24.03
