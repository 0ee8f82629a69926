"""Worker processes as the driver sees them: started, asked whether they live, and ended without a trace."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from typing import IO

import msgspec

from placewright.cluster import Device
from placewright.errors import DeviceLost, ExecutionError
from placewright.execute.onnx.shared import Job
from placewright.execute.onnx.worker import Answer, read_message, write_message
from placewright.execute.ranks.faults import out_of_memory

__all__ = ["WorkerProcess"]

_ENTRY = "from placewright.execute.onnx.worker import main; main()"


class WorkerProcess:
    """One worker process, from its start to its end.

    It is a fresh interpreter and not a fork, and it does not import the caller's main module, so a script needs no
    guard around its main part.
    """

    def __init__(self, device: Device, shared_fd: int) -> None:
        self.device = device
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in end()
        path = os.pathsep.join(p for p in sys.path if p)
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", _ENTRY],  # -P: nothing is imported from the current folder
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                pass_fds=[shared_fd],
                env={**os.environ, "PYTHONPATH": path},
            )
        except OSError as error:
            self._errors.close()
            raise ExecutionError(
                f"the worker of device {device.name!r} can't be started: {error.strerror}; free processes or memory"
            ) from error

    def send(self, job: Job) -> None:
        """Hand the worker its job."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died at once: told when its answer is awaited
            write_message(self.process.stdin, job)  # type: ignore[arg-type]

    def await_ready(self, until: float) -> None:
        """Return when the worker has built its sessions.

        Raises
        ------
        ExecutionError
            If it has not by ``until`` on the monotonic clock, or it failed.
        """
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            raise ExecutionError(
                f"the worker of device {self.device.name!r} did not load its part of the model in time; "
                "give more time, or place less on it"
            )
        message = read_message(self.process.stdout)  # type: ignore[arg-type]
        if not message:
            raise self.failure()
        answer = msgspec.msgpack.decode(message, type=Answer)
        if answer.error:
            raise ExecutionError(f"device {self.device.name!r}: {answer.error}")

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    def failure(self, at: str = "") -> ExecutionError:
        """Make the error of a dead worker; its device is lost, unless the worker could say what failed.

        Parameters
        ----------
        at : str
            The call that it was at.
        """
        text = self.death()
        if text.startswith(f"device {self.device.name!r}: ") and not out_of_memory(ExecutionError(text)):
            return ExecutionError(text)
        return DeviceLost(text + (f"; it was at {at}" if at else ""), device=self.device.name)

    def death(self) -> str:
        """Say how a dead worker died, in one line."""
        code = self.process.wait()
        said = ""
        if self.process.stdout is not None and not self.process.stdout.closed:
            message = read_message(self.process.stdout)  # type: ignore[arg-type]
            said = msgspec.msgpack.decode(message, type=Answer).error if message else ""
        if said:
            return f"device {self.device.name!r}: {said}"
        where = f"the worker of device {self.device.name!r}"
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            hint = "; was memory short?" if -code == signal.SIGKILL else ""
            return f"{where} was killed by {name}{hint}{self._last_words()}"
        return f"{where} ended with exit code {code}{self._last_words()}"

    def _last_words(self) -> str:
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - 2_000))
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f": {lines[-1].strip()[:300]}" if lines else ""

    def end(self) -> None:
        """Kill the process if it lives, wait for its end, and let go of its pipes."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._errors.close()
