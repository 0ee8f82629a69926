"""Published baselines of the offload latency against the values of the published programs, and on small problems."""

from __future__ import annotations

import csv
from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from placewright.algorithm import Budget
from placewright.cluster import Cluster, Device, Link
from placewright.evaluate import judge
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.io import read_partitioning, read_split
from placewright.objective import Offload
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.expert import Expert
from placewright.solvers.offload import OFFLOAD_SOLVERS
from placewright.solvers.offload.blocks import depth_first_blocks
from placewright.verify import verify
from tests.offload.brute_force import optimum
from tests.offload.random_problems import offload_problems
from tests.workloads import FOLDER, workload, workloads

FILES = workloads("dnn-partitioning/offload/*.json")
MANY = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)


@cache
def _rows() -> dict[tuple[str, str], tuple[float, str]]:
    path = FOLDER / "reference.csv"
    if not path.exists():
        return {}
    with path.open() as file:
        rows = [r for r in csv.DictReader(file) if r["problem"] == "offload" and r["value"]]
    return {(r["file"], r["method"]): (float(r["value"]) * 1e-3, r["note"]) for r in rows}


def _published(file: str, *methods: str) -> list[tuple[float, str]]:
    """Value in seconds and note of each method that has a row for the file."""
    found = [_rows()[file, m] for m in methods if (file, m) in _rows()]
    if not found:
        pytest.skip(f"reference.csv has no {' or '.join(methods)} for {file}")
    return found


def _run(problem: Problem, solver: str) -> Result:
    return OFFLOAD_SOLVERS[solver].algorithm(problem, budget=Budget(120), rng=np.random.default_rng(0))


@pytest.mark.parametrize("file", FILES)
def test_greedy_is_the_published_one(file: str) -> None:
    """The same value on each file, by a plan that breaks no rule, with one call an accelerator where that is enough."""
    problem = read_partitioning(workload(file), Offload())
    ((value_s, _),) = _published(file, "published-greedy")
    found = _run(problem, "offload-greedy")
    assert found.value_s == pytest.approx(value_s, rel=1e-6)
    assert verify(problem, found.require_plan()) == ()


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_the_split_of_a_pipeline_is_one_of_the_published_ones(file: str) -> None:
    """Where the least max-load is that of one split the value is the published one, else no worse than the worst."""
    problem = read_partitioning(workload(file), Offload())
    rows = _published(file, "published-dp-split-as-offload", "published-dpl-split-as-offload")
    found = _run(problem, "max-load-split")
    assert found.value_s <= max(value_s for value_s, _ in rows) * (1 + 1e-5)
    assert verify(problem, found.require_plan()) == ()


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_scotch_is_no_worse_than_the_published_one(file: str) -> None:
    """The best of 32 orders, plan or not; one that breaks the memory limit is named as such."""
    problem = read_partitioning(workload(file), Offload())
    reason = OFFLOAD_SOLVERS["scotch"].supports(problem)
    if reason is not None:
        pytest.skip(reason)
    rows = _published(file, "published-scotch", "published-scotch-1-thread")
    found = _run(problem, "scotch")
    assert min(found.value_s, found.rejected_s) <= max(value_s for value_s, _ in rows) * (1 + 1e-5)
    assert found.plan is not None or "MiB" in found.rejected or "GiB" in found.rejected


@pytest.mark.parametrize("file", FILES)
def test_experts_have_their_published_values(file: str) -> None:
    """What the published program computes for the experts' splits, and the rule that the row says they break."""
    problem = read_partitioning(workload(file), Offload())
    ((value_s, note),) = _published(file, "published-expert")
    name = file.rpartition("layer_")[2].removesuffix(".json")
    split = read_split(workload(f"dnn-partitioning/expert/{name}_expert.json"), problem)
    found = Expert(tuple(split.device_of.tolist()))(problem, budget=Budget(), rng=np.random.default_rng(0))
    assert min(found.value_s, found.rejected_s) == pytest.approx(value_s, rel=1e-5)
    assert (found.plan is None) == ("violates" in note)
    assert ("accelerators used" in note) == ("accelerators, and there are" in found.rejected)


@pytest.mark.parametrize("solver", ["offload-greedy", "max-load-split"])
@MANY
@given(problem=offload_problems())
def test_any_problem(solver: str, problem: Problem) -> None:
    """A plan that breaks no rule and is no better than the optimum, or none."""
    entry = OFFLOAD_SOLVERS[solver]
    if entry.supports(problem) is not None:
        return
    found = _run(problem, solver)
    assert found.lower_bound_s == 0.0
    if found.plan is not None:
        assert judge(problem, found.plan).violations == () == verify(problem, found.plan)
        assert found.value_s >= optimum(problem) * (1 - 1e-9)


def _fork(memory: int) -> Problem:
    """The first operator feeds two, which feed a fourth; 6 bytes each."""
    graph = OperatorGraph(
        [Operator(v, weight_bytes=6) for v in "abcd"],
        [Tensor("x", 0, (1, 2), 8), Tensor("y", 1, (3,), 8), Tensor("z", 2, (3,), 8)],
    )
    cluster = Cluster(
        [Device("g0", memory_bytes=memory), Device("g1", memory_bytes=memory), Device("c", kind="cpu")],
        [Link(0.0, 8.0, link_class="same-host")],
    )
    return Problem(graph, cluster, np.tile([1.0, 1.0, 9.0], (4, 1)), Offload())


def test_greedy_fills_one_accelerator_after_the_other() -> None:
    """Depth first: a and c, then b and d; with less memory d is left to the CPU, with none all are."""
    assert [b.tolist() for b in depth_first_blocks(_fork(6))] == [[0], [2], [1], [3]]
    devices = {m: _run(_fork(m), "offload-greedy").require_plan().device_of.tolist() for m in (12, 6, 5, 24)}
    assert devices == {12: [0, 1, 0, 1], 6: [0, 2, 1, 2], 5: [2, 2, 2, 2], 24: [0, 0, 0, 0]}


def test_greedy_takes_classes_whole() -> None:
    """Units that edges tie in a cycle are one block; one that no CPU runs goes where there is room."""
    graph = OperatorGraph(
        [Operator(v, weight_bytes=3) for v in "abcd"],
        [Tensor("x", 0, (1,), 8), Tensor("y", 2, (3,), 8)],
        [(0, 3), (1, 2)],
    )
    cluster = Cluster([Device("g", memory_bytes=12), Device("c", kind="cpu")], [Link(0.0, 8.0, link_class="same-host")])
    problem = Problem(graph, cluster, [[1.0, np.inf]] * 4, Offload())
    assert [b.tolist() for b in depth_first_blocks(problem)] == [[0, 1, 2, 3]]
    assert _run(problem, "offload-greedy").require_plan().device_of.tolist() == [0, 0, 0, 0]


def test_a_split_that_needs_more_calls_than_allowed_is_no_plan() -> None:
    """The operator in the middle runs on the CPU alone: two calls around it."""
    graph = OperatorGraph([Operator(v) for v in "abc"], [Tensor("x", 0, (1,), 8), Tensor("y", 1, (2,), 8)])
    cluster = Cluster([Device("g"), Device("c", kind="cpu")], [Link(0.0, 8.0, link_class="same-host")])
    seconds = [[1.0, 9.0], [np.inf, 1.0], [1.0, 9.0]]
    found = _run(Problem(graph, cluster, seconds, Offload(1)), "offload-greedy")
    assert found.plan is None and found.rejected_s == 5.0 and "2 calls" in found.rejected
    assert _run(Problem(graph, cluster, seconds, Offload(2)), "offload-greedy").value_s == 5.0
