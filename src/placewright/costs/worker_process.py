"""A measuring process as the profiler sees it: asked, waited for, killed in time, and replaced when it died."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import tempfile
import time
from types import TracebackType
from typing import IO

import msgspec

from placewright.costs.tasks import Answer, Setup, Task, receive, send
from placewright.ended_by_signal import cleared_when_ended
from placewright.errors import ExecutionError

__all__ = ["MeasuringProcess"]

_ENTRY = "from placewright.costs.worker import main; main()"


class MeasuringProcess:
    """A context manager around one process at a time; a task that kills it or hangs costs only that task.

    It is a fresh interpreter, not a fork, and does not import the caller's main module: a script needs no guard. Its
    temporary files are in a folder of the context, which goes with it also where the process is killed.

    Parameters
    ----------
    setup : Setup
    entry : str
        Python statements that the process runs.
    """

    def __init__(self, setup: Setup, *, entry: str = _ENTRY) -> None:
        self.setup = setup
        self._entry = entry
        self._process: subprocess.Popen[bytes] | None = None
        self._held = contextlib.ExitStack()
        self._folder = ""

    def __enter__(self) -> MeasuringProcess:
        self._held.enter_context(cleared_when_ended())
        self._folder = self._held.enter_context(tempfile.TemporaryDirectory(prefix="placewright-"))
        self._held.callback(self.end)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def ask(self, task: Task, *, timeout_s: float) -> Answer:
        """Have a task done; an answer with ``error`` set says why it was not.

        Raises
        ------
        ExecutionError
            If no process can be started.
        """
        process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        try:
            send(process.stdin, task)  # type: ignore[arg-type]
        except OSError:
            return Answer(error=self._death())
        until = time.monotonic() + timeout_s
        ready: list[IO[bytes]] = []
        while not ready and (left := until - time.monotonic()) > 0:
            ready, _, _ = select.select([process.stdout], [], [], left)
        if not ready:
            self.end()
            return Answer(error=f"it took longer than {timeout_s:g} s and was stopped")
        message = receive(process.stdout)  # type: ignore[arg-type]
        return msgspec.msgpack.decode(message, type=Answer) if message else Answer(error=self._death())

    def end(self) -> None:
        """Kill the process if there is one, and wait for its end."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _start(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(p for p in sys.path if p)
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", self._entry],  # -P: nothing is imported from the current folder
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path, "TMPDIR": self._folder},
            )
        except OSError as error:
            raise ExecutionError(
                f"the process that measures device {self.setup.device!r} can't be started: {error.strerror}; "
                "free processes or memory"
            ) from None
        self._process = process
        with contextlib.suppress(OSError):  # it died at once: told when the first task is sent
            send(process.stdin, self.setup)  # type: ignore[arg-type]
        return process

    def _death(self) -> str:
        process = self._process
        code = process.wait() if process is not None else 0
        self.end()
        if code < 0:
            return f"the measuring process was killed by signal {-code}" + (
                " (was memory short?)" if code == -9 else ""
            )
        return f"the measuring process ended with exit code {code}"
