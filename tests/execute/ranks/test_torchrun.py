"""What starts the ranks of a run does not outlive the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

STARTER = (
    "import subprocess, sys;"
    "subprocess.Popen([sys.executable, '-m', 'placewright.execute.ranks.torchrun']);"
    "sys.stdin.read()"
)


LAUNCHER = (
    "import sys; from pathlib import Path; from placewright.execute.ranks.launch import launched;"
    "launched(Path('plan.json'), [], runs=1, timeout_s=60.0, devices=['a', 'b'])"
)


def waiting(folder: Path, tell: str) -> dict[str, str]:
    """Put a package in place of torch that tells its process by a statement and waits; gives the environment for it."""
    package = folder / "torch" / "distributed"
    package.mkdir(parents=True)
    for each in (package.parent, package):
        (each / "__init__.py").touch()
    (package / "run.py").write_text(f"import os, pathlib, time\ndef main():\n    {tell}\n    time.sleep(60)\n")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])}


def is_gone(process: int) -> bool:
    """Whether a process ends within ten seconds."""
    for _ in range(1000):
        try:
            state = (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


def test_a_run_that_is_killed_leaves_no_torchrun(tmp_path: Path) -> None:
    """A package in place of torch tells its process and waits for ever; it is gone once its starter is killed."""
    environment = waiting(tmp_path, "print(os.getpid(), flush=True)")
    with subprocess.Popen(
        [sys.executable, "-c", STARTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as starter:
        assert starter.stdout is not None
        started = int(starter.stdout.readline())
        starter.kill()
    assert is_gone(started)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_told_to_end_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    """SIGTERM and SIGHUP while ranks run: torchrun has ended, its folder is gone, and the exit code says by what."""
    temporary, told = tmp_path / "temporary", tmp_path / "told"
    temporary.mkdir()
    os.mkfifo(told)
    environment = waiting(tmp_path, f"pathlib.Path({str(told)!r}).write_text(str(os.getpid()))")
    with subprocess.Popen(
        [sys.executable, "-c", LAUNCHER], env={**environment, "TMPDIR": str(temporary)}, stderr=subprocess.PIPE
    ) as launcher:
        started = int(told.read_text())
        assert len(list(temporary.iterdir())) == 1
        launcher.send_signal(number)
        _, said = launcher.communicate(timeout=60)
    assert (launcher.returncode, said) == (128 + number, b"")
    assert list(temporary.iterdir()) == []
    assert is_gone(started)
