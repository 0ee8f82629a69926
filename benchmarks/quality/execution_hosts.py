"""The hosts of a testbed with a worker each, as the execution benchmark asks them."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, TextIO

from benchmarks.testbed.description import Description
from benchmarks.testbed.hosts import INTERFACE, Testbed

__all__ = ["Hosts", "Loader"]

ROOT = Path(__file__).absolute().parents[2]
PORT = 29511
PATIENCE_S = 300.0


class Loader:
    """A context manager around the process that loads networks, and forks workers that have them."""

    def __init__(self) -> None:
        self.loaded: set[str] = set()

    def __enter__(self) -> Loader:
        environment = {**os.environ, "PYTHONPATH": ":".join([str(ROOT), *filter(None, sys.path)])}
        environment |= {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
        command = [sys.executable, "-m", "benchmarks.quality.execution_worker"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, cwd=ROOT, env=environment, text=True, **pipes)  # type: ignore[call-overload]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()

    def ask(self, **task: Any) -> Any:
        """Have a task done."""
        assert self._process.stdin is not None and self._process.stdout is not None
        return _asked([(self._process.stdin, self._process.stdout)], task)[0]


class Hosts:
    """A context manager: a testbed with workers that have met.

    Workers prepare at full speed; :meth:`confine` holds them to their hosts' shares.
    """

    def __init__(self, description: Description, loader: Loader) -> None:
        self.testbed = Testbed(description)
        self._loader = loader
        self._processes: list[int] = []
        self._lines: list[tuple[TextIO, TextIO]] = []
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Hosts:
        self.testbed.__enter__()
        try:
            hosts = self.testbed.description.hosts
            meeting = f"{self.testbed.address(hosts[0])}:{PORT}"
            with TemporaryDirectory(prefix="placewright-") as folder, socket.socket(socket.AF_UNIX) as server:
                at = str(Path(folder) / "workers")
                server.bind(at)
                server.listen()
                server.settimeout(PATIENCE_S)
                for rank, host in enumerate(hosts):
                    given = {"rank": rank, "world": len(hosts), "meeting": meeting, "interface": INTERFACE, "at": at}
                    namespace = str(self.testbed.namespace(host))
                    self._processes.append(self._loader.ask(do="fork", namespace=namespace, **given))
                    line, _ = server.accept()
                    self._sockets.append(line)
                    self._lines.append((line.makefile("w"), line.makefile("r")))
            self.ask(do="meet")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        for line in self._sockets:
            line.close()
        self.testbed.__exit__(kind, error, trace)

    def confine(self, confined: bool = True) -> None:
        """Hold the workers to their shares, or no longer."""
        for host, process in zip(self.testbed.description.hosts, self._processes, strict=True):
            group = self.testbed.groups[host.name]
            (group.join if confined else group.leave)(process)

    def ask(self, **task: Any) -> list[Any]:
        """Give all workers the same task, and return their answers."""
        return _asked(self._lines, task)


def _asked(lines: list[tuple[TextIO, TextIO]], task: dict[str, Any]) -> list[Any]:
    for tasks, _ in lines:
        tasks.write(json.dumps(task) + "\n")
        tasks.flush()
    answers = []
    for rank, (_, told) in enumerate(lines):
        ready, _, _ = select.select([told], [], [], PATIENCE_S)
        line = told.readline() if ready else ""
        if not line:
            raise SystemExit(f"worker {rank} {'ended' if ready else 'does not answer'} at {task['do']}")
        answer = json.loads(line)
        if "error" in answer:
            raise SystemExit(f"worker {rank}, {task['do']}: {answer['error']}")
        answers.append(answer["value"])
    return answers
