"""Start the ranks of a distributed run as torchrun does, without a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def ranks(count: int, *arguments: object) -> list[str]:
    """Start so many ranks and wait for them; gives what each wrote."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", *map(str, arguments)],
            env={**os.environ, **meeting, "RANK": str(k), "WORLD_SIZE": str(count), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for k in range(count)
    ]
    told = []
    try:
        for process in started:
            out, err = process.communicate(timeout=240)
            assert process.returncode == 0, err[-2000:]
            told.append(out)
    finally:
        for process in started:
            process.kill()
    return told
