"""Bad input ends in one line that says what is wrong and what to do, exit code 2, and leaves no file behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import Call, changed, fork, written

Change = Callable[[dict[str, Any]], object]


def set_time(value: object) -> Change:
    def change(content: dict[str, Any]) -> None:
        content["processing_s"][1][0] = value

    return change


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            lambda c: c["graph"]["tensors"].append({"name": "back", "producer": 3, "readers": [0], "size_bytes": 1}),
            r"the operators form a cycle: 'a' -> '[bc]' -> 'd' -> 'a'",
        ),
        (set_time(-1), r"operator 'b' on 'fast': processing time -1\.0 s is not a number of at least 0"),
        (set_time(float("nan")), "is not valid JSON"),
        (set_time("NaN"), r"processing_s\[1\]\[0\]: expected `float \| null`, got `str`"),
        (set_time(1e308), "processing time 1e\\+308 s is above 1e\\+100 s; use inf where it can't be"),
        (set_time(10**400), r"processing_s\[1\]\[0\]: "),
        (lambda c: c["processing_s"].pop(), "processing_s has 3 rows; give one for each of the 4 operators"),
        (lambda c: c["cluster"]["links"][0].update(bandwidth_bytes_per_s=0), r"bandwidth 0\.0 B/s is not above 0"),
        (lambda c: c["cluster"]["links"][0].update({"class": "", "between": ["fast", "gone"]}), "no device 'gone'"),
        (lambda c: c["cluster"]["devices"][1].update(name="fast"), "device 'fast' stands twice"),
        (lambda c: c["graph"]["operators"][0].update(weight_bytes=-5), "weight_bytes -5 is below 0"),
        (lambda c: c.update(schema="placewright/problem/99"), "says that it is 'placewright/problem/99'"),
        (lambda c: c.update(colour="red"), "unknown key 'colour'"),
    ],
)
def test_problem_files_that_break_a_rule(placewright: Call, tmp_path: Path, change: Change, complaint: str) -> None:
    """Each names the file and the thing in it."""
    path = written(tmp_path, changed(change))
    shown = placewright("plan", path, "-o", tmp_path / "plan.json", "--json")
    assert (shown.code, shown.out) == (2, "")
    assert shown.line.startswith(f"problem file '{path}'") and re.search(complaint, shown.line)
    assert [p.name for p in tmp_path.iterdir()] == ["problem.json"]


def test_all_violations_are_reported(placewright: Call, tmp_path: Path) -> None:
    """Two bad times and an unknown device in a wish: all three in the line."""

    def change(content: dict[str, Any]) -> None:
        content["processing_s"][1][0] = content["processing_s"][2][1] = -1
        content["wishes"] = [{"pattern": "a", "device": "gone"}]

    shown = placewright("plan", written(tmp_path, changed(change)))
    assert shown.code == 2 and shown.line.count("-1.0 s") == 2 and "no device is named 'gone'" in shown.line


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("empty.json", b"", "truncated"),
        ("half.json", json.dumps(fork()).encode()[:300], "truncated"),
        ("garbage.json", bytes(range(256)) * 8, "is not valid JSON"),
        ("nested.json", b"[" * 10_000_000, "at most"),
        ("deep.json", b"[" * 100_000, "is not valid JSON|nested too deeply|expected `object`"),
        ("latin.json", json.dumps(fork()).encode().replace(b"fork", b"f\xf6rk"), "UTF-8|not valid JSON"),
        ("list.json", b"[]", "expected `object`"),
    ],
)
def test_files_that_are_no_problem(
    placewright: Call, tmp_path: Path, name: str, content: bytes, complaint: str
) -> None:
    """Empty, cut off, binary, nested a hundred thousand or ten million levels deep."""
    (tmp_path / name).write_bytes(content)
    shown = placewright("plan", name)
    assert (shown.code, shown.out) == (2, "")
    assert shown.line.startswith(f"problem file '{name}'") and re.search(complaint, shown.line)
    assert len(shown.line) < 500


@pytest.mark.parametrize("name", ["bomb.json", "bomb.yaml"])
def test_two_gigabytes_are_refused_unread(placewright: Call, tmp_path: Path, cluster_file: Path, name: str) -> None:
    """Only the size of a file of 2 GiB is looked at."""
    with (tmp_path / name).open("wb") as file:
        file.truncate(2**31)
    arguments = [name] if name.endswith("json") else ["model.onnx", "--cluster", name]
    shown = placewright("plan", *arguments)
    assert shown.code == 2 and "has 2 GiB; files above" in shown.line


LAUGHS = "a: &a [1,1,1]\n" + "\n".join(
    f"{b}: &{b} [*{a},*{a},*{a}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "expected `object`"),
        (LAUGHS.encode(), r"line 2 uses the alias \*a; write the value out instead"),
        (b"[" * 100_000, "nest"),
        (bytes(range(128, 256)) * 8, "is not valid YAML"),
        (b"devices: []\n", "it has no devices"),
        (b"devices: [{name: a, memory: 24 GBit}]\n", "unknown unit 'GBit'"),
        (b"devices: [{name: a, memory: -1}]\n", "at least 0"),
        (b"devices: [{name: a, model: rtx-9999}]\n", "rtx-9999"),
        (b"devices: [{name: a}, {name: b}]\nlinks: [{class: nearby, bandwidth: 1, latency: 0}]\n", "nearby"),
        (b"devices: !!python/object/apply:os.system ['touch owned']\n", "is not valid YAML"),
    ],
)
def test_bad_cluster_files(placewright: Call, tmp_path: Path, content: bytes, complaint: str) -> None:
    """Before the model is looked at, the cluster is; nothing in it is executed."""
    (tmp_path / "c.yaml").write_bytes(content)
    shown = placewright("plan", "absent.onnx", "--cluster", "c.yaml")
    assert (shown.code, shown.out) == (2, "")
    assert shown.line.startswith("cluster") and "c.yaml" in shown.line and re.search(complaint, shown.line)
    assert [p.name for p in tmp_path.iterdir()] == ["c.yaml"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--pin", "a=gone"], "pin a=gone: no device is named 'gone'; there are: fast, slow"),
        (["--pin", "nothing*=fast"], "pin nothing*=fast: no operator matches 'nothing*'"),
        (["--pin", "a"], "--pin 'a' is not PATTERN=DEVICE; write for example --pin 'encoder.*=gpu0'"),
        (["--pin", "=fast"], "--pin '=fast' is not PATTERN=DEVICE"),
        (["--forbid", "a="], "--forbid 'a=' is not PATTERN=DEVICE"),
        (["--solver", "gurobi"], "solver 'gurobi' is unknown; use auto or some of single-device, heft"),
        (["--objective", "speed"], "objective 'speed' is unknown; use one of makespan"),
        (["--contention", "much"], "contention 'much' is unknown; use one of none, link, port"),
        (["--costs", "guess"], "--costs 'guess' is unknown; use one of auto, profile, analytic, roofline"),
        (["--budget", "abc"], "--budget 'abc' is not a number with a unit; write for example '60s'"),
        (["--budget", "-1"], "--budget '-1' is not a number of at least 0"),
        (["--budget", "nan"], "--budget 'nan' is not a number with a unit"),
        (["--budget", "3 parsecs"], "--budget '3 parsecs' has the unknown unit 'parsecs'"),
        (["--seed", "-1"], "Invalid value for '--seed'"),
        (["--seed", "x"], "Invalid value for '--seed'"),
        (["--bogus", "1"], "No such option: --bogus"),
        (["--cluster", "c.yaml"], "has its own cluster; leave --cluster out"),
        (["-o", "absent/plan.json"], "file 'absent/plan.json' can't be written: there is no folder"),
        (["-o", "."], "file '.' can't be written: is a directory"),
        (["--report", "."], "file '.' can't be written: is a directory"),
        (["--trace", "absent/t.json"], "can't be written: there is no folder"),
        (["-o", "x", "--report", "./x"], "file 'x' would be written twice; give each output a path of its own"),
        (["--solver", "expert"], "--solver expert judges a placement that is given; add --expert SPLIT.json"),
    ],
)
def test_bad_options(placewright: Call, problem_file: Path, tmp_path: Path, options: list[str], complaint: str) -> None:
    """Each is refused before the search begins."""
    shown = placewright("plan", problem_file, *options)
    assert (shown.code, shown.out) == (2, "") and complaint in shown.line
    assert "best" not in shown.err
    assert [p.name for p in tmp_path.iterdir()] == ["problem.json"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["place"], "No such command 'place'."),
        (["plan"], "Missing argument 'MODEL'."),
        (["plan", "absent.json"], "problem file 'absent.json': can't be read: no such file or directory"),
        (["plan", "net.onnx"], "model 'net.onnx' needs a cluster to be placed on; give --cluster"),
        (
            ["plan", "net.txt", "--cluster", "cluster.yaml"],
            "profile 'net.txt': can't be read: no such file or directory",
        ),
        (["plan", "net.csv", "--cluster", "cluster.yaml"], "model 'net.csv' is of no known form"),
        (["plan", ".", "--cluster", "cluster.yaml"], "model '.' is of no known form"),
        (["plan", "net.onnx", "--cluster", "."], "cluster file '.': is not a regular file"),
        (["plan", "net.onnx", "--cluster", "gone.yaml"], "cluster file 'gone.yaml': can't be read"),
        (["compare", "absent.json", "--solvers", "heft,a,b"], "solvers 'a', 'b' are unknown"),
        (["compare", "absent.json", "--solvers", ""], "solver '' is unknown"),
        (["show", "absent.json"], "plan file 'absent.json': can't be read"),
        (["run", "absent.json"], "plan file 'absent.json': can't be read"),
        (["run", "absent.json", "--runs", "0"], "Invalid value for '--runs'"),
        (["run", "absent.json", "--timeout", "soon"], "--timeout 'soon' is not a number with a unit"),
        (["profile", "net.onnx"], "Missing option '--cluster'"),
        (["convert", "net.onnx", "-o", "out.json"], "model 'net.onnx' needs a cluster"),
        (["convert", "absent.json", "-o", "absent/out.json"], "there is no folder"),
        (["probe", "--devices", "0"], "Invalid value for '--devices'"),
        (["probe", "--devices", "100000"], "100000 devices were asked for"),
        (["probe", "-o", "absent/c.yaml"], "there is no folder"),
    ],
)
def test_bad_arguments(placewright: Call, cluster_file: Path, arguments: list[str], complaint: str) -> None:
    """Every command refuses what it can't use."""
    if arguments[0] == "probe":
        pytest.importorskip("onnxruntime")
    shown = placewright(*arguments)
    assert (shown.code, shown.out) == (2, "") and complaint in shown.line


