"""Start a process for each device of a plan on this machine, wait for them, and leave none behind."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from placewright.errors import ExecutionError, InvalidInput, PlacewrightError
from placewright.execute.rank_main import BAD_INPUT, measurement_of
from placewright.measurement import Measurement
from placewright.plan import Plan

__all__ = ["launch"]

RAISED = "ChildFailedError"
"""What torchrun raises where a rank has failed."""

LOADING_S = 600.0
"""Longest that the ranks may take to capture the network and to load their weights."""

ENDING_S = 5.0
"""How long they may take to end when they are told to, before they are killed."""


def launch(
    plan_path: Path, plan: Plan, location: str, *, weights: str | None, runs: int, timeout_s: float
) -> Measurement:
    """Run a plan by ``torchrun`` on this machine; see :func:`placewright.execute.rank_main.run_rank`.

    Raises
    ------
    InvalidInput
        If a rank can't use what it is given, with what it said.
    ExecutionError
        If a rank fails, with what it said, or all together take longer than loading and the runs may take.
    """
    with tempfile.TemporaryDirectory(prefix="placewright-") as folder:
        output = Path(folder) / "measured.json"
        command = [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts", "0"),
            *("--nproc-per-node", str(len(plan.devices_used)), "-m", "placewright.execute", str(plan_path)),
            *("--model", location, "--runs", str(runs), "--timeout", f"{timeout_s:g}s", "-o", str(output)),
            *(("--weights", weights) if weights is not None else ()),
        ]
        environment = {
            **os.environ,
            "TORCH_CPP_LOG_LEVEL": "ERROR",
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        }
        with subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        ) as process:
            try:
                _, said = process.communicate(timeout=LOADING_S + (runs + 3) * timeout_s)
            except subprocess.TimeoutExpired:
                raise ExecutionError(
                    f"the processes of the plan did not end within {LOADING_S + (runs + 3) * timeout_s:g} s; "
                    "lower --runs or look whether one of them waits for memory"
                ) from None
            finally:
                _end(process)
        if process.returncode or not output.is_file():
            raise _failure(said)
        return measurement_of(output.read_text())


def _failure(said: str) -> PlacewrightError:
    """Make an error of the first line that a rank wrote for people, or of what it raised, or of the last one of all."""
    own = [line.removeprefix("placewright: ") for line in said.splitlines() if line.startswith("placewright: ")]
    # Of a rank that fails others say that they lost it: the one that tells more than that is the cause.
    causes = [line for line in own if "lost another rank" not in line]
    for line in (*causes, *own):
        refused = re.match(rf"rank \d+: {BAD_INPUT}", line)
        return InvalidInput(line[refused.end() :]) if refused else ExecutionError(line)
    lines = [line.strip() for line in said.splitlines() if line.strip(" =-")]
    raised = [
        line for line in lines if re.match(r"(\[rank\d+\]: )?[\w.]*(Error|Exception)\b", line) and RAISED not in line
    ]
    told = (*raised, *lines[-1:], "it said nothing")[0]
    return ExecutionError(f"a process of the plan failed: {told}")


def _end(process: subprocess.Popen[str]) -> None:
    """End the whole group, gently at first."""
    if process.poll() is not None:
        return
    for number, seconds in ((signal.SIGTERM, ENDING_S), (signal.SIGKILL, ENDING_S)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            return
