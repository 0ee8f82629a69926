"""What starts the ranks of a run does not outlive the run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

STARTER = (
    "import subprocess, sys;"
    "subprocess.Popen([sys.executable, '-m', 'placewright.execute.ranks.torchrun']);"
    "sys.stdin.read()"
)


def test_a_run_that_is_killed_leaves_no_torchrun(tmp_path: Path) -> None:
    """A package in place of torch tells its process and waits for ever; it is gone once its starter is killed."""
    package = tmp_path / "torch" / "distributed"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    (package / "run.py").write_text(
        "import os, time\ndef main():\n    print(os.getpid(), flush=True)\n    time.sleep(60)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    with subprocess.Popen(
        [sys.executable, "-c", STARTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as starter:
        assert starter.stdout is not None
        started = int(starter.stdout.readline())
        starter.kill()
    for _ in range(1000):
        try:
            ended = (Path("/proc") / str(started) / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            ended = True
        if ended:
            return
        time.sleep(0.01)
    raise AssertionError("it goes on")
