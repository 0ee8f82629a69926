"""The problem: what it refuses, which devices wishes leave, transfer times."""

from __future__ import annotations

import math

import numpy as np
import pytest

from placewright.cluster import Cluster, Device, Link
from placewright.errors import InvalidInput
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.objective import Makespan
from placewright.problem import Problem, Times, Wish

INF = math.inf


def graph(colocation: tuple[tuple[int, ...], ...] = ()) -> OperatorGraph:
    operators = [Operator("enc.0"), Operator("enc.1", parts=("enc.1.conv", "enc.1.relu")), Operator("dec.0")]
    return OperatorGraph(operators, [Tensor("x", 0, (1, 2), 100)], colocation, name="net")


def cluster() -> Cluster:
    return Cluster([Device("gpu0"), Device("gpu1"), Device("cpu")], [Link(0.5, 100.0, link_class="same-host")])


def problem(times: object = None, wishes: tuple[Wish, ...] = (), **rest: object) -> Problem:
    given = np.ones((3, 3)) if times is None else times
    return Problem(graph(), cluster(), given, wishes=wishes, **rest)  # type: ignore[arg-type]


def test_every_bad_time_is_reported() -> None:
    """Negative and NaN, by operator and device; infinite is allowed and means that the device can't."""
    with pytest.raises(InvalidInput) as caught:
        problem([[1, -2, 1], [1, 1, math.nan], [INF, 1, 1]])
    assert [v.split(":")[0] for v in caught.value.violations] == [
        "operator 'enc.0' on 'gpu1'",
        "operator 'enc.1' on 'cpu'",
    ]
    assert caught.value.what == "problem 'net'"


@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (3,)])
def test_times_of_another_shape(shape: tuple[int, ...]) -> None:
    """Both shapes are named."""
    with pytest.raises(InvalidInput, match=r"not \(operators, devices\) = \(3, 3\)"):
        problem(np.ones(shape))


def test_a_table_of_transfers_is_checked_like_times() -> None:
    """Shape (tensors, devices, devices), no negative value."""
    with pytest.raises(InvalidInput, match=r"not \(tensors, devices, devices\) = \(1, 3, 3\)"):
        problem(Times(np.ones((3, 3)), np.ones((2, 3, 3))))
    table = np.ones((1, 3, 3))
    table[0, 0, 2] = -1
    with pytest.raises(InvalidInput, match=r"tensor 'x' 0->2: transfer time -1\.0 s is not >= 0"):
        problem(Times(np.ones((3, 3)), table))


def test_transfer_times_come_from_links_or_from_the_table() -> None:
    """0.5 + 100 / 100 = 1.5 s by the link; the table's own value where there is one; 0 on one device."""
    assert problem().transfer_s(0, 0, 1) == 1.5
    table = np.full((1, 3, 3), 9.0)
    given = problem(Times(np.ones((3, 3)), table))
    assert given.transfer_s(0, 0, 1) == 9.0 and given.transfer_s(0, 1, 1) == 0.0


def test_a_wish_that_matches_nothing_is_refused() -> None:
    """Both sides of it, and every wish."""
    with pytest.raises(InvalidInput) as caught:
        problem(wishes=(Wish("enc.*", "tpu*"), Wish("head", "cpu", forbid=True), Wish("head", "npu")))
    assert [v.split(";")[0] for v in caught.value.violations] == [
        "pin enc.*=tpu*: no device is named 'tpu*'",
        "forbid head=cpu: no operator matches 'head'",
        "pin head=npu: no device is named 'npu'",
        "pin head=npu: no operator matches 'head'",
    ]


def test_pins_and_forbids_are_patterns_of_operators_and_devices() -> None:
    """The encoder on the GPUs, but never on gpu1; a pin of one part moves the whole fused operator."""
    assert problem(wishes=(Wish("enc.*", "gpu*"), Wish("enc.?", "gpu1", forbid=True))).allowed.tolist() == [
        [True, False, False],
        [True, False, False],
        [True, True, True],
    ]
    assert problem(wishes=(Wish("enc.1.relu", "cpu"),)).allowed[1].tolist() == [False, False, True]


def test_a_time_of_infinity_excludes_a_device() -> None:
    """Also for all that is colocated with that operator."""
    times = np.ones((3, 3))
    times[0, 1] = times[2, 0] = INF
    apart = Problem(graph(), cluster(), times)
    together = Problem(graph(((0, 2),)), cluster(), times)
    assert apart.allowed.tolist() == [[True, False, True], [True, True, True], [False, True, True]]
    assert together.allowed.tolist() == [[False, False, True], [True, True, True], [False, False, True]]


def test_a_problem_may_leave_an_operator_without_a_device() -> None:
    """That is no error of the input; it is infeasible, which a result says."""
    assert not problem(wishes=(Wish("dec.0", "*", forbid=True),)).allowed[2].any()


def test_inputs_are_frozen_copies() -> None:
    """Changing the caller's array changes nothing, and the problem's own can't be written."""
    times = np.ones((3, 3))
    made = problem(times)
    times[:] = 7
    assert made.times.processing_s.max() == 1
    with pytest.raises(ValueError, match="read-only"):
        made.times.processing_s[0, 0] = 2
    with pytest.raises(ValueError, match="read-only"):
        made.allowed[0, 0] = False


def test_objective_by_name_or_as_it_is() -> None:
    """The default is the makespan with links that carry one transfer at a time."""
    assert problem().objective == problem(objective="makespan").objective == Makespan("link")
    assert problem(objective=Makespan("port")).objective.contention == "port"
    with pytest.raises(InvalidInput, match="objective 'fastest' is unknown"):
        problem(objective="fastest")
    with pytest.raises(InvalidInput, match="contention 'some' is unknown"):
        Makespan("some")  # type: ignore[arg-type]
