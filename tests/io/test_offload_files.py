"""Offload in files: problems, plans, results, workloads and splits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placewright.cluster import Cluster
from placewright.errors import InvalidInput
from placewright.evaluate import evaluate, judge, plan_for
from placewright.graph import Operator, OperatorGraph
from placewright.io import (
    problem_from_json,
    problem_hash,
    problem_to_json,
    problem_to_partitioning,
    read_plan,
    read_split,
    result_to_json,
    split_to_json,
    write_plan,
)
from placewright.io.partitioning_file import partitioning_from_json
from placewright.objective import MaxLoad, Offload
from placewright.problem import Problem
from placewright.result import Result
from tests.io.test_partitioning_file import FORK, edge, node
from tests.offload.by_letters import problem_of

CHAIN = [("ab", 2), ("bc", 1), ("cd", 2)]


def alternating(calls: int | None = 2, **given: Any) -> Problem:
    """a and c on CPUs, b and d in two calls of g1: 1; 1 + 2 + 3 + 1 = 7; 7 + 5 = 12; 12 + 2 + 4 = 18."""
    return problem_of([1, 3, 5, 4], CHAIN, calls, **given)


PLAN = plan_for(alternating(), [0, 1, 0, 1])
assert PLAN is not None


def test_the_objective_of_a_problem_file() -> None:
    """Its limit is a number, or null for any; without it there is none."""
    for calls in (None, 1, 7):
        content = problem_to_json(alternating(calls))
        assert content["objective"] == {"name": "offload", "calls": calls}
        assert problem_from_json(content).objective == Offload(calls)
    content["objective"] = {"name": "offload"}
    assert problem_from_json(content).objective == Offload()


@pytest.mark.parametrize(
    ("objective", "complaint"),
    [
        ({"calls": 0}, "0 calls a device are not at least 1; leave the limit out for any number"),
        ({"calls": "2"}, "objective.calls: expected `int | null`, got `str`"),
        ({"contention": "port"}, "unknown key 'contention'"),
    ],
)
def test_what_is_wrong_with_the_objective(objective: dict[str, Any], complaint: str) -> None:
    """Each is named with its value."""
    content = problem_to_json(alternating())
    content["objective"].update(objective)
    with pytest.raises(InvalidInput) as caught:
        problem_from_json(content)
    assert complaint in str(caught.value)


def test_the_hash_covers_the_limit_and_which_devices_are_cpus() -> None:
    """The pool pays nothing for transfers; other kinds are alike."""
    base = alternating()
    c, g, h = base.cluster.devices

    def of(*devices: Any) -> Problem:
        return Problem(base.graph, Cluster(devices, base.cluster.links), base.times, base.objective, name=base.name)

    hashes = [problem_hash(p) for p in (base, alternating(1), alternating(None), of(c, g, replace(h, kind="cpu")))]
    assert len(set(hashes)) == 4
    assert problem_hash(of(c, g, replace(h, kind="npu"))) == hashes[0]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    problem = alternating()
    write_plan(tmp_path / "plan.json", problem, Result(PLAN), judge(problem, PLAN))
    return tmp_path / "plan.json"


def test_a_plan_file_has_a_call_for_each_operator(path: Path) -> None:
    """They are read back; without them the fewest are meant; plans of other objectives have none."""
    content = json.loads(path.read_text())
    assert content["schedule"]["operators"]["call"] == [0, 0, 0, 1]
    assert [(c["device"], c["operators"]) for c in content["calls"]] == [("g1", ["b"]), ("g1", ["d"])]
    assert read_plan(path).plan.call_of.tolist() == [0, 0, 0, 1]  # type: ignore[union-attr]
    content["schedule"]["operators"]["call"] = [5, 3, 0, 9]
    path.write_text(json.dumps(content))
    assert read_plan(path).plan.call_of.tolist() == [0, 0, 0, 1]  # type: ignore[union-attr]
    del content["schedule"]["operators"]["call"]
    path.write_text(json.dumps(content))
    assert read_plan(path).plan.call_of.tolist() == [0, 0, 0, 1]  # type: ignore[union-attr]
    other = Problem(OperatorGraph([Operator("a")]), alternating().cluster, np.ones((1, 3)), MaxLoad())
    plan = plan_for(other, [0])
    assert plan is not None and plan.call_of is None
    write_plan(path, other, Result(plan), None)
    content = json.loads(path.read_text())
    assert "call" not in content["schedule"]["operators"] and content["calls"] == []
    content["schedule"]["operators"]["call"] = [0]
    path.write_text(json.dumps(content))
    with pytest.raises(
        InvalidInput, match=r"schedule.operators.call is for the objective offload, and this is max-load"
    ):
        read_plan(path)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        ([0, 1], "schedule.operators.call has 2 values; give one for each of the 4 operators"),
        ([0, 0, 0, -1], r"schedule.operators.call\[3\] is -1; calls are counted from 0"),
        ([0, 0, 0, 2**40], r"schedule.operators.call\[3\] is 1099511627776; calls are counted from 0"),
        ([0, 0, 0, 0.5], r"schedule.operators.call\[3\]: expected `int`, got `float`"),
    ],
)
def test_what_is_wrong_with_the_calls(path: Path, call: list[Any], complaint: str) -> None:
    """Each is named with its value."""
    content = json.loads(path.read_text())
    content["schedule"]["operators"]["call"] = call
    path.write_text(json.dumps(content))
    with pytest.raises(InvalidInput, match=complaint):
        read_plan(path)


def test_the_calls_of_a_result() -> None:
    """When each is made, what it costs, and what it runs; loads of a device are one a call."""
    problem = alternating()
    shown = result_to_json(problem, Result(PLAN), judge(problem, PLAN))
    parts = ("device", "start_s", "finish_s", "in_s", "compute_s", "out_s", "operators")
    assert [tuple(c.values()) for c in shown["calls"]] == [("g1", 1, 7, 2, 3, 1, ["b"]), ("g1", 12, 18, 2, 4, 0, ["d"])]
    assert tuple(shown["calls"][0]) == parts
    assert [len(d["loads"]) for d in shown["devices"]] == [0, 2, 0]
    assert shown["objective_options"] == {"calls": 2} and shown["value_s"] == 18


@pytest.mark.parametrize("cores", [0, 1, 8])
def test_the_cpus_of_a_workload_are_one_pool(cores: int) -> None:
    """One device, whatever ``maxCPUs`` says; an accelerator pays a tensor's cost to and from it."""
    problem = partitioning_from_json(json.dumps(FORK | {"maxCPUs": cores}).encode(), "fork.json", Offload())
    assert [d.name for d in problem.cluster.devices] == ["accelerator0", "accelerator1", "cpu0"]
    # 5 in a call 5 + 0.5 ms; then 9 in a call 0.5 + 9 beside 7 on the pool, 70.
    assert evaluate(problem, [0, 1, 2]).value_s == pytest.approx(0.0755)
    with pytest.raises(InvalidInput, match="maxCPUs -1 is below 0"):
        partitioning_from_json(json.dumps(FORK | {"maxCPUs": -1}).encode(), "fork.json", Offload())
    alone = partitioning_from_json(json.dumps(FORK | {"maxFPGAs": 0, "maxCPUs": 0}).encode(), "fork.json", Offload())
    assert [d.name for d in alone.cluster.devices] == ["cpu0"]


