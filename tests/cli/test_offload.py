"""Offload on the command line: its flags, workloads and splits; what is printed, written, and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from placewright.io import problem_to_json, read_any_problem
from tests.cli.commands import Call, written
from tests.cli.test_commands import RESULT_KEYS
from tests.io.test_offload_files import WORKLOAD, alternating
from tests.workloads import workload

SPLIT = {"cpus": [{"nodes": [1]}, {"nodes": [3]}], "fpgas": [{"nodes": [2, 4]}, {"nodes": []}]}
"""1 and 3 on the pool, 10 and 30 ms; calls of 0.5 + 2 + 0.5 and 0.5 + 4 ms: 47.5 ms."""

OFFLOAD = ("--objective", "offload")


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    return written(tmp_path, WORKLOAD, "chain.json")


@pytest.fixture
def expert(tmp_path: Path) -> tuple[object, ...]:
    return ("--solver", "expert", "--expert", written(tmp_path, SPLIT, "split.json"), "--budget", "0")


def test_a_workload_is_planned_for_its_latency(placewright: Call, chain: Path, expert: tuple[object, ...]) -> None:
    """A split that is not contiguous is cut into two calls; that the CPUs are a pool is said."""
    shown = placewright("plan", chain, *OFFLOAD, *expert, "--json")
    assert shown.code == 0 and list(shown.json) == RESULT_KEYS
    assert shown.json["objective"] == "offload" and shown.json["objective_options"] == {"calls": None}
    assert shown.json["value_s"] == pytest.approx(0.0475)
    assert [c["operators"] for c in shown.json["calls"]] == [["node2"], ["node4"]]
    assert f"workload {chain}: its CPUs are one pool, which maxCPUs does not limit" in shown.err
    shown = placewright("plan", chain, *OFFLOAD, *expert, "--report", chain.parent / "r.html")
    assert shown.code == 0 and "calls, in the order of their starts" in shown.out and "47.5 ms" in shown.out
    assert "Calls in the order of their starts" in (chain.parent / "r.html").read_text()


def test_what_is_wrong_with_a_plan_is_said(placewright: Call, chain: Path, expert: tuple[object, ...]) -> None:
    """A plan that can't be read is named with its fault, not as one for another problem."""
    plan = chain.parent / "plan.json"
    assert placewright("plan", chain, *OFFLOAD, *expert, "-o", plan).code == 0
    content = json.loads(plan.read_text())
    content["schedule"]["operators"]["call"][0] = -1
    plan.write_text(json.dumps(content))
    shown = placewright("verify", chain, plan)
    assert shown.code == 2 and "schedule.operators.call[0] is -1; calls are counted from 0" in shown.line


def test_a_limit_of_calls(placewright: Call, chain: Path, expert: tuple[object, ...]) -> None:
    """With one call a device the split breaks the rule: exit code 3."""
    shown = placewright("plan", chain, *OFFLOAD, "--calls", "1", *expert)
    assert shown.code == 3 and "device 'accelerator0' makes 2 calls, and 1 are allowed" in shown.line
    shown = placewright("plan", chain, *OFFLOAD, "--calls", "2", *expert, "--json")
    assert shown.code == 0 and shown.json["objective_options"] == {"calls": 2}


def test_a_plan_is_verified_evaluated_shown_and_exported(
    placewright: Call, chain: Path, expert: tuple[object, ...], tmp_path: Path
) -> None:
    """On the plan's own problem and on the workload, which states no objective and is judged by the plan's."""
    plan = tmp_path / "plan.json"
    assert placewright("plan", chain, *OFFLOAD, "--calls", "2", *expert, "-o", plan).code == 0
    for problem in (plan, chain):
        shown = placewright("verify", problem, plan)
        assert shown.code == 0 and shown.out.startswith("verified: ")
        shown = placewright("evaluate", problem, plan, "--json")
        assert shown.code == 0 and shown.json["value_s"] == pytest.approx(0.0475)
    shown = placewright("show", plan, "--trace", tmp_path / "t.json", "--report", tmp_path / "r.html")
    assert shown.code == 0 and "offload, at most 2 calls a device" in shown.out
    assert "call 2: 1 operator" in (tmp_path / "t.json").read_text()
    shown = placewright("export", plan, "--format", "dnn-partitioning")
    assert shown.code == 0 and json.loads(shown.out)["fpgas"][0]["nodes"] == [2, 4]


def test_calls_in_a_plan_that_do_not_fit(
    placewright: Call, chain: Path, expert: tuple[object, ...], tmp_path: Path
) -> None:
    """One call of what a path leaves: exit code 3 of both judges, and no way to write a split of it."""
    plan = tmp_path / "plan.json"
    assert placewright("plan", chain, *OFFLOAD, *expert, "-o", plan).code == 0
    content: dict[str, Any] = json.loads(plan.read_text())
    content["schedule"]["operators"]["call"] = [0, 0, 0, 0]
    plan.write_text(json.dumps(content))
    shown = placewright("verify", plan, plan, "--json")
    assert shown.code == 3
    assert "a path leaves call 1 of 'accelerator0' and comes back to it" in shown.json["violations"]
    shown = placewright("evaluate", plan, plan)
    assert shown.code == 3 and "infeasible" in shown.out
    assert placewright("show", plan, "--report", tmp_path / "r.html").code == 0
    shown = placewright("export", plan, "--format", "dnn-partitioning")
    assert shown.code == 2 and "names devices alone; plan with --calls 1, or keep the plan file" in shown.line
    content["schedule"]["operators"]["call"] = [0, 0, 0]
    plan.write_text(json.dumps(content))
    shown = placewright("verify", plan, plan)
    assert shown.code == 2 and "schedule.operators.call has 3 values; give one for each of the 4" in shown.line


