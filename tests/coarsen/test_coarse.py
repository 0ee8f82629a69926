"""Coarse problems: plans of groups become plans of operators, never later, and groups never close a cycle."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from placewright.cluster import Cluster, Device, Link
from placewright.coarsen.chains import chains
from placewright.coarsen.coarse import contract
from placewright.coarsen.colocation import colocated
from placewright.coarsen.repeated_blocks import block_groups
from placewright.errors import InvalidInput
from placewright.evaluate import plan_for
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.problem import Problem, Times, Wish
from placewright.verify import verify
from tests.brute_force import optimum
from tests.random_problems import problems

SETTINGS = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
PAIR = Cluster([Device("gpu"), Device("cpu")], [Link(1.0, 8.0, link_class="same-host")])


def intervals(n: int, cuts: list[int]) -> list[tuple[int, ...]]:
    """Groups of operators between the places given: of any kind, also such that nothing joins."""
    ends = sorted({0, n, *(c % (n + 1) for c in cuts)})
    return [tuple(range(a, b)) for a, b in itertools.pairwise(ends) if b > a]


WAYS = {
    "chains": lambda problem, cuts: chains(problem),
    "colocated": lambda problem, cuts: colocated(problem),
    "blocks": lambda problem, cuts: block_groups(problem.graph),
    "intervals": lambda problem, cuts: intervals(len(problem.graph), cuts),
}


@SETTINGS
@given(
    problems(most_operators=10),
    st.sampled_from(list(WAYS)),
    st.lists(st.integers(0, 10), max_size=4),
    st.integers(0, 2**32 - 1),
)
def test_an_expanded_plan_is_never_worse(problem: Problem, way: str, cuts: list[int], seed: int) -> None:
    """Whatever is grouped: any coarse plan expands to one of at most its value, which the independent check accepts."""
    coarse = contract(problem, WAYS[way](problem, cuts))
    rng = np.random.default_rng(seed)
    allowed = coarse.problem.allowed
    unit = coarse.problem.graph.unit_of
    for _ in range(4):
        draw = {k: rng.integers(len(problem.cluster)) for k in unit}
        plan = plan_for(coarse.problem, [draw[k] for k in unit])
        if plan is None or not allowed.any(axis=1).all():
            continue
        fine = coarse.expand(plan)
        if fine is None:  # activations inside a group
            assert any(d.memory_bytes is not None for d in problem.cluster.devices)
            continue
        assert fine.value_s <= plan.value_s * (1 + 1e-12)
        assert not verify(problem, fine)
        for row, i in zip(coarse.groups, plan.device_of.tolist(), strict=True):
            assert {int(fine.device_of[v]) for v in row} == {i}


@settings(SETTINGS, max_examples=60)
@given(problems(most_operators=6, memory=False))
def test_the_coarse_optimum_is_not_below_the_fine_one(problem: Problem) -> None:
    """A plan of chains is a plan: brute force finds none that is better than every plan of the operators."""
    coarse = contract(problem, chains(problem))
    assert optimum(coarse.problem) >= optimum(problem) - 1e-9


def test_a_bound_of_the_coarse_problem_is_none_of_the_fine_one() -> None:
    """a is quick on the GPU, b on the CPU, each 1 s against 10: 1 + 1 + 1 s apart, 11 s as one, which is its bound."""
    graph = OperatorGraph([Operator("a"), Operator("b")], [Tensor("x", 0, (1,), 0)])
    problem = Problem(graph, PAIR, [[1.0, 10.0], [10.0, 1.0]])
    assert (optimum(problem), optimum(contract(problem, [(0, 1)]).problem)) == (3.0, 11.0)


def test_times_of_a_group_are_sums_and_wishes_are_in_them() -> None:
    """1 + 2 and 3 + 4 s; the second may not run on the CPU, so the group may not."""
    graph = OperatorGraph(
        [Operator("a"), Operator("b"), Operator("c")], [Tensor("x", 0, (1,), 8), Tensor("y", 1, (2,), 8)]
    )
    problem = Problem(graph, PAIR, [[1.0, 3.0], [2.0, 4.0], [5.0, 6.0]])
    assert contract(problem, [(0, 1)]).problem.times.processing_s.tolist() == [[3.0, 7.0], [5.0, 6.0]]
    pinned = Problem(graph, PAIR, problem.times, wishes=[Wish("b", "gpu")])
    assert contract(pinned, [(0, 1)]).problem.allowed.tolist() == [[True, False], [True, True]]


def test_a_group_loses_as_much_at_a_cut_as_its_members() -> None:
    """a and b read from outside and lose 1 + 2 s, b and c are read outside and lose 2 + 4 s: 6 s at either side."""
    graph = OperatorGraph(
        [Operator(v) for v in "sabcz"],
        [Tensor("s", 0, (1, 2), 8), Tensor("a", 1, (3,), 8), Tensor("b", 2, (3, 4), 8), Tensor("c", 3, (4,), 8)],
    )
    cut = np.array([[8.0], [1.0], [2.0], [4.0], [16.0]]) * np.ones((1, 2))
    problem = Problem(graph, PAIR, Times(np.ones((5, 2)), None, "given", cut))
    assert contract(problem, [(1, 2, 3)]).problem.cut_s[:, 0].tolist() == [8.0, 6.0, 16.0]


def test_tensors_keep_their_times() -> None:
    """A table of transfer times is taken over for the tensors between groups, whatever order they come to stand in."""
    graph = OperatorGraph(
        [Operator(v) for v in "abcd"], [Tensor("z", 0, (1,), 8), Tensor("y", 1, (2, 3), 8), Tensor("b", 2, (3,), 8)]
    )
    table = np.arange(12.0).reshape(3, 2, 2)
    coarse = contract(Problem(graph, PAIR, Times(np.ones((4, 2)), table)), [(1, 2)])
    assert [t.name for t in coarse.problem.graph.tensors] == ["z", "b", "y"]
    assert coarse.tensors == (0, 2, 1)
    assert coarse.problem.times.transfer_s is not None
    assert coarse.problem.times.transfer_s.tolist() == table[[0, 2, 1]].tolist()


def test_groups_that_overlap_or_close_a_cycle_are_refused() -> None:
    """Both are named: an operator in two groups, and a group that another operator stands amid."""
    graph = OperatorGraph([Operator(v) for v in "abc"], [Tensor("x", 0, (1,), 8), Tensor("y", 1, (2,), 8)])
    problem = Problem(graph, PAIR, np.ones((3, 2)))
    with pytest.raises(InvalidInput, match="in two groups"):
        contract(problem, [(0, 1), (1, 2)])
    with pytest.raises(InvalidInput, match="cycle: 'a' -> 'b' -> 'a'"):
        contract(problem, [(0, 2)])
    with pytest.raises(InvalidInput, match="not under max-load"):
        contract(Problem(graph, PAIR, np.ones((3, 2)), "max-load"), [])


def test_activations_of_a_group_may_not_fit() -> None:
    """x takes 100 bytes and is nowhere in the coarse problem: its plan of 50 bytes is none of the operators."""
    small = Cluster([replace(PAIR.devices[0], memory_bytes=50)])
    graph = OperatorGraph([Operator("a"), Operator("b")], [Tensor("x", 0, (1,), 100)])
    coarse = contract(Problem(graph, small, [[1.0], [1.0]]), [(0, 1)])
    plan = plan_for(coarse.problem, [0])
    assert plan is not None and coarse.expand(plan) is None


@pytest.mark.parametrize(
    ("tensors", "output", "expected"),
    [
        ("ab bc cd", "", [(0, 1, 2, 3)]),
        ("ab bc cd", "b", [(0, 1), (2, 3)]),  # the user reads b, so the chain ends there
        ("ab ac bd cd", "", []),  # a has two readers, d reads of two
        ("ab bc bd", "", [(0, 1)]),
        ("ac bc cd", "", [(2, 3)]),
    ],
)
def test_chains(tensors: str, output: str, expected: list[tuple[int, ...]]) -> None:
    """By hand: operators a to d, and who reads whom."""
    readers: dict[str, list[int]] = {}
    for maker, reader in tensors.split():
        readers.setdefault(maker, []).append("abcd".index(reader))
    graph = OperatorGraph(
        [Operator(v) for v in "abcd"],
        [Tensor(v, "abcd".index(v), tuple(row), 8, output=v == output) for v, row in readers.items()],
    )
    problem = Problem(graph, PAIR, np.ones((4, 2)))
    assert chains(problem) == expected
    for limit in (chains(problem, at_most_s=2.0), chains(problem, most_operators=2)):
        assert max(map(len, limit), default=0) <= 2


def test_chains_end_where_the_devices_change() -> None:
    """b may not run on the CPU and a may: as one they could not be on the CPU at all."""
    graph = OperatorGraph([Operator("a"), Operator("b")], [Tensor("x", 0, (1,), 8)])
    assert chains(Problem(graph, PAIR, [[1.0, 1.0], [1.0, np.inf]])) == []
