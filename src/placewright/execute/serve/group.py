"""The ranks of a plan as processes that stay up: started, told what to do, watched, and ended without a trace."""

from __future__ import annotations

import contextlib
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Self

import msgspec

from placewright.errors import ExecutionError, InvalidInput
from placewright.execute.onnx.worker import read_message, write_message
from placewright.execute.serve.messages import Command, Ready, Reply, ResidentJob
from placewright.plan import Plan
from placewright.problem import Problem

__all__ = ["ResidentGroup"]

LOADING_S = 600.0
"""Longest that the ranks may take to capture the network and to load their weights."""

ENDING_S = 2.0
"""How long they may take to end when their input has ended, before they are killed."""

HEARD_S = 0.2
"""How long the end of a process may take to be heard of."""

_ENTRY = "placewright.execute.serve.rank"


class ResidentGroup:
    """A process for each device of a plan, all of which do what they are told, in the same order.

    Commands may be given while earlier ones are under way: a rank that is done with its part of one begins the next, so
    samples follow each other through the devices as in a pipeline.

    Parameters
    ----------
    problem, plan
    job : ResidentJob

    Raises
    ------
    InvalidInput
        If a rank can't use what it is given.
    ExecutionError
        If a rank fails or dies.

    Attributes
    ----------
    ready : list of Ready
        What each rank said when it was.
    failure : str
        Why the group has ended; empty while it runs.
    """

    def __init__(self, problem: Problem, plan: Plan, job: ResidentJob) -> None:
        self._job = job
        self.names = [problem.cluster.devices[i].name for i in plan.devices_used]
        self.ready: list[Ready] = []
        self.failure = ""
        self._processes: list[_Process] = []
        self._waiting: dict[int, _Waiting] = {}
        self._lock = threading.Lock()
        self._number = 0
        self._last_reply = time.monotonic()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def tell(self, **content: object) -> Future[list[Reply]]:
        """Give every rank the next command; the future has what each of them replied.

        Parameters
        ----------
        **content
            Fields of :class:`Command` but its number.
        """
        future: Future[list[Reply]] = Future()
        with self._lock:
            if self.failure or not self._processes:
                future.set_exception(ExecutionError(self.failure or "the ranks are not running"))
                return future
            self._number += 1
            if not self._waiting:
                self._last_reply = time.monotonic()  # whoever is asked nothing is not silent
            command = Command(self._number, **content)  # type: ignore[arg-type]
            self._waiting[self._number] = _Waiting(future, [None] * len(self._processes))
            for process in self._processes:
                process.commands.put(command)
        return future

    def stalled_s(self) -> float:
        """Seconds since a rank last replied to the oldest command that is under way; 0 where none is."""
        with self._lock:
            return time.monotonic() - self._last_reply if self._waiting else 0.0

    def fail(self, reason: str) -> None:
        """End the group for a reason that all who wait are told."""
        with self._lock:
            if self.failure:
                return
            self.failure = reason
            waiting, self._waiting = list(self._waiting.values()), {}
        for process in self._processes:
            process.kill()
        for one in waiting:
            if not one.future.cancelled():
                one.future.set_exception(ExecutionError(reason))

    def close(self) -> None:
        """End all processes and wait for their ends. Closing twice does no harm."""
        with self._lock:
            if not self.failure:
                self.failure = "the ranks have been ended"
            waiting, self._waiting = list(self._waiting.values()), {}
        for one in waiting:
            if not one.future.cancelled():
                one.future.set_exception(ExecutionError(self.failure))
        for process in self._processes:
            process.commands.put(None)
        until = time.monotonic() + ENDING_S
        while self._processes:
            self._processes.pop().end(until)

    def _start(self) -> None:
        with socket.socket() as free:  # a port that is free now; rank 0 takes it within seconds
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        for rank in range(len(self.names)):
            self._processes.append(_Process(rank, len(self.names), port, self.names[rank]))
        for process in self._processes:
            process.send(self._job)
        until = time.monotonic() + LOADING_S
        self.ready = self._all_ready(until)
        for k, process in enumerate(self._processes):
            process.attend(lambda message, k=k: self._replied(k, message))  # type: ignore[misc]

    def _all_ready(self, until: float) -> list[Ready]:
        """Wait for all, and for none longer once one has failed."""
        found: dict[int, Ready] = {}
        while len(found) < len(self._processes):
            open_ = {p.answers: k for k, p in enumerate(self._processes) if k not in found}
            readable, _, _ = select.select(list(open_), [], [], max(0.0, until - time.monotonic()))
            if not readable:
                late = self.names[min(set(range(len(self.names))) - found.keys())]
                raise ExecutionError(f"the rank of device {late!r} did not load its part within {LOADING_S:g} s")
            for k in sorted(open_[pipe] for pipe in readable):
                message = read_message(self._processes[k].answers)  # type: ignore[arg-type]
                if not message:
                    raise ExecutionError(self._processes[k].death())
                ready = msgspec.msgpack.decode(message, type=Ready)
                if ready.error:
                    raise (InvalidInput if ready.refused else ExecutionError)(ready.error)
                found[k] = ready
        return [found[k] for k in range(len(self._processes))]

    def _replied(self, k: int, message: bytes) -> None:
        """Take what a rank said, in the thread that listens to it; nothing is said where it has ended."""
        if not message:
            if not self.failure:
                self.fail(self._processes[k].death())
            return
        reply = msgspec.msgpack.decode(message, type=Reply)
        if reply.error:
            # What a rank says of one that was killed comes, at times, before that one's end is heard.
            killed = next((process for process in self._processes if process.killed), None)
            self.fail(killed.death() if killed is not None else f"device {self.names[k]!r}: {reply.error}")
            return
        with self._lock:
            one = self._waiting.get(reply.number)
            if one is None:
                return
            if reply.number == next(iter(self._waiting)):  # the first ranks go on with later ones whatever the last do
                self._last_reply = time.monotonic()
            one.replies[k] = reply
            replies = [r for r in one.replies if r is not None]
            if len(replies) < len(one.replies):
                return
            del self._waiting[reply.number]
        if one.future.set_running_or_notify_cancel():
            one.future.set_result(replies)