WORKLOAD = {
    "maxFPGAs": 2,
    "maxCPUs": 4,
    "nodes": [node(k, name=f"node{k}") for k in (1, 2, 3, 4)],
    "edges": [edge(1, 2), edge(2, 3), edge(3, 4)],
}


def written(folder: Path, fpgas: list[list[int]], cpus: list[list[int]]) -> Path:
    path = folder / "split.json"
    path.write_text(json.dumps({"fpgas": [{"nodes": v} for v in fpgas], "cpus": [{"nodes": v} for v in cpus]}))
    return path


def test_splits(tmp_path: Path) -> None:
    """Groups of CPUs are the pool; a split is written where its calls are the fewest, and read back."""
    problem = partitioning_from_json(json.dumps(WORKLOAD).encode(), "w.json", Offload())
    split = read_split(written(tmp_path, [[2, 4]], [[1], [], [3]]), problem)
    assert split.device_of.tolist() == [2, 0, 2, 0]
    plan = plan_for(problem, split.device_of)
    assert plan is not None and plan.call_of is not None and plan.call_of.tolist() == [0, 0, 0, 1]
    shown = json.loads(split_to_json(problem, plan, judge(problem, plan)))
    assert [g["nodes"] for g in shown["fpgas"]] == [[2, 4], []] and [g["nodes"] for g in shown["cpus"]] == [[1, 3]]
    # Calls of 0.5 + 2 + 0.5 and 0.5 + 4 ms.
    assert [g["load"] for g in shown["fpgas"]] == pytest.approx([7.5, 0]) and shown["maxLoad"] == -1
    apart = plan_for(problem, [0, 0, 0, 0], call_of=[0, 0, 1, 1])
    assert apart is not None
    with pytest.raises(
        InvalidInput, match=r"other calls than the fewest .* plan with --calls 1, or keep the plan file"
    ):
        split_to_json(problem, apart, judge(problem, apart))


def test_writing_workloads() -> None:
    """Cuts and memory of CPUs count for nothing under offload; without a CPU it can't be said."""
    problem = alternating(weights=(1, 1, 1, 1), memory=2)
    again = partitioning_from_json(problem_to_partitioning(problem).encode(), "w.json", Offload())
    assert again.cluster.devices[0].memory_bytes == 2
    assert evaluate(again, [2, 0, 2, 0]).value_s == pytest.approx(18)
    with pytest.raises(InvalidInput, match="there is no CPU; it has a pool of them always"):
        problem_to_partitioning(problem_of([1, 1], [("ab", 1)], devices="gg"))