def test_a_problem_file_keeps_its_limit(placewright: Call, tmp_path: Path) -> None:
    """And flags change it; a network is planned for offload on a cluster file as well."""
    path = written(tmp_path, problem_to_json(alternating(2)))
    for flags, calls in (((), 2), (("--calls", "1"), 1), (("--calls", "any"), None)):
        shown = placewright("plan", path, *flags, "--solver", "single-device", "--budget", "0", "--json")
        assert shown.code == 0 and shown.json["objective_options"] == {"calls": calls}
    out = tmp_path / "out.json"
    assert placewright("convert", path, "--calls", "any", "-o", out).code == 0
    assert read_any_problem(out).problem.objective.calls is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("--calls", "2"), "--calls is for the objective offload, and this one is max-load; leave it out, or add"),
        ((*OFFLOAD, "--calls", "0"), "--calls '0' is neither a whole number from 1 to 999999999 nor 'any'; write for"),
        ((*OFFLOAD, "--contention", "link"), "--contention is for the objective makespan, and this one is offload"),
        ((*OFFLOAD, "--replicate"), "--replicate is for the objective max-load, and this one is offload"),
        (
            ("--objective", "off"),
            "objective 'off' is unknown; use one of makespan, token-latency, max-load, throughput, offload",
        ),
    ],
)
@pytest.mark.parametrize("command", ["plan", "compare"])
def test_flags_that_do_not_fit(
    placewright: Call, chain: Path, command: str, flags: tuple[str, ...], complaint: str
) -> None:
    """One line, exit code 2."""
    shown = placewright(command, chain, *flags)
    assert (shown.code, shown.out) == (2, "") and shown.line.startswith(complaint)


@pytest.mark.parametrize(
    ("name", "split", "value_s", "rule"),
    [
        ("layer_bert24", "bert24", 0.111937, "it uses 6 accelerators, and there are 5"),
        ("layer_gnmt", "gnmt", 0.293403, "device 'accelerator"),
        ("layer_resnet50", "resnet50", 1.014927, "device 'accelerator"),
    ],
)
def test_published_workloads(placewright: Call, name: str, split: str, value_s: float, rule: str) -> None:
    """The experts' splits break a rule, and take as long as the published program says they do."""
    path = workload(f"dnn-partitioning/offload/{name}_inference.json")
    expert = workload(f"dnn-partitioning/expert/{split}_inference_expert.json")
    shown = placewright("plan", path, *OFFLOAD, "--solver", "expert", "--expert", expert, "--budget", "0", "--json")
    assert shown.code == 3 and rule in shown.json["rejected"]
    assert shown.json["rejected_s"] == pytest.approx(value_s, abs=1e-6)


def test_compare(placewright: Call, chain: Path) -> None:
    """On the CPU 100 ms, on an accelerator (no memory limit) 10 ms; a row for each solver."""
    shown = placewright("compare", chain, *OFFLOAD, "--solvers", "single-device,offload-greedy", "--budget", "0")
    assert shown.code == 0 and " single-device" in shown.out and " offload-greedy" in shown.out and "10 ms" in shown.out


def test_a_captured_network(placewright: Call, tmp_path: Path) -> None:
    """An ONNX model on a cluster of a CPU and an accelerator, twice as fast: everything goes there, in one call."""
    pytest.importorskip("onnx")
    from tests.execute.small_onnx import branching, saved

    model, cluster = saved(branching(), tmp_path), tmp_path / "c.yaml"
    figures = "flops: {fp32: 1 TFLOP/s}, memory_bandwidth"
    cluster.write_text(
        f"devices: [{{name: cpu, kind: cpu, {figures}: 10 GB/s}}, {{name: npu, kind: npu, {figures}: 20 GB/s}}]\n"
        "links: [{class: same-host, bandwidth: 5 GB/s, latency: 20 us}]\n"
    )
    plan = tmp_path / "plan.json"
    arguments = ("--cluster", cluster, *OFFLOAD, "--solver", "single-device", "--budget", "0", "-o", plan)
    shown = placewright("plan", model, *arguments, "--json", "--fuse", "none")
    assert shown.code == 0 and shown.json["problem"]["operators"] == 21
    assert placewright("verify", plan, plan).code == 0
    # Branches run side by side on the pool, but one after the other in a call.
    assert set(shown.json["placement"].values()) <= {"cpu", "npu"} and len(shown.json["calls"]) <= 1
