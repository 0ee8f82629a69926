"""Problems as workloads of dnn-partitioning: the same value of every placement, or a reason why not."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from placewright.cluster import Cluster, Device, Link
from placewright.errors import InvalidInput
from placewright.evaluate import evaluate
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.io import problem_to_partitioning
from placewright.io.partitioning_file import partitioning_from_json
from placewright.objective import MaxLoad
from placewright.problem import Problem, Times, Wish
from tests.max_load.random_problems import max_load_problems

LINK = Link(1e-3, 1e6, link_class="same-host")
PAIR = Cluster([Device("g0", memory_bytes=900), Device("g1", memory_bytes=900), Device("c", kind="cpu")], [LINK])
# a makes x for b and y for c; x takes 1 + 1 ms, y 1 + 3 ms.
FORK = OperatorGraph(
    [Operator("a", weight_bytes=100), Operator("b"), Operator("c", backward=True)],
    [Tensor("x", 0, (1,), 1000), Tensor("y", 0, (2,), 3000)],
)
TIMES = [[1e-3, 1e-3, 5e-3], [2e-3, 2e-3, np.inf], [3e-3, 3e-3, 6e-3]]


def fork(**changes: object) -> Problem:
    given = {"graph": FORK, "cluster": PAIR, "times": TIMES, "objective": MaxLoad()}
    return Problem(**(given | changes))  # type: ignore[arg-type]


def test_what_is_written() -> None:
    """Positions are the ids; the second tensor of 'a' is that of a node of its colour which takes no time."""
    shown = json.loads(problem_to_partitioning(fork()))
    assert (shown["maxFPGAs"], shown["maxCPUs"], shown["maxSizePerFPGA"]) == (2, 1, 900.0)
    assert shown["nodes"] == [
        {"id": 0, "supportedOnFpga": True, "cpuLatency": 5.0, "fpgaLatency": 1.0, "isBackwardNode": False}
        | {"colorClass": 1, "size": 100.0, "name": "a"},
        {"id": 3, "supportedOnFpga": True, "cpuLatency": 0.0, "fpgaLatency": 0.0, "isBackwardNode": False}
        | {"colorClass": 1, "size": 0.0, "name": "y of a"},
        {"id": 1, "supportedOnFpga": True, "cpuLatency": 1e30, "fpgaLatency": 2.0, "isBackwardNode": False}
        | {"size": 0.0, "name": "b"},
        {"id": 2, "supportedOnFpga": True, "cpuLatency": 6.0, "fpgaLatency": 3.0, "isBackwardNode": True}
        | {"size": 0.0, "name": "c"},
    ]
    assert [(e["sourceId"], e["destId"], e["cost"]) for e in shown["edges"]] == [(0, 1, 2.0), (0, 3, 2.0), (3, 2, 4.0)]


UNLIKE = Cluster([Device("g0"), Device("g1", memory_bytes=5), Device("c", kind="cpu", memory_bytes=99)], [LINK])
FAR = Link(1.0, 1e6, between=("g0", "c"))


@pytest.mark.parametrize(
    ("changes", "complaints"),
    [
        ({"cluster": UNLIKE}, ["accelerators 'g0' and 'g1' have unlike memory", "CPU 'c' has not the memory"]),
        (
            {"times": np.array(TIMES) + np.array([0, 1, 0])},
            ["accelerators 'g0' and 'g1' have unlike processing times or wishes"],
        ),
        ({"wishes": [Wish("b", "g1")]}, ["accelerators 'g0' and 'g1' have unlike processing times or wishes"]),
        (
            {"cluster": Cluster(PAIR.devices, [LINK, FAR])},
            ["transfer times of tensor 'x' are 0.002 to 1.001 s, by pair"],
        ),
        ({"cluster": Cluster(PAIR.devices, [replace(LINK, channel="p")])}, ["links share the channel 'p@local'"]),
        ({"cluster": Cluster(PAIR.devices)}, ["transfer times of tensor 'x' are inf to inf s"]),
        (
            {"objective": "makespan", "times": Times(np.array(TIMES), cut_s=np.ones((3, 3)))},
            ["a cut at 'a' costs 1.0 s on 'g0'"],
        ),
        (
            {"graph": OperatorGraph([Operator("a", backward=True), Operator("b"), Operator("c")], FORK.tensors)},
            ["forward operator 'b' reads what the backward 'a' makes"],
        ),
    ],
)
def test_what_the_format_can_not_say(changes: dict[str, object], complaints: list[str]) -> None:
    """Every reason is in the one line."""
    with pytest.raises(InvalidInput) as caught:
        problem_to_partitioning(fork(**changes))
    message = str(caught.value)
    assert message.startswith("dnn-partitioning can't say this problem: ") and "\n" not in message
    assert all(c in message for c in complaints)


@settings(max_examples=150, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(max_load_problems(alike=True, uniform_links=True, channels=False, unreachable=False), st.data())
def test_every_placement_has_the_same_value(problem: Problem, data: st.DataObject) -> None:
    """Random problems that the format can say; nodes for further tensors go with their operator."""
    try:
        text = problem_to_partitioning(problem)
        again = partitioning_from_json(text.encode(), "w.json", problem.objective)
    except InvalidInput:  # also: replicas need a bandwidth, and workloads state none
        assume(False)
    D = len(problem.cluster)
    order = [i for i, d in enumerate(problem.cluster.devices) if d.kind != "cpu"]
    order += [i for i, d in enumerate(problem.cluster.devices) if d.kind == "cpu"]
    place = data.draw(st.lists(st.integers(0, D - 1), min_size=D * 4, max_size=D * 4))
    device = {
        v.name: place[unit % len(place)] for v, unit in zip(problem.graph.operators, problem.graph.unit_of, strict=True)
    }
    position = {name: k for k, name in enumerate(device)}
    names = [v.name.rpartition("#")[0].rpartition(" of ")[2] or v.name for v in again.graph.operators]
    names = [name if name in position else again.graph.operators[k].name for k, name in enumerate(names)]
    theirs = evaluate(again, [order.index(device[name]) for name in names])
    ours = evaluate(problem, list(device.values()))
    assert theirs.value_s == pytest.approx(ours.value_s, rel=1e-9, abs=1e-12) or not ours.feasible
    assert theirs.feasible == ours.feasible
