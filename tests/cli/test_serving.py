"""The server as a process, over workers of ONNX Runtime; and what generate says of what it can't use."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette")
pytest.importorskip("prometheus_client")
pytest.importorskip("uvicorn")
pytest.importorskip("onnxruntime")

from placewright.evaluate import judge
from placewright.execute.onnx.unsplit import run_unsplit
from placewright.execute.serve.messages import TensorSpec
from placewright.execute.serve.tensors import from_json, to_json
from placewright.io import write_plan
from placewright.result import Result
from tests.execute.small_onnx import branching, cluster, plan_of, problem_of, saved

from .commands import Call

ENTRY = [
    sys.executable,
    "-c",
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from placewright.cli import main; main()",
]
"""The program, also where the tests themselves were started with SIGINT ignored, as background jobs are."""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    model = branching()
    problem = problem_of(model, cluster(2))
    placed = plan_of(problem, [k % 2 for k in range(len(problem.graph))])
    saved(model, tmp_path)
    path = tmp_path / "plan.json"
    write_plan(path, problem, Result(placed), judge(problem, placed))
    return path


@contextmanager
def serving(plan: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start the server, and give it with its address."""
    arguments = ["serve", str(plan), "--model", str(plan.parent / "model.onnx"), "--port", "0"]
    with subprocess.Popen(ENTRY + arguments, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if line.startswith("listening on "):
                    yield process, line.removeprefix("listening on ").strip()
                    break
            else:
                raise AssertionError("it did not listen")
        finally:
            process.kill()


def post(address: str, body: bytes) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"{address}/v1/run", body, timeout=60) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def children(pid: int) -> list[int]:
    """Processes that a process has started."""
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="lists processes as Linux does")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_it_answers_and_ends_when_it_is_told_to(plan: Path, number: signal.Signals) -> None:
    """Outputs equal the unsplit model's; a signal ends it with exit code 0, and no worker is left."""
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    with serving(plan) as (process, address):
        body = json.dumps({"inputs": json.loads(to_json({"x": x}))["outputs"]}).encode()
        status, content = post(address, body)
        assert status == 200
        wanted = run_unsplit(plan.parent / "model.onnx", {"x": x})
        outputs = json.loads(content)["outputs"]
        assert {row["name"] for row in outputs} == wanted.keys()
        for row in outputs:
            spec = TensorSpec(row["name"], "float32", tuple(row["shape"]))
            made = from_json(json.dumps({"inputs": [row]}).encode(), [spec])[row["name"]]
            np.testing.assert_allclose(made, wanted[row["name"]], rtol=1e-5, atol=1e-6)
        with urllib.request.urlopen(f"{address}/health", timeout=60) as response:
            assert json.load(response)["devices"] == ["cpu0", "cpu1"]
        workers = children(process.pid)
        assert len(workers) == 2
        process.send_signal(number)
        assert process.wait(60) == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="lists processes as Linux does")
def test_a_worker_that_dies_while_nothing_is_asked_ends_the_server(plan: Path) -> None:
    """Exit code 1 and the cause in one line."""
    with serving(plan) as (process, _):
        os.kill(children(process.pid)[0], signal.SIGKILL)
        assert process.wait(60) == 1
        assert process.stderr is not None
        said = process.stderr.read()
        assert said.startswith("placewright: the worker of device 'cpu") and "killed by SIGKILL" in said


def test_what_can_not_be_served_or_generated_is_told(placewright: Call, plan: Path, tmp_path: Path) -> None:
    """Exit code 2: an address that is none, a network without layers, no prompt, text without a tokenizer."""
    for arguments, said in (
        (("serve", plan, "--model", tmp_path / "model.onnx", "--host", "no.such.host.invalid"), "can't listen on"),
        (
            ("serve", plan, "--model", tmp_path / "model.onnx", "--port", 0, "--weights", "x"),
            "an ONNX file has its own",
        ),
        (("generate", plan, "--prompt-ids", "1"), "no operator of the plan is named after a layer"),
        (("generate", plan), "there is no prompt"),
        (("generate", plan, "--prompt", "a"), "needs a tokenizer"),
        (("generate", plan, "--prompt-ids", "a"), "'a' is no token"),
    ):
        refused = placewright(*arguments)
        assert refused.code == 2 and said in refused.line and refused.out == ""
