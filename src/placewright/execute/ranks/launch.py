"""Start a process for each device of a plan on this machine, wait for them, and leave none behind."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from placewright.ended_by_signal import cleared_when_ended
from placewright.errors import DeviceLost, ExecutionError, PlacewrightError
from placewright.execute.ranks.faults import error_of
from placewright.execute.ranks.main import measurement_of
from placewright.measurement import Measurement
from placewright.plan import Plan

__all__ = ["launch", "launched"]

RAISED = "ChildFailedError"
"""What torchrun raises where a rank has failed."""

LOADING_S = 600.0
"""Longest that the ranks may take to capture the network and to load their weights."""

LONGEST_S = 2e6
"""Longest that all runs together may take: poll(2) counts milliseconds in 31 bits."""

ENDING_S = 5.0
"""How long they may take to end when they are told to, before they are killed."""


def launch(
    plan_path: Path,
    plan: Plan,
    location: str,
    *,
    weights: str | None,
    runs: int,
    timeout_s: float,
    devices: Sequence[str],
) -> Measurement:
    """Run a plan by ``torchrun`` on this machine; see :func:`placewright.execute.ranks.main.run_rank`.

    Parameters
    ----------
    plan_path, plan, location, weights, runs, timeout_s
    devices : sequence of str
        Name of each rank's device.

    Raises
    ------
    InvalidInput
        If a rank can't use what it is given, with what it said.
    ExecutionError
        If a rank fails, with what it said, or all together take longer than loading and the runs may take.
    """
    arguments = ["--model", location, "--runs", str(runs), *(("--weights", weights) if weights is not None else ())]
    return measurement_of(launched(plan_path, arguments, runs=runs + 3, timeout_s=timeout_s, devices=devices))


def launched(plan_path: Path, arguments: Sequence[str], *, runs: int, timeout_s: float, devices: Sequence[str]) -> str:
    """Run ``python -m placewright.execute`` by ``torchrun``, a process for each device; gives what rank 0 wrote.

    Parameters
    ----------
    plan_path : Path
    arguments : sequence of str
        Of the command, besides the plan, the limit of time and the file to write.
    runs : int
        How often the limit of one run may pass, besides loading.
    timeout_s : float
        Limit of one run.
    devices : sequence of str
        Name of each rank's device.

    Raises
    ------
    InvalidInput
        If a rank can't use what it is given, with what it said.
    ExecutionError
        If a rank fails, with what it said, or all together take longer than loading and the runs may take.
    """
    limit_s = _limit_s(runs, timeout_s)
    with cleared_when_ended(), tempfile.TemporaryDirectory(prefix="placewright-") as folder:
        output = Path(folder) / "measured.json"
        command = [
            *(sys.executable, "-m", "placewright.execute.ranks.torchrun", "--standalone", "--max-restarts", "0"),
            *("--log-dir", folder, "--nproc-per-node", str(len(devices)), "-m", "placewright.execute", str(plan_path)),
            *(*arguments, "--timeout", f"{timeout_s:g}s", "-o", str(output)),
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
                _, said = process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                raise ExecutionError(
                    f"the processes of the plan did not end within {limit_s:g} s; "
                    "lower --runs or look whether one of them waits for memory"
                ) from None
            finally:
                _end(process)
        if process.returncode or not output.is_file():
            raise _failure(said, devices)
        return output.read_text()


def _limit_s(runs: int, timeout_s: float) -> float:
    return min(LOADING_S + runs * timeout_s, LONGEST_S)


def _failure(said: str, devices: Sequence[str]) -> PlacewrightError:
    """Make an error of the cause that a rank told, of what one raised, of how one died, or of the last line of all."""
    told = re.search(r"^placewright: rank \d+: (.*)$", said, re.MULTILINE)
    deaths = re.findall(r"rank +: (\d+) [^\n]*\n *exitcode *: -(\d+)", said)
    killed = [(int(rank), int(number)) for rank, number in deaths if int(number) != signal.SIGTERM]
    if told is not None:
        error = error_of(told[1])
        if killed and isinstance(error, DeviceLost) and " died" in str(error):
            return DeviceLost(f"{error}; {_by(killed[0][1])}", device=error.device)
        return error
    lines = [line.strip() for line in said.splitlines() if line.strip(" =-")]
    raised = [
        line for line in lines if re.match(r"(\[rank\d+\]: )?[\w.]*(Error|Exception)\b", line) and RAISED not in line
    ]
    if killed and not raised and killed[0][0] < len(devices):
        rank, number = killed[0]
        return DeviceLost(f"rank {rank} on {devices[rank]!r} died; {_by(number)}", device=devices[rank])
    return ExecutionError(f"a process of the plan failed: {(*raised, *lines[-1:], 'it said nothing')[0]}")


def _by(number: int) -> str:
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    return f"it was killed by {name}{': was memory short?' if number == signal.SIGKILL else ''}"


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
