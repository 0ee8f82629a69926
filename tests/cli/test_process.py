"""The command line as a process: Ctrl-C, a reader that goes away, and nothing but JSON on standard output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import placewright as pw

ENTRY = [sys.executable, "-c", "from placewright.cli import main; main()"]
WITH_SIGINT = [
    sys.executable,
    "-c",
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from placewright.cli import main; main()",
]
"""The same where the tests themselves were started with SIGINT ignored, as background jobs are."""


def large(folder: Path) -> Path:
    """Write a problem that no solver finishes in a minute: 60 operators in a random graph on 4 unlike devices."""
    rng = np.random.default_rng(0)
    n, devices = 60, 4
    tensors = [
        pw.Tensor(f"t{u}", u, tuple(sorted({int(v) for v in rng.integers(u + 1, min(n, u + 20), 3)})), 10**6)
        for u in range(n - 1)
    ]
    graph = pw.OperatorGraph([pw.Operator(f"v{k}") for k in range(n)], tensors, name="large")
    links = [pw.Link(1e-4, 1e9, link_class="same-host")]
    cluster = pw.Cluster([pw.Device(f"d{i}") for i in range(devices)], links)
    path = folder / "large.json"
    pw.write_problem(path, pw.Problem(graph, cluster, rng.uniform(1e-3, 5e-3, (n, devices))))
    return path


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("solver", ["auto", "annealing", "makespan-cp-sat"])
def test_ctrl_c_ends_a_search_with_the_best_plan_so_far(tmp_path: Path, solver: str) -> None:
    """SIGINT while it searches: a legal plan, exit code 0, the file written whole, and marked as interrupted."""
    plan = tmp_path / "plan.json"
    arguments = ["plan", str(large(tmp_path)), "--budget", "10min", "-o", str(plan), "--json", "--solver", solver]
    with subprocess.Popen(ENTRY + arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "best" not in process.stderr.readline():  # after it the search is on
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    shown = json.loads(out)
    assert shown["interrupted"] is True and shown["status"] == "feasible" and shown["runtime_s"] < 600
    assert pw.verify(pw.read_plan(plan).problem, pw.read_plan(plan).plan) == ()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["large.json", "plan.json"]


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_before_a_search_exits_with_130(tmp_path: Path) -> None:
    """SIGINT while a model is being made: one line, no traceback, no file."""
    pytest.importorskip("torch")
    (tmp_path / "slow.py").write_text(
        "import sys, time\ndef make():\n    print('here', file=sys.stderr, flush=True)\n    time.sleep(60)\n"
    )
    (tmp_path / "c.yaml").write_text("devices: [{name: a, flops: {fp32: 1 TFLOP/s}, memory_bandwidth: 1 GB/s}]\n")
    arguments = ["plan", "py:slow:make", "--cluster", "c.yaml", "-o", "plan.json"]
    with subprocess.Popen(
        [*WITH_SIGINT, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:
        assert process.stderr is not None
        while process.stderr.readline().strip() != "here":
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "placewright: interrupted\n")
    assert not (tmp_path / "plan.json").exists()


@pytest.mark.parametrize("solver", ["auto", "makespan-cp-sat"])
def test_nothing_but_json_on_standard_output(problem_file: Path, solver: str) -> None:
    """No banner of a solver's library slips in, seen from outside the process."""
    arguments = ["plan", str(problem_file), "--json", "--budget", "2s", "--solver", solver]
    done = subprocess.run(ENTRY + arguments, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert json.loads(done.stdout)["status"] == "optimal" and done.stdout.count("\n") == 1
    assert "HiGHS" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="shell pipes")
def test_a_reader_that_has_seen_enough(plan_file: Path) -> None:
    """Output into a closed pipe ends quietly."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*ENTRY, "show", str(plan_file)], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60
        )
    finally:
        os.close(writer)
    assert done.returncode == 1 and done.stderr == ""


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("module", ["placewright.cli.application", "placewright.cli.options", "rich.console"])
def test_ctrl_c_while_modules_are_loaded_is_one_line(module: str) -> None:
    """SIGINT as one of the first modules is asked for, also inside a finder that lets no exception out: 130."""
    script = (
        "import signal, sys\n"
        "class Finder:\n"
        "    def find_spec(name, *_):\n"
        f"        if name == {module!r}:\n"
        "            try:\n"
        "                signal.raise_signal(signal.SIGINT)\n"
        "            except KeyboardInterrupt:\n"
        "                raise ImportError from None\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from placewright.cli import main\n"
        "sys.meta_path.insert(0, Finder)\n"
        "main(['--version'])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "placewright: interrupted\n")


@pytest.mark.skipif(os.name != "posix", reason="shell")
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&- <&-"])
def test_streams_that_are_closed_lead_nowhere(plan_file: Path, closed: str) -> None:
    """No traceback, exit code 0, and the page that is written holds nothing but the page."""
    page = plan_file.parent / "page.html"
    command = ["sh", "-c", f'"$@" {closed}', "sh", *ENTRY, "show", str(plan_file), "--report", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert page.read_text().startswith("<!") and page.read_text().rstrip().endswith("</html>")


def test_the_package_is_the_program() -> None:
    """``python -m placewright`` is the command line."""
    done = subprocess.run(
        [sys.executable, "-m", "placewright", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("placewright ")