@dataclass
class _Waiting:
    """Who waits for the replies to a command, and those that have come."""

    future: Future[list[Reply]]
    replies: list[Reply | None]


@dataclass
class _Process:
    """One rank as its parent sees it."""

    rank: int
    world: int
    port: int
    name: str
    commands: queue.SimpleQueue[Command | None] = field(default_factory=queue.SimpleQueue)

    def __post_init__(self) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in end()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.port),
            "TORCH_CPP_LOG_LEVEL": "ERROR",
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", _ENTRY],  # -P: nothing is imported from the current folder
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            start_new_session=True,
            cwd=Path.cwd(),
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input, self.answers = self._process.stdin, self._process.stdout
        self._threads: list[threading.Thread] = []

    def send(self, job: ResidentJob) -> None:
        with contextlib.suppress(BrokenPipeError):  # it died at once: told when its answer is awaited
            write_message(self._input, job)  # type: ignore[arg-type]

    def attend(self, heard: Callable[[bytes], None]) -> None:
        """Pass on commands and replies in threads of their own, since either may have to wait."""

        def write() -> None:
            with contextlib.suppress(OSError, ValueError):
                while (command := self.commands.get()) is not None:
                    write_message(self._input, command)  # type: ignore[arg-type]
            with contextlib.suppress(OSError):
                self._input.close()

        def read() -> None:
            with contextlib.suppress(OSError, ValueError):
                while message := read_message(self.answers):  # type: ignore[arg-type]
                    heard(message)
            heard(b"")

        self._threads = [threading.Thread(target=work, daemon=True) for work in (write, read)]
        for thread in self._threads:
            thread.start()

    @property
    def killed(self) -> bool:
        """Whether a signal has ended it; another thread may be about to learn it, too."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(HEARD_S) < 0
        return False

    def kill(self) -> None:
        self._process.kill()

    def death(self) -> str:
        """Say how a dead rank died, in one line."""
        try:
            code = self._process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            return f"the rank of device {self.name!r} stopped answering"
        where = f"the rank of device {self.name!r}"
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - 2_000))
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        said = f": {lines[-1].strip()[:300]}" if lines else ""
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            hint = "; was memory short?" if -code == signal.SIGKILL else ""
            return f"{where} was killed by {name}{hint}{said}"
        return f"{where} ended with exit code {code}{said}"

    def end(self, until: float) -> None:
        """Wait for the end of the process, kill it if it is late, and let go of its pipes."""
        if not self._threads:
            with contextlib.suppress(OSError):
                self._input.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, until - time.monotonic()) if self._threads else 0.0)
        self._process.kill()
        self._process.wait()
        for thread in self._threads:
            thread.join(ENDING_S)
        self.answers.close()
        with contextlib.suppress(OSError):
            self._input.close()
        self._errors.close()
