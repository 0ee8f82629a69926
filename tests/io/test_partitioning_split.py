"""Splits of dnn-partitioning: from ids to devices and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from placewright.errors import InvalidInput
from placewright.evaluate import evaluate, judge
from placewright.io import read_split, split_to_json
from placewright.io.partitioning_file import partitioning_from_json
from placewright.plan import Plan
from tests.io.test_partitioning_file import FORK, edge, node
from tests.workloads import workload

FORK_PROBLEM = partitioning_from_json(json.dumps(FORK).encode(), "fork.json")
"""Operators node5, conv#9 and node7 on accelerator0, accelerator1 and cpu0."""


def written(folder: Path, fpgas: list[list[int]], cpus: list[list[int]]) -> Path:
    path = folder / "split.json"
    content: Any = {"fpgas": [{"nodes": v, "load": -1} for v in fpgas], "cpus": [{"nodes": v} for v in cpus]}
    path.write_text(json.dumps(content | {"maxLoad": -1.0}))
    return path


def refused(path: Path) -> str:
    with pytest.raises(InvalidInput) as caught:
        read_split(path, FORK_PROBLEM)
    assert "\n" not in str(caught.value) and str(caught.value).startswith(f"split {str(path)!r}: ")
    return str(caught.value)


def test_groups_are_devices_of_their_kind_in_order(tmp_path: Path) -> None:
    """5 and 9 on the second accelerator, 7 on the CPU."""
    split = read_split(written(tmp_path, [[], [9, 5]], [[7]]), FORK_PROBLEM)
    assert split.device_of.tolist() == [1, 1, 2] and split.excess == 0


def test_accelerators_beyond_those_that_there_are(tmp_path: Path) -> None:
    """The third group with nodes is device 3, which is one too many; empty groups count for nothing then."""
    split = read_split(written(tmp_path, [[5], [9], [7]], []), FORK_PROBLEM)
    assert split.device_of.tolist() == [0, 1, 3] and split.excess == 1
    split = read_split(written(tmp_path, [[5], [], [9], []], [[], [7]]), FORK_PROBLEM)
    assert split.device_of.tolist() == [0, 1, 2] and split.excess == 0


@pytest.mark.parametrize(
    ("fpgas", "cpus", "complaint"),
    [
        ([[5, 9]], [[5], [7]], "uses 2 CPUs; there are 1, so merge some"),
        ([[5, 9, 4]], [[7]], "there is no node with the id 4; give the problem that the split is for"),
        ([[5, 9], [5]], [[7]], "node 5 stands twice; keep one"),
        ([[5]], [], "2 of 3 nodes are in no group: 9, 7; add them"),
    ],
)
def test_what_is_wrong_with_a_split(tmp_path: Path, fpgas: Any, cpus: Any, complaint: str) -> None:
    """Each names the id, or the number of CPUs."""
    assert complaint in refused(written(tmp_path, fpgas, cpus))


@pytest.mark.parametrize("text", ["", "{}", '{"cpus": [], "fpgas": [{"nodes": ["5"]}]}', '{"cpus": 1, "fpgas": []}'])
def test_what_is_no_split_at_all(tmp_path: Path, text: str) -> None:
    """One line."""
    path = tmp_path / "split.json"
    path.write_text(text)
    refused(path)


def test_nodes_that_are_left_out_go_where_their_colour_is(tmp_path: Path) -> None:
    """The split of an inference serves for its training: 3 is the backward node of 1."""
    nodes = [node(1, colorClass=1), node(2, colorClass=2), node(3, colorClass=1, isBackwardNode=1)]
    content = FORK | {"nodes": nodes, "edges": [edge(1, 2), edge(2, 3)]}
    problem = partitioning_from_json(json.dumps(content).encode(), "w.json")
    assert read_split(written(tmp_path, [[2], [1]], []), problem).device_of.tolist() == [1, 0, 1]


def test_a_split_is_written_with_loads_in_milliseconds() -> None:
    """5 ms and 0.5 out; 9 ms and 0.5 in; a CPU pays nothing for what enters: 70 ms."""
    judged = evaluate(FORK_PROBLEM, [0, 1, 2])
    plan = Plan([0, 1, 2], judged.schedule, judged.value_s)  # type: ignore[arg-type]
    shown = json.loads(split_to_json(FORK_PROBLEM, plan, judged))
    assert [g["nodes"] for g in shown["fpgas"]] == [[5], [9]] and [g["nodes"] for g in shown["cpus"]] == [[7]]
    assert [g["load"] for g in shown["fpgas"] + shown["cpus"]] == pytest.approx([5.5, 9.5, 70.0])
    assert shown["maxLoad"] == pytest.approx(70.0)


def test_replicas_have_no_words_in_a_split() -> None:
    """The line says what to do."""
    judged = evaluate(FORK_PROBLEM, [0, 0, 2])
    plan = Plan([0, 0, 2], judged.schedule, judged.value_s, replicas=((0, 1),))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="the plan replicates stages, which a split of dnn-partitioning can't say"):
        split_to_json(FORK_PROBLEM, plan, judge(FORK_PROBLEM, plan))


@settings(max_examples=40, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(st.lists(st.integers(0, 2), min_size=3, max_size=3))
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, device_of: list[int]) -> None:
    """Any placement, also one that is no legal plan."""
    judged = evaluate(FORK_PROBLEM, device_of)
    plan = Plan(np.array(device_of, dtype=np.int32), judged.schedule, judged.value_s)
    path = tmp_path_factory.mktemp("split") / "s.json"
    path.write_text(split_to_json(FORK_PROBLEM, plan, judged))
    split = read_split(path, FORK_PROBLEM)
    assert (split.device_of.tolist(), split.excess) == (device_of, 0)


def test_a_published_split() -> None:
    """Six groups of the layers of BERT, as its file has them."""
    from placewright.io import read_partitioning

    problem = read_partitioning(workload("dnn-partitioning/throughput/layer_bert24_training.json"))
    path = workload("dnn-partitioning/expert/bert24_training_expert.json")
    content = json.loads(path.read_text())
    split = read_split(path, problem)
    assert np.bincount(split.device_of).tolist() == [len(group["nodes"]) for group in content["fpgas"]]
    # The split of the inference names the forward half alone, and means the same.
    inference = workload("dnn-partitioning/expert/bert24_inference_expert.json")
    assert read_split(inference, problem).device_of.tolist() == split.device_of.tolist()
