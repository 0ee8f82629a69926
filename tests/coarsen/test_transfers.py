"""One tensor to each device, or one for each edge."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from placewright.cluster import Cluster, Device, Link
from placewright.coarsen import per_device, per_edge, transfers_of
from placewright.evaluate import evaluate
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.io.moirai_sheet import sheet_from_bytes
from placewright.objective import Makespan
from placewright.problem import Problem, Times
from tests.brute_force import optimum
from tests.io.moirai_sheets import sheet
from tests.random_problems import problems

MANY = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)


def _fork(*, table: bool = False) -> Problem:
    """a makes x for b, c and d, and y of the same size for d; a link takes 1 s + 1 s a byte."""
    tensors = [Tensor("x", 0, (1, 2, 3), 4, output=True), Tensor("y", 0, (3,), 4)]
    graph = OperatorGraph([Operator(v) for v in "abcd"], tensors, [(1, 2)])
    pair = Cluster([Device("d0", cut_overhead_s=0.5), Device("d1")], [Link(1.0, 1.0, link_class="same-host")])
    times = Times(np.ones((4, 2)), np.array([[[0, 5], [6, 0]], [[0, 7], [8, 0]]]) if table else None)
    return Problem(graph, pair, times, Makespan("port"))


def test_each_reader_gets_its_own() -> None:
    """Names, sizes, times and the one output; a tensor with one reader stays as it is."""
    made = per_edge(_fork(table=True))
    assert [(t.name, t.readers, t.size_bytes, t.output) for t in made.graph.tensors] == [
        ("x@b", (1,), 4, True),
        ("x@c", (2,), 4, False),
        ("x@d", (3,), 4, False),
        ("y", (3,), 4, False),
    ]
    assert made.times.transfer_s is not None
    assert made.times.transfer_s[:, 0, 1].tolist() == [5, 5, 5, 7]
    assert made.graph.colocation == ((1, 2),)
    assert (transfers_of(_fork()), transfers_of(made)) == ("per-device", "per-edge")


def test_edges_are_paid_one_by_one_under_port_contention() -> None:
    """b, c and d on the other device: x and y take 5 s each, once; three copies of x take 15 s and y 5 s."""
    placement = [0, 1, 1, 1]
    # a ends at 1 + 0.5 (cut); then x, and b and c run while y comes, and d after them: 1.5 + 5 + 5 + 1
    assert evaluate(_fork(), placement).value_s == pytest.approx(12.5)
    # 1.5 + 4 x 5 + 1 for d, which waits for the last of them in any order that sends d's last
    assert evaluate(per_edge(_fork()), placement).value_s == pytest.approx(22.5)


def test_what_only_looks_alike_stays_apart() -> None:
    """Two outputs of one operator, of equal size, are no copies; nor are copies that take different times."""
    same = _fork()
    assert per_device(same).graph == same.graph
    made = per_edge(_fork(table=True))
    assert made.times.transfer_s is not None
    slower = made.times.transfer_s.copy()
    slower[2] *= 2
    unlike = Problem(made.graph, made.cluster, replace(made.times, transfer_s=slower), made.objective)
    assert [t.name for t in per_device(unlike).graph.tensors] == ["x", "x@d", "y"]


def test_sheets_are_per_edge_and_can_be_made_per_device() -> None:
    """The edges of an operator take equal times or not; only equal ones become one tensor."""
    problem = sheet_from_bytes(sheet(), "f.xls").problem
    assert transfers_of(problem) == "per-edge"
    # 7 sends both for nothing; 3's take 1 and 2 ms, so that they stay two
    assert [t.name for t in per_device(problem).graph.tensors] == ["7", "3@5", "3@9", "5@9"]


def test_a_name_that_is_taken() -> None:
    """Another tensor may be called as a copy would be."""
    tensors = [Tensor("x", 0, (1, 2), 4), Tensor("x@b", 0, (2,), 4)]
    graph = OperatorGraph([Operator(v) for v in "abc"], tensors)
    made = per_edge(Problem(graph, Cluster([Device("d")]), np.ones((3, 1))))
    assert sorted(t.name for t in made.graph.tensors) == ["x@b", "x@b'", "x@c"]


@MANY
@given(problems(most_operators=6, memory=False))
def test_there_and_back(problem: Problem) -> None:
    """The way back gives the problem itself, and per edge no placement is ever faster."""
    made = per_edge(problem)
    back = per_device(made)
    assert back.graph == problem.graph
    assert all(len(t.readers) < 2 for t in made.graph.tensors)
    assert optimum(made) >= optimum(problem) - 1e-12
    if problem.objective == Makespan("none"):
        assert optimum(made) == optimum(problem)