@pytest.mark.parametrize("command", ["evaluate", "verify"])
def test_a_plan_for_another_problem(placewright: Call, plan_file: Path, tmp_path: Path, command: str) -> None:
    """The line says what differs between the two problems."""
    other = written(tmp_path, changed(set_time(0.003)), "other.json")
    shown = placewright(command, other, plan_file)
    assert shown.code == 2 and "is for the problem sha256:" in shown.line
    assert "processing_s[1][0] is 0.002 in the plan's, 0.003 in this one" in shown.line


def test_files_in_the_wrong_order(placewright: Call, problem_file: Path, plan_file: Path) -> None:
    """A problem where a plan is asked for is told apart by its schema."""
    for arguments in (
        ["evaluate", plan_file, problem_file],
        ["verify", plan_file, problem_file],
        ["show", problem_file],
    ):
        shown = placewright(*arguments)
        assert shown.code == 2 and "says that it is 'placewright/problem/1'" in shown.line
    shown = placewright("plan", plan_file)
    assert shown.code == 2 and "says that it is 'placewright/plan/1'" in shown.line


def test_a_plan_that_was_changed_by_hand(placewright: Call, plan_file: Path) -> None:
    """A plan whose own problem no longer has the hash that it states is refused."""
    content = json.loads(plan_file.read_text())
    content["problem_content"]["processing_s"][0][0] = 5.0
    shown = placewright("show", written(plan_file.parent, content, "changed.json"))
    assert shown.code == 2 and "it was changed, so make the plan again" in shown.line


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            lambda c: c["schedule"]["operators"]["finish_s"].__setitem__(0, 1e308),
            "has the time 1e\\+308 s; times are at",
        ),
        (lambda c: c.update(value_s=-1e200), r"has the time 1e\+200 s; times are at most 1e\+130 s"),
        (lambda c: c.update(lower_bound_s=None), "lower_bound_s is null; what a plan is no less than is finite"),
    ],
)
def test_times_that_no_report_can_draw_are_refused(
    placewright: Call, plan_file: Path, change: Change, complaint: str
) -> None:
    """In a plan changed by hand: one line, and no page is begun."""
    content = json.loads(plan_file.read_text())
    change(content)
    page = plan_file.parent / "page.html"
    shown = placewright("show", written(plan_file.parent, content, "changed.json"), "--report", page)
    assert shown.code == 2 and re.search(complaint, shown.line) and not page.exists()


