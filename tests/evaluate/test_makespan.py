"""The judge of the makespan on problems small enough to be worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from placewright.cluster import Cluster, Device, Link
from placewright.errors import InvalidInput
from placewright.evaluate import evaluate, plan_for
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.objective import Makespan
from placewright.problem import Problem, Wish
from placewright.verify import verify
from tests.random_problems import problems


def _fork(contention: str, channel: str = "") -> Problem:
    """One operator on d0 whose two tensors go to d1 and d2, 1 s each; every operator takes 1 s."""
    graph = OperatorGraph(
        [Operator("a"), Operator("b"), Operator("c")],
        [Tensor("x", 0, (1,), size_bytes=10), Tensor("y", 0, (2,), size_bytes=10)],
    )
    cluster = Cluster([Device(f"d{i}") for i in range(3)], [Link(0.0, 10.0, link_class="same-host", channel=channel)])
    return Problem(graph, cluster, np.ones((3, 3)), Makespan(contention))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("contention", "channel", "expected"),
    [
        ("none", "", 3.0),  # 1 + 1 + 1: both transfers at once
        ("link", "", 3.0),  # two different links
        ("port", "", 4.0),  # one send port: 1 + (1 + 1) + 1
        ("link", "bus", 4.0),  # one channel for the whole host
        ("none", "bus", 3.0),  # channels bind only where contention is modelled
    ],
)
def test_transfers_exclude_each_other_as_the_contention_says(contention: str, channel: str, expected: float) -> None:
    """Two transfers from one device to two others overlap or queue by the rule of the objective."""
    assert evaluate(_fork(contention, channel), [0, 1, 2]).value_s == expected


def test_a_tensor_travels_once_to_each_device_and_a_cut_costs_at_both_ends() -> None:
    """Two readers on one device share a transfer; each of them pays its cut."""
    graph = OperatorGraph([Operator("a"), Operator("b"), Operator("c")], [Tensor("x", 0, (1, 2), size_bytes=10)])
    pair = Cluster(
        [Device("d0", cut_overhead_s=0.25), Device("d1", cut_overhead_s=0.5)], [Link(1.0, 10.0, link_class="same-host")]
    )
    judged = evaluate(Problem(graph, pair, np.ones((3, 2))), [0, 1, 1])
    # a: 1 + 0.25; transfer: 1 + 10/10; b and c: 1 + 0.5 each.
    assert judged.value_s == 1.25 + 2.0 + 1.5 + 1.5
    assert len(judged.schedule.transfers) == 1
    assert [u.busy_s for u in judged.devices] == [1.25, 3.0]
    assert [u.received_bytes for u in judged.devices] == [0, 10]


def test_activations_count_from_the_producers_start_to_the_last_readers_finish() -> None:
    """A chain holds two tensors at a time; with its weights that decides whether the device is large enough."""
    graph = OperatorGraph(
        [Operator("a", weight_bytes=5), Operator("b", kv_cache_bytes=7), Operator("c")],
        [Tensor("x", 0, (1,), 100), Tensor("y", 1, (2,), 10)],
    )
    for memory, feasible in ((122, True), (121, False)):
        one = Cluster([Device("d0", memory_bytes=memory + 1, reserve_bytes=1)])
        judged = evaluate(Problem(graph, one, np.ones((3, 1))), [0, 0, 0])
        # While b runs, x (100) and y (10) are live: 5 + 7 + 110.
        assert judged.devices[0].memory_bytes == 122
        assert judged.feasible is feasible


def test_every_broken_rule_is_named() -> None:
    """A placement that separates a class, ignores a forbid and crosses where there is no link lists all three."""
    graph = OperatorGraph([Operator("a"), Operator("b"), Operator("c")], [Tensor("x", 0, (2,), 1)], [(0, 1)])
    apart = Cluster([Device("d0"), Device("d1")])
    problem = Problem(graph, apart, np.ones((3, 2)), wishes=[Wish("c", "d1", forbid=True)])
    judged = evaluate(problem, [0, 1, 1])
    assert judged.value_s == np.inf
    text = " ".join(judged.violations)
    assert "must share a device" in text
    assert "'c' may not run on 'd1'" in text
    assert "no link joins" in text
    assert plan_for(problem, [0, 1, 1]) is None


def test_a_wrong_placement_or_order_is_refused() -> None:
    """A device that isn't there, too few operators, and a reader before its producer are bad input."""
    problem = _fork("link")
    for device_of in ([0, 1], [0, 1, 3], [0, -1, 0]):
        with pytest.raises(InvalidInput):
            evaluate(problem, device_of)
    with pytest.raises(InvalidInput, match="before its producer"):
        evaluate(problem, [0, 1, 2], order=[1, 0, 2])


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(problems(), st.randoms(use_true_random=False))
def test_the_judge_and_the_checker_agree(problem: Problem, random: object) -> None:
    """What the judge finds feasible passes the independent checker, and retiming a schedule keeps its value."""
    choose = random.choice  # type: ignore[attr-defined]
    unit_device = {}
    device_of = []
    for v, k in enumerate(problem.graph.unit_of):
        choices = np.flatnonzero(problem.allowed[v]).tolist() or [0]
        device_of.append(unit_device.setdefault(k, choose(choices)))
    judged = evaluate(problem, device_of)
    plan = plan_for(problem, device_of)
    assert (plan is not None) == judged.feasible
    if plan is not None:
        assert verify(problem, plan) == ()
        again = evaluate(problem, device_of, schedule=plan.schedule)
        assert again.value_s == plan.value_s
