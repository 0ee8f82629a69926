"""Max-load on the command line: its flags, workloads, splits and profiles; what is printed, written, and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import placewright as pw
from placewright.io import problem_hash, read_any_problem
from tests.cli.commands import Call, written
from tests.cli.test_commands import RESULT_KEYS
from tests.io.test_partitioning_file import edge, node
from tests.io.test_pipedream_file import FORK as PROFILE
from tests.workloads import workload

# 1 -> 2 -> 3: 1, 2 and 3 ms on an accelerator, ten times that on a CPU; transfers of 0.5 ms.
CHAIN: dict[str, Any] = {
    "maxSizePerFPGA": 250.0,
    "maxFPGAs": 2,
    "maxCPUs": 1,
    "nodes": [node(k, name=f"node{k}") for k in (1, 2, 3)],
    "edges": [edge(1, 2), edge(2, 3)],
}
BEST = {"cpus": [{"nodes": []}], "fpgas": [{"nodes": [1, 2]}, {"nodes": [3]}]}
"""1 + 2 + 0.5 and 0.5 + 3 ms."""

CLUSTER = """
devices: [{name: "gpu[0-2]"}]
links: [{class: same-host, bandwidth: 1 GB/s, latency: 0}]
"""


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    return written(tmp_path, CHAIN, "chain.json")


@pytest.fixture
def split(tmp_path: Path) -> Path:
    return written(tmp_path, BEST, "split.json")


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    (tmp_path / "net.txt").write_text(PROFILE)
    (tmp_path / "c.yaml").write_text(CLUSTER)
    return tmp_path / "net.txt"


def expert_plan(placewright: Call, chain: Path, split: Path, *options: object) -> Path:
    path = chain.parent / "plan.json"
    shown = placewright("plan", chain, "--solver", "expert", "--expert", split, "--budget", "0", "-o", path, *options)
    assert shown.code == 0
    return path


def test_a_workload_is_planned_for_its_max_load(placewright: Call, chain: Path, split: Path) -> None:
    """The objective needs no flag; that milliseconds are assumed stands in text, JSON and HTML."""
    arguments = ["plan", chain, "--solver", "expert", "--expert", split, "--budget", "0"]
    shown = placewright(*arguments, "--json")
    assert shown.code == 0 and list(shown.json) == RESULT_KEYS
    assert shown.json["objective"] == "max-load" and shown.json["value_s"] == pytest.approx(0.0035)
    assert shown.json["times_source"] == "given, milliseconds assumed"
    assert f"workload {chain}: its times have no unit, milliseconds are assumed" in shown.err
    assert shown.json["placement"] == {"node1": "accelerator0", "node2": "accelerator0", "node3": "accelerator1"}
    loads = [d["loads"][0]["load_s"] for d in shown.json["devices"]]
    assert loads == pytest.approx([0.0035, 0.0035, 0])
    shown = placewright(*arguments, "--report", chain.parent / "r.html")
    assert shown.code == 0 and "milliseconds assumed" in shown.out and "3.5 ms" in shown.out
    assert "milliseconds assumed" in (chain.parent / "r.html").read_text()


def test_flags_change_the_objective(placewright: Call, chain: Path) -> None:
    """Each stands in the options of the result, and in the problem that convert writes."""
    flags = ["--non-contiguous", "--training-objective", "separate", "--overlap", "full", "--replicate"]
    flags += ["--sync-period", 8, "--sync-bandwidth", "10 GB/s", "--busy-share", 0.3]
    expected = pw.MaxLoad("any", True, "separate", "full", True, 8, 1e10, 0.3)
    shown = placewright("plan", chain, "--solver", "single-device", "--budget", "0", "--json", *flags)
    assert shown.code == 0
    assert shown.json["objective_options"] == {
        "contiguity": "any",
        "contiguous_cpus": True,
        "training": "separate",
        "overlap": "full",
        "replicate": True,
        "sync_period": 8,
        "sync_bandwidth_bytes_per_s": 1e10,
        "busy_share": 0.3,
    }
    out = chain.parent / "out.json"
    assert placewright("convert", chain, "-o", out, *flags).code == 0
    assert pw.read_problem(out).objective == expected
    again = chain.parent / "again.json"
    assert placewright("convert", out, "-o", again, "--contiguous", "--cpus-anywhere", "--no-replicate").code == 0
    assert pw.read_problem(again).objective == pw.MaxLoad("contiguous", False, "separate", "full", False, 8, 1e10, 0.3)
    assert placewright("convert", out, "-o", again, "--convex", "--cpus-anywhere", "--overlap", "none").code == 0
    read = pw.read_problem(again).objective
    assert read == pw.MaxLoad("convex", False, "separate", "none", True, 8, 1e10)
    assert placewright("convert", out, "-o", again, "--objective", "makespan", "--contention", "none").code == 0
    assert pw.read_problem(again).objective == pw.Makespan("none")


def test_a_captured_problem_is_planned_for_its_max_load(placewright: Call, problem_file: Path) -> None:
    """All on the fast device is 6 ms a sample."""
    shown = placewright(
        "plan", problem_file, "--objective", "max-load", "--solver", "single-device", "--budget", "0", "--json"
    )
    assert shown.code == 0 and shown.json["objective"] == "max-load" and shown.json["value_s"] == pytest.approx(0.006)


OUT = "leave it out, or add --objective"
THIS = "and this one is"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--contention", "port"], f"--contention is for the objective makespan, {THIS} max-load; {OUT} makespan"),
        (
            ["--objective", "makespan", "--convex"],
            f"--convex is for the objective max-load, {THIS} makespan; {OUT} max-load",
        ),
        (["--convex", "--non-contiguous"], "--convex and --non-contiguous exclude each other; keep one"),
        (["--sync-period", "2"], "--sync-period is about the weights of replicas; add --replicate or leave it out"),
        (["--sync-period", "0"], "Invalid value for '--sync-period'"),
        (["--busy-share", "0.3"], "use overlap transfers or full (--overlap), or leave the share out"),
        (["--overlap", "half"], "overlap 'half' is unknown; use one of none, transfers, full"),
        (["--training-objective", "x"], "training objective 'x' is unknown; use one of sum, separate"),
        (["--cluster", "c.yaml"], "has its own cluster; leave --cluster out"),
        (["--speed", "a=1"], "--speed is for profiles of PipeDream (.txt), and"),
        (["--inference"], "--inference is for profiles of PipeDream (.txt), and"),
        (["--solver", "expert"], "--solver expert judges a placement that is given; add --expert SPLIT.json"),
        (["--expert", "s.json"], "--expert is the placement that --solver expert judges; add that, or use 'compare'"),
        (["--solver", "expert", "--expert", "s.json"], "split 's.json': can't be read: no such file or directory"),
        (["--solver", "heft"], "solver 'heft' is unknown for the objective max-load; use auto or one of single-device"),
        (["--pin", "x=cpu0"], "pin x=cpu0: no operator matches 'x'"),
    ],
)
def test_flags_that_do_not_fit(placewright: Call, chain: Path, options: list[str], complaint: str) -> None:
    """One line, exit code 2, nothing written."""
    shown = placewright("plan", chain, "--budget", "0", "-o", "plan.json", *options)
    assert (shown.code, shown.out) == (2, "") and complaint in shown.line
    assert [p.name for p in chain.parent.iterdir()] == ["chain.json"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (CHAIN | {"nodes": []}, "workload '{}': nodes: it has no nodes; there is nothing to place"),
        (CHAIN | {"edges": [edge(1, 2), edge(2, 1)]}, "workload '{}': the operators form a cycle: 'node"),
        (
            BEST,
            "file '{}': is a split of dnn-partitioning, not a problem; give the workload, and the split with --expert",
        ),
        ({}, "problem file '{}': has no 'schema'"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "compare"])
def test_bad_workloads(placewright: Call, tmp_path: Path, command: str, content: object, complaint: str) -> None:
    """One line that says what the file was taken for, exit code 2."""
    path = written(tmp_path, content)
    shown = placewright(command, path)
    assert (shown.code, shown.out) == (2, "") and shown.line.startswith(complaint.format(path))


def test_an_experts_split_beside_the_solvers(placewright: Call, chain: Path, split: Path) -> None:
    """A row of its own, also where solvers are named; without a file there is none."""
    shown = placewright("compare", chain, "--expert", split, "--solvers", "single-device", "--budget", "0", "--json")
    assert shown.code == 0
    assert [(r["solver"], pytest.approx(r["value_s"])) for r in shown.json["results"]] == [
        ("single-device", 0.06),  # two accelerators of 250 bytes hold two nodes each, so the CPU: 10 + 20 + 30 ms
        ("expert", 0.0035),
    ]
    assert {tuple(r) for r in shown.json["results"]} == {tuple(RESULT_KEYS)}
    table = placewright("compare", chain, "--expert", split, "--solvers", "single-device", "--budget", "0")
    assert table.code == 0 and " expert" in table.out and "3.5 ms" in table.out
    refused = placewright("compare", chain, "--solvers", "expert", "--budget", "0")
    assert refused.code == 2 and "give its file with --expert SPLIT.json" in refused.line


@pytest.mark.parametrize(
    ("fpgas", "value_s", "rule"),
    [
        ([[1], [2], [3]], 0.0035, "it uses 3 accelerators, and there are 2"),  # 3 + 0.5
        ([[1, 3], [2]], 0.005, "the placement is not contiguous"),  # 1 + 3 + 0.5 out + 0.5 in
        ([[1, 2, 3], []], 0.006, "device 'accelerator0' needs 300 B"),
    ],
)
def test_a_split_that_breaks_a_rule(
    placewright: Call, chain: Path, fpgas: list[list[int]], value_s: float, rule: str
) -> None:
    """No plan, exit code 3; the line names value and rule, and so does the JSON object."""
    path = written(chain.parent, {"cpus": [], "fpgas": [{"nodes": v} for v in fpgas]}, "split.json")
    arguments = ["plan", chain, "--solver", "expert", "--expert", path, "--budget", "0", "-o", "plan.json"]
    shown = placewright(*arguments, "--json")
    assert shown.code == 3 and shown.json["placement"] is None and shown.json["rejected"].startswith(rule)
    assert shown.json["rejected_s"] == pytest.approx(value_s)
    assert f"what the solver ended with ({1e3 * value_s:g} ms) is no plan: {rule}" in shown.line
    assert not (chain.parent / "plan.json").exists()


def test_export_writes_the_published_split(placewright: Call, chain: Path, split: Path) -> None:
    """Ids and loads in milliseconds, to a file or to the terminal; read again it is the same placement."""
    plan = expert_plan(placewright, chain, split)
    out = chain.parent / "out.json"
    shown = placewright("export", plan, "--format", "dnn-partitioning", "-o", out)
    assert (shown.code, shown.out, shown.err) == (0, "", "")
    content = json.loads(out.read_text())
    assert [g["nodes"] for g in content["fpgas"]] == [[1, 2], [3]] and [g["nodes"] for g in content["cpus"]] == [[]]
    assert [g["load"] for g in content["fpgas"]] == pytest.approx([3.5, 3.5])
    assert content["maxLoad"] == pytest.approx(3.5)
    assert placewright("export", plan, "--format", "dnn-partitioning").out == out.read_text()
    again = placewright("plan", chain, "--solver", "expert", "--expert", out, "--budget", "0", "--json")
    assert again.json["value_s"] == pytest.approx(0.0035)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["export", "plan.json", "--format", "tvm"], "--format 'tvm' is unknown; use one of accelerate, diffusers"),
        (["export", "plan.json"], "Missing option '--format'"),
        (["export", "gone.json", "--format", "dnn-partitioning"], "plan file 'gone.json': can't be read"),
        (["export", "chain.json", "--format", "dnn-partitioning"], "plan file 'chain.json': has no 'schema'"),
        (["export", "plan.json", "--format", "dnn-partitioning", "-o", "gone/x"], "there is no folder"),
        (
            ["convert", "chain.json", "-o", "x.json", "--format", "vllm"],
            "--format 'vllm' is unknown; use one of problem",
        ),
    ],
)
def test_exports_that_are_refused(
    placewright: Call, chain: Path, split: Path, arguments: list[str], complaint: str
) -> None:
    """One line, exit code 2."""
    expert_plan(placewright, chain, split)
    shown = placewright(*arguments)
    assert (shown.code, shown.out) == (2, "") and complaint in shown.line


def test_replicas_are_written_shown_evaluated_and_verified(placewright: Call, chain: Path, split: Path) -> None:
    """A plan with two copies of one stage: halves of 6 ms; what the file carries is what every command judges."""
    from placewright.evaluate import judge, plan_for
    from placewright.io import write_plan

    content = CHAIN | {"maxSizePerFPGA": 1000.0}
    problem = read_any_problem(written(chain.parent, content, "large.json")).problem
    problem = pw.Problem(problem.graph, problem.cluster, problem.times, pw.MaxLoad(replicate=True), (), problem.name)
    plan = plan_for(problem, [0, 0, 0], replicas=[(0, 1)])
    assert plan is not None and plan.value_s == pytest.approx(0.003)
    path = chain.parent / "replicas.json"
    write_plan(path, problem, pw.Result(plan, 0.003), judge(problem, plan))
    stored = json.loads(path.read_text())
    assert stored["replicas"] == [["accelerator0", "accelerator1"]]
    assert stored["placement"]["node1"] == ["accelerator0", "accelerator1"]
    shown = placewright("evaluate", path, path, "--json")
    assert shown.code == 0 and shown.json["value_s"] == pytest.approx(0.003) and shown.json["violations"] == []
    assert placewright("verify", path, path).code == 0
    shown = placewright("show", path)
    assert shown.code == 0 and "3 ms" in shown.out
    refused = placewright("export", path, "--format", "dnn-partitioning")
    assert refused.code == 2 and "the plan replicates stages" in refused.line


def test_a_plan_is_judged_on_the_workload_that_it_is_for(placewright: Call, chain: Path, split: Path) -> None:
    """A workload states no objective: the plan's counts, whatever its options."""
    plan = expert_plan(placewright, chain, split, "--non-contiguous", "--overlap", "full")
    shown = placewright("evaluate", chain, plan, "--json")
    assert shown.code == 0 and shown.json["value_s"] == pytest.approx(0.003)
    assert placewright("verify", chain, plan).code == 0
    other = written(chain.parent, CHAIN | {"maxSizePerFPGA": 999.0}, "other.json")
    refused = placewright("verify", other, plan)
    assert refused.code == 2 and "devices[0][2] is 250 in the plan's, 999 in this one" in refused.line