@pytest.mark.parametrize("path", ["", "."])
def test_a_folder_is_no_plan_to_run(placewright: Call, path: str) -> None:
    """Nor is a path without a name."""
    shown = placewright("run", path)
    assert shown.code == 2 and "is not a regular file" in shown.line


def test_a_long_name_is_cut_in_the_complaint(placewright: Call, tmp_path: Path) -> None:
    """A megabyte of a name does not fill the terminal."""
    content = changed(lambda c: c["cluster"]["links"][0].update({"class": "x" * 10**6}))
    shown = placewright("plan", written(tmp_path, content))
    assert shown.code == 2 and re.search(r"link class 'x+\.\.\. \(\d{3},\d{3} more characters\)$", shown.line)


@pytest.mark.skipif(os.name != "posix", reason="pipes in the file system")
def test_a_pipe_is_not_waited_for(placewright: Call, tmp_path: Path) -> None:
    """A named pipe in place of a file would make reading hang."""
    os.mkfifo(tmp_path / "pipe.json")
    shown = placewright("plan", "pipe.json")
    assert shown.code == 2 and "is not a regular file" in shown.line


@pytest.mark.parametrize(
    ("model", "absent", "extra"),
    [("net.onnx", "onnx", "onnx"), ("net.pt2", "torch", "torch"), ("py:nets:make", "torch", "torch")],
)
def test_a_missing_extra_names_what_to_install(cluster_file: Path, model: str, absent: str, extra: str) -> None:
    """With the package hidden from imports, the line is the command that installs it."""
    hidden = f"import sys; sys.modules[{absent!r}] = None; from placewright.cli import main; main(sys.argv[1:])"
    arguments = [sys.executable, "-c", hidden, "plan", model, "--cluster", str(cluster_file)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].endswith(f"pip install 'placewright[{extra}]'")
    assert "Traceback" not in done.stderr
