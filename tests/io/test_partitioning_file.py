"""Workloads of dnn-partitioning: what they mean, and what is wrong with one."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import Phase, given, settings

from placewright.errors import InvalidInput
from placewright.io import problem_hash, problem_to_partitioning, read_partitioning
from placewright.io.partitioning_file import node_ids, partitioning_from_json
from placewright.objective import Makespan, MaxLoad
from tests.workloads import workload, workloads

QUICK = settings(max_examples=60, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])


def node(number: int, **keys: Any) -> dict[str, Any]:
    return {
        "id": number,
        "supportedOnFpga": 1,
        "cpuLatency": 10.0 * number,
        "fpgaLatency": 1.0 * number,
        "isBackwardNode": 0,
        "size": 100.0,
    } | keys


def edge(source: int, target: int, cost: float = 0.5, **keys: Any) -> dict[str, Any]:
    return {"sourceId": source, "destId": target, "cost": cost} | keys


# 5 -> 7, 5 -> 9: one tensor; 7 on CPUs alone.
FORK = {
    "maxSizePerFPGA": 250.5,
    "maxFPGAs": 2,
    "maxCPUs": 1,
    "nodes": [node(9, name="conv"), node(5), node(7, supportedOnFpga=False, fpgaLatency=-1, name="node7")],
    "edges": [edge(5, 7, size=8.0), edge(5, 9, size=4.0)],
}


def read(content: object) -> Any:
    return partitioning_from_json(json.dumps(content).encode(), "fork.json")


def test_what_a_workload_means() -> None:
    """Names with ids, milliseconds, alike devices, one tensor a source, transfers free between CPUs only."""
    problem = read(FORK)
    graph, cluster = problem.graph, problem.cluster
    assert [v.name for v in graph.operators] == ["node5", "conv#9", "node7"]
    assert [(t.name, t.producer, t.readers, t.size_bytes) for t in graph.tensors] == [("node5", 0, (1, 2), 8)]
    assert [(d.name, d.kind, d.memory_bytes) for d in cluster.devices] == [
        ("accelerator0", "accelerator", 250),
        ("accelerator1", "accelerator", 250),
        ("cpu0", "cpu", None),
    ]
    np.testing.assert_allclose(
        problem.times.processing_s, [[0.005, 0.005, 0.05], [0.009, 0.009, 0.09], [math.inf, math.inf, 0.07]]
    )
    c = 0.0005
    np.testing.assert_allclose(problem.times.transfer_s, [[[0, c, c], [c, 0, c], [c, c, 0]]])
    assert problem.objective == MaxLoad() and problem.name == "fork"
    assert problem.times.source == "given, milliseconds assumed"
    assert graph.source is not None and graph.source.location == "fork.json" and len(graph.source.sha256) == 64


def test_cpu_cores_exchange_tensors_for_nothing() -> None:
    """The data is in RAM: of 2 accelerators and 2 cores, only the pair of cores is free."""
    transfer = read(FORK | {"maxCPUs": 2}).times.transfer_s[0]
    free = np.argwhere(transfer == 0).tolist()
    assert free == [[0, 0], [1, 1], [2, 2], [2, 3], [3, 2], [3, 3]]


@pytest.mark.parametrize(
    ("names", "ids"),
    [
        (["node1", "node2grad#7", "x-3"], [1, 7, -3]),
        (["node1", "x"], [0, 1]),
        (["a1", "b1"], [0, 1]),
        (["a" + "9" * 30], [0]),
    ],
)
def test_ids_stand_at_the_end_of_the_names(names: list[str], ids: list[int]) -> None:
    """Else operators go by their position."""
    assert node_ids(names) == ids


def test_names_that_end_in_another_number_get_their_id() -> None:
    """Two nodes of one name, and names that end in the id of another node, stay apart."""
    content = FORK | {
        "nodes": [node(1, name="99"), node(99, name="99"), node(2, name="a"), node(3, name="a")],
        "edges": [],
    }
    assert [v.name for v in read(content).graph.operators] == ["99#1", "99", "a#2", "a#3"]


def test_colours_and_backward_nodes() -> None:
    """Nodes of one colour share a device; a colour of one node says nothing."""
    nodes = [node(1, colorClass=4), node(2, isBackwardNode=True, colorClass=4), node(3, colorClass=5)]
    graph = read(FORK | {"nodes": nodes, "edges": [edge(1, 3), edge(3, 2)]}).graph
    assert [v.backward for v in graph.operators] == [False, False, True]
    assert graph.colocation == ((0, 2),)


@pytest.mark.parametrize(("limit", "bytes_"), [(None, None), (1e30, None), (300.0, 300), (0.0, 0), (2.5**60, None)])
def test_memory_limits(limit: float | None, bytes_: int | None) -> None:
    """None, and one beyond any network, are no limit."""
    assert read(FORK | {"maxSizePerFPGA": limit}).cluster.devices[0].memory_bytes == bytes_


def test_a_time_of_the_published_infinity_means_never() -> None:
    """1e30 is what the published programs compare with."""
    content = copy.deepcopy(FORK)
    content["nodes"][0]["cpuLatency"] = 1e30  # type: ignore[index]
    assert read(content).times.processing_s[1].tolist() == [9 * 1e-3, 9 * 1e-3, math.inf]


def test_costs_of_a_source_may_differ_by_rounding() -> None:
    """As the published program takes them: by up to 1e-6 the first one holds."""
    problem = read(FORK | {"edges": [edge(5, 7, 0.5), edge(5, 9, 0.5 + 9e-7)]})
    assert problem.times.transfer_s.max() == 0.5e-3


def put(*path: Any) -> Callable[[dict[str, Any]], None]:
    *keys, value = path

    def change(content: dict[str, Any]) -> None:
        at: Any = content
        for key in keys[:-1]:
            at = at[key]
        at[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (put("nodes", []), "nodes: it has no nodes; there is nothing to place"),
        (put("nodes", 1, "id", 7), "nodes: the id 7 stands 2 times; give each node its own"),
        (put("nodes", 0, "id", 10**15), "node 1000000000000000 ('conv'): the id has more than 15 digits"),
        (put("nodes", 0, "cpuLatency", -1), "node 9 ('conv'): cpuLatency -1.0 is not between 0 and 1e+15 ms, nor"),
        (put("nodes", 0, "fpgaLatency", 1e20), "node 9 ('conv'): fpgaLatency 1e+20 is not between 0 and 1e+15 ms"),
        (put("nodes", 0, "size", -1), "node 9 ('conv'): size -1.0 is not between 0 and 1125899906842624 bytes"),
        (put("nodes", 0, "size", 1e18), "node 9 ('conv'): size 1e+18 is not between"),
        (
            put("nodes", 0, "isBackwardNode", 2),
            "node 9 ('conv'): isBackwardNode 2 is neither true nor false; give 0 or 1",
        ),
        (put("nodes", 0, "supportedOnFpga", -1), "supportedOnFpga -1 is neither true nor false"),
        (put("nodes", 0, "size", "big"), "nodes[0].size: expected `float`, got `str`; correct it"),
        (put("nodes", 0, "cpuLatency", None), "nodes[0].cpuLatency: expected `float`, got `null`; correct it"),
        (put("maxFPGAs", -1), "maxFPGAs -1 is below 0; give at least 0"),
        (put("maxFPGAs", 1.5), "maxFPGAs: expected `int`, got `float`"),
        (put("maxFPGAs", 10**6), "maxFPGAs 1000000 and maxCPUs 1 are more than 4096 devices together; give fewer"),
        (put("maxFPGAs", 4095), "maxFPGAs 4095 and maxCPUs 1 are too many for 3 nodes: the transfer times"),
        (put("maxSizePerFPGA", -1), "maxSizePerFPGA -1.0 is below 0; give at least 0"),
        (put("edges", 0, "sourceId", 4), "edge 4 -> 7: there is no node with the id 4; add it or correct the id"),
        (put("edges", 0, "destId", 5), "edge 5 -> 5: a node can't read its own output; remove it"),
        (put("edges", 0, "cost", -0.5), "edge 5 -> 7: cost -0.5 is not between 0 and 1e+15 ms"),
        (put("edges", 0, "cost", 1e17), "edge 5 -> 7: cost 1e+17 is not between 0 and 1e+15 ms"),
        (
            put("edges", 1, "cost", 0.6),
            "edge 5 -> 9: cost 0.6, but 0.5 on another edge of node 5; a node has one output",
        ),
        (put("edges", 0, "size", -3), "edge 5 -> 7: size -3.0 is not between"),
        (put("edges", 0, edge(9, 5)), "the operators form a cycle: '"),
        (put("nodes", 1, "isBackwardNode", 1), "edge 5 -> 7: goes from a backward node to a forward one"),
    ],
)
def test_what_is_wrong_is_one_line(change: Callable[[dict[str, Any]], None], complaint: str) -> None:
    """Each names the file, the thing, its value and the limit."""
    content = copy.deepcopy(FORK)
    change(content)
    with pytest.raises(InvalidInput) as caught:
        read(content)
    message = str(caught.value)
    assert message.startswith("workload 'fork.json': ") and complaint in message and "\n" not in message


def test_devices_of_no_kind() -> None:
    """A file without devices is no problem."""
    with pytest.raises(InvalidInput, match="maxFPGAs and maxCPUs are both 0; there must be a device"):
        read(FORK | {"maxFPGAs": 0, "maxCPUs": 0})


def test_all_violations_are_reported_up_to_twenty() -> None:
    """Three of different kinds in one line; of 30 twenty, and that there are more."""
    content = copy.deepcopy(FORK)
    content["nodes"][0]["size"] = -1  # type: ignore[index]
    content["edges"][0]["cost"] = -1  # type: ignore[index]
    content["maxCPUs"] = -3
    with pytest.raises(InvalidInput) as caught:
        read(content)
    assert len(caught.value.violations) == 3
    many = FORK | {"nodes": [node(k, size=-1) for k in range(30)], "edges": []}
    with pytest.raises(InvalidInput) as caught:
        read(many)
    assert len(caught.value.violations) == 21 and caught.value.violations[-1] == "and there are more like these"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"nodes": NaN}', "[" * 10_000, "\xff", '{"nodes":[],"edges":[]}'])
def test_what_is_no_workload_at_all(text: str) -> None:
    """Malformed, truncated and nested text ends in one line."""
    with pytest.raises(InvalidInput) as caught:
        partitioning_from_json(text.encode("latin-1"), "w.json")
    assert "\n" not in str(caught.value)


NUMBERS = st.floats(0, 1e6) | st.integers(0, 10**6) | st.sampled_from([0.1, 1e30, 1 / 3])


@st.composite
def contents(draw: st.DrawFn) -> dict[str, Any]:
    """Workloads: acyclic, as edges go from lower to higher positions."""
    ids = draw(st.lists(st.integers(-99, 10**6), min_size=1, max_size=6, unique=True))
    backward_from = draw(st.integers(0, len(ids)))
    nodes: list[dict[str, Any]] = []
    for k, number in enumerate(ids):
        made = node(
            number,
            cpuLatency=draw(NUMBERS),
            fpgaLatency=draw(NUMBERS),
            supportedOnFpga=draw(st.sampled_from([0, 1, True, False])),
            isBackwardNode=int(k >= backward_from),
            size=draw(st.floats(0, 1e9) | st.integers(0, 10**9)),
        )
        if draw(st.booleans()):
            made["colorClass"] = draw(st.integers(-2, 3))
        if draw(st.booleans()):
            made["name"] = draw(st.text(max_size=4) | st.sampled_from(["node7", "a#1", "-3", "#5", "x0005"]))
        nodes.append(made)
    costs = [draw(st.floats(0, 1e3)) for _ in ids]
    edges = [
        edge(ids[a], ids[b], costs[a], size=draw(st.integers(0, 10**9)))
        for a in range(len(ids))
        for b in range(a + 1, len(ids))
        if draw(st.booleans())
    ]
    return {
        "maxSizePerFPGA": draw(st.floats(0, 1e12) | st.just(1e30)),
        "maxFPGAs": draw(st.integers(0, 3)),
        "maxCPUs": draw(st.integers(1, 2)),
        "nodes": draw(st.permutations(nodes)),
        "edges": draw(st.permutations(edges)),
    }


@QUICK
@given(contents())
def test_written_and_read_again_it_is_the_same_problem(content: dict[str, Any]) -> None:
    """Names, ids, times to the last bit, colours, sizes and limits: the hash covers all of it."""
    problem = read(content)
    ids = node_ids([v.name for v in problem.graph.operators])
    assert sorted(ids) == sorted(v["id"] for v in content["nodes"])
    again = partitioning_from_json(problem_to_partitioning(problem).encode(), "fork.json")
    assert problem_hash(again) == problem_hash(problem)
    assert again.graph.operators == problem.graph.operators and again.graph.colocation == problem.graph.colocation


@QUICK
@given(contents(), st.data())
def test_nothing_in_a_file_is_a_traceback(content: dict[str, Any], data: st.DataObject) -> None:
    """Any value anywhere: a problem, or one line."""
    junk = st.sampled_from([None, -1, 0, 1e308, 10**30, "", "x", [], {}, True, 2**31, -0.5])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.sampled_from([content, *content["nodes"], *content["edges"]]))
        if at:
            at[data.draw(st.sampled_from(sorted(at)))] = data.draw(junk)
        if not all(isinstance(content[key], list) and content[key] for key in ("nodes", "edges")):
            break
        if not all(isinstance(v, dict) for key in ("nodes", "edges") for v in content[key]):
            break
    try:
        read(content)
    except InvalidInput as error:
        assert "\n" not in str(error)


@QUICK
@given(st.binary(max_size=60), st.integers(0, 400))
def test_bytes_that_are_no_workload(noise: bytes, cut: int) -> None:
    """Noise, and a file that ends too early."""
    for data in (noise, json.dumps(FORK).encode()[:cut] + noise):
        try:
            partitioning_from_json(data, "w.json")
        except InvalidInput as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize(
    "name", workloads("dnn-partitioning/throughput/*.json") + workloads("dnn-partitioning/offload/*")
)
def test_the_published_workloads(name: str) -> None:
    """Every node is there under its id, and what is written reads back as the same problem."""
    path = workload(name)
    content = json.loads(path.read_text())
    problem = read_partitioning(path, Makespan("none"))
    assert sorted(node_ids([v.name for v in problem.graph.operators])) == sorted(v["id"] for v in content["nodes"])
    assert len(problem.cluster) == content["maxFPGAs"] + content["maxCPUs"]
    assert problem.objective == Makespan("none")
    again = partitioning_from_json(problem_to_partitioning(problem).encode(), path, Makespan("none"))
    assert problem_hash(again) == problem_hash(problem)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """The path is named."""
    with pytest.raises(InvalidInput, match="can't be read: no such file or directory"):
        read_partitioning(tmp_path / "w.json")