def test_an_option_that_differs_is_named(placewright: Call, chain: Path, split: Path) -> None:
    """Between a plan and a problem file of another objective."""
    plan = expert_plan(placewright, chain, split, "--non-contiguous")
    assert placewright("convert", chain, "-o", "p.json").code == 0
    refused = placewright("evaluate", "p.json", plan)
    assert refused.code == 2 and "objective.contiguity is 'any' in the plan's, 'contiguous' in this one" in refused.line


def test_convert_to_a_workload_and_back(placewright: Call, chain: Path, problem_file: Path) -> None:
    """The same problem, to the hash; what the format can't say is refused with the reasons."""
    out = chain.parent / "again.json"
    assert placewright("convert", chain, "-o", out, "--format", "dnn-partitioning").code == 0
    assert problem_hash(read_any_problem(out).problem) == problem_hash(read_any_problem(chain).problem)
    refused = placewright("convert", problem_file, "-o", "no.json", "--format", "dnn-partitioning")
    assert refused.code == 2 and refused.line.startswith("dnn-partitioning can't say this problem: ")
    assert not (chain.parent / "no.json").exists()


def test_a_profile_is_planned(placewright: Call, profile: Path) -> None:
    """6.5 ms forward and 9 ms backward on one device; unlike speeds change them; the lines say what was assumed."""
    arguments = ["plan", profile, "--cluster", "c.yaml", "--solver", "single-device", "--budget", "0", "--json"]
    shown = placewright(*arguments)
    assert shown.code == 0 and shown.json["objective"] == "max-load"
    assert shown.json["value_s"] == pytest.approx(0.0155)
    assert "milliseconds are assumed" in shown.err
    assert "no --speed is given for every device: taken to be as fast as the profiled device" in shown.err
    shown = placewright(*arguments, "--speed", "gpu*=0.5", "--speed", "gpu[1-1]=2", "--inference")
    assert shown.code == 0 and shown.json["value_s"] == pytest.approx(0.00325)
    assert "no --speed" not in shown.err
    assert shown.json["times_source"] == "given, milliseconds assumed; speed gpu0=0.5, gpu1=2, gpu2=0.5"
    shown = placewright(*arguments, "--speed", "gpu1=2", "--objective", "makespan", "--contention", "none")
    assert shown.code == 0 and shown.json["objective_options"] == {"contention": "none"}
    assert "no --speed is given for gpu0, gpu2" in shown.err


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ([], "needs a cluster to be placed on; give --cluster"),
        (["--cluster", "c.yaml", "--speed", "gpu9=1"], "--speed 'gpu9=1': no device is named 'gpu9'; did you mean"),
        (["--cluster", "c.yaml", "--speed", "gpu0"], "--speed 'gpu0' is not PATTERN=FACTOR"),
        (["--cluster", "c.yaml", "--speed", "gpu0=0"], "the speed '0' is not a number above 0"),
        (["--cluster", "c.yaml", "--contention", "port"], "--contention is for the objective makespan"),
    ],
)
def test_profiles_that_are_refused(placewright: Call, profile: Path, options: list[str], complaint: str) -> None:
    """One line, exit code 2."""
    shown = placewright("plan", profile, *options)
    assert (shown.code, shown.out) == (2, "") and complaint in shown.line


