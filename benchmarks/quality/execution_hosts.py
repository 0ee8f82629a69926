"""The hosts of a testbed with a worker each, as the execution benchmark asks them."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.testbed.description import Description
from benchmarks.testbed.hosts import Testbed

__all__ = ["Hosts"]

ROOT = Path(__file__).absolute().parents[2]
PORT = 29511
PATIENCE_S = 300.0


class Hosts:
    """A context manager: a testbed with workers that have met.

    Workers load and prepare at full speed; :meth:`confine` holds them to their hosts' shares.
    """

    def __init__(self, description: Description) -> None:
        self.testbed = Testbed(description)
        self.workers: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Hosts:
        self.testbed.__enter__()
        try:
            hosts = self.testbed.description.hosts
            meeting = f"{self.testbed.address(hosts[0])}:{PORT}"
            for rank, host in enumerate(hosts):
                command = [
                    sys.executable,
                    "-m",
                    "benchmarks.quality.execution_worker",
                    *map(str, (rank, len(hosts), meeting)),
                ]
                pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "cwd": ROOT}
                environment = {"PYTHONPATH": ":".join(filter(None, [str(ROOT), *sys.path]))}
                self.workers.append(self.testbed.start(host, command, confined=False, environment=environment, **pipes))
            self.ask(do="meet")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait()
        self.testbed.__exit__(kind, error, trace)

    def confine(self, confined: bool = True) -> None:
        """Hold the workers to their shares, or no longer."""
        for host, worker in zip(self.testbed.description.hosts, self.workers, strict=True):
            group = self.testbed.groups[host.name]
            (group.join if confined else group.leave)(worker.pid)

    def ask(self, **task: Any) -> list[Any]:
        """Give all workers the same task, and return their answers."""
        for worker in self.workers:
            assert worker.stdin is not None
            worker.stdin.write(json.dumps(task) + "\n")
            worker.stdin.flush()
        answers = []
        for rank, worker in enumerate(self.workers):
            assert worker.stdout is not None
            ready, _, _ = select.select([worker.stdout], [], [], PATIENCE_S)
            line = worker.stdout.readline() if ready else ""
            if not line:
                raise SystemExit(f"worker {rank} {'ended' if ready else 'does not answer'} at {task['do']}")
            answer = json.loads(line)
            if "error" in answer:
                raise SystemExit(f"worker {rank}, {task['do']}: {answer['error']}")
            answers.append(answer["value"])
        return answers