def test_a_profile_is_no_problem_to_judge_by(placewright: Call, chain: Path, split: Path, profile: Path) -> None:
    """It has no devices; the line names what has."""
    plan = expert_plan(placewright, chain, split)
    shown = placewright("evaluate", profile, plan)
    assert shown.code == 2 and "has neither devices nor their times; give a problem file" in shown.line


@pytest.mark.parametrize("name", ["layer_bert24_inference", "layer_bert24_training"])
def test_a_published_workload(placewright: Call, tmp_path: Path, name: str) -> None:
    """The expert's split of BERT through plan, verify, evaluate and export: the published value."""
    path = workload(f"dnn-partitioning/throughput/{name}.json")
    split = workload(f"dnn-partitioning/expert/{name.removeprefix('layer_')}_expert.json")
    plan = tmp_path / "plan.json"
    shown = placewright("plan", path, "--solver", "expert", "--expert", split, "--budget", "0", "-o", plan, "--json")
    published = {"layer_bert24_inference": 20.084, "layer_bert24_training": 49.4049}[name]
    assert shown.code == 0 and shown.json["value_s"] * 1e3 == pytest.approx(published, rel=1e-5)
    assert placewright("verify", path, plan).code == 0
    assert placewright("evaluate", path, plan).code == 0
    exported = json.loads(placewright("export", plan, "--format", "dnn-partitioning").out)
    assert [g["nodes"] for g in exported["fpgas"]] == [
        sorted(g["nodes"]) for g in json.loads(split.read_text())["fpgas"]
    ]
    assert exported["maxLoad"] == pytest.approx(published, rel=1e-5)
