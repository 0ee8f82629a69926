"""A thread on each rank that tells the others what it does, and ends it with a cause when one of them is lost.

Everything goes through the store at which the ranks meet, by a connection of its own, so it works while the main thread
computes or waits. The first rank that knows why the run can't go on writes it there; all say it and end.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from placewright.errors import DeviceLost, ExecutionError, PlacewrightError
from placewright.execute.ranks.doing import DOING, failing_operator, operator_at_work
from placewright.execute.ranks.faults import SILENT_S, State, cause_of, error_of, line_of, out_of_memory, too_slow
from placewright.host import running_kernel

__all__ = ["Watch"]

BEAT_S = 0.5
"""How often a rank tells what it does, and looks whether another one has failed."""

GRACE_S = 1.0
"""How long a rank may take to end by itself after another one has failed."""

ENDING_S = SILENT_S + 2 * GRACE_S
"""How long a rank may take to find out why it ends."""

STORE_S = 10.0
"""A store that doesn't answer for so long is gone."""

GONE = "the store at which the ranks meet does not answer: the host of rank 0 is gone"

FAILED = "placewright/failed"
"""Key under which the first cause stands."""


class Watch:
    """Of one rank, from its joining to its leaving.

    Parameters
    ----------
    store : torch.distributed.Store
        A connection that nobody else uses.
    rank : int
    devices : sequence of str
        Name of each rank's device.
    limit_s : float
        Longest that one operator, or one wait, may take.
    """

    def __init__(self, store: Any, rank: int, devices: Sequence[str], limit_s: float) -> None:
        self._store, self._rank, self._devices, self._limit_s = store, rank, list(devices), limit_s
        self._beats, self._closed = 0, False
        self._explaining = self._explained = False  # by the main thread, which then ends the rank
        self._answered = time.monotonic()
        self._heard: dict[int, tuple[int, float]] = {}
        self._wake, self._waker = socket.socketpair()
        self._wake.setblocking(False)
        self._waker.setblocking(False)
        self._thread = threading.Thread(target=self._watch, name="placewright-watch", daemon=True)
        self._before: tuple[Any, int] | None = None

    def __enter__(self) -> Self:
        DOING.now("loads")
        self._beat()
        if threading.current_thread() is threading.main_thread():
            # The main thread may be waiting inside the communication library, where no handler runs: the byte that
            # a signal writes wakes this class's thread, whatever the main thread does.
            handler = signal.signal(signal.SIGTERM, lambda *_: None)
            self._before = handler, signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closed = True
        if self._before is not None:
            signal.set_wakeup_fd(self._before[1])
            if error is None:  # else this rank is about to say why it ends, and takes a moment for it
                signal.signal(signal.SIGTERM, self._before[0] or signal.SIG_DFL)
        self._waker.send(b"\0")
        self._thread.join(STORE_S)
        self._wake.close()
        self._waker.close()

    def explained(self, error: BaseException) -> PlacewrightError:
        """Find why the run can't go on, tell the others, and return what to raise in place of an error."""
        self._explaining = True
        # A store that stopped in the midst of an answer would keep whoever asks it for ever.
        last_resort = threading.Timer(STORE_S - ENDING_S, self._end, [ExecutionError(GONE)])
        last_resort.daemon = True
        last_resort.start()
        own, lost = self._own(error), ExecutionError(self._disconnected(error))
        DOING.now("ends")
        if own is None:
            own = self._blamed(late="imed out" in str(error)) or lost
        own = self._told(own)
        last_resort.cancel()
        self._explained = True
        return own

    def _own(self, error: BaseException) -> PlacewrightError | None:
        """Return an error that is this rank's own; ``None`` where it only lost another one."""
        name = self._devices[self._rank]
        operator = failing_operator(error) or failing_operator(error.__cause__ or error)
        where = f" in operator {operator!r}" if operator else ""
        if out_of_memory(error) or (error.__cause__ is not None and out_of_memory(error.__cause__)):
            said = _first_line(error.__cause__ or error)
            return DeviceLost(f"rank {self._rank} on {name!r} ran out of memory{where}: {said}", device=name)
        if isinstance(error, PlacewrightError):
            return error
        if operator:
            return ExecutionError(f"operator {operator!r} on {name!r} failed: {_first_line(error)}")
        return None

    def _disconnected(self, error: BaseException) -> str:
        source = DOING.source if DOING.phase == "waits" else -1
        other = f"{self._devices[source]!r} (rank {source})" if source >= 0 else "another rank"
        name = self._devices[self._rank]
        return f"{name!r} (rank {self._rank}) lost its connection to {other}, which still ran: {_first_line(error)}"

    def _told(self, error: PlacewrightError) -> PlacewrightError:
        """Write a cause unless there is one already, and return the one that stands."""
        if self._store_is_gone():
            return error
        with contextlib.suppress(RuntimeError):
            line = self._store.compare_set(FAILED, "", line_of(error)).decode(errors="replace")
            return error_of(line) if line != line_of(error) else error
        return error

    def _failed(self) -> PlacewrightError | None:
        return error_of(self._store.get(FAILED).decode(errors="replace")) if self._store.check([FAILED]) else None

    def _blamed(self, *, late: bool) -> PlacewrightError | None:
        """Look at the others until one has failed, is dead, or has been silent for too long; or whom all wait for."""
        until = time.monotonic() + SILENT_S + BEAT_S
        with contextlib.suppress(RuntimeError):
            while not self._store_is_gone() and time.monotonic() < until:
                found = self._failed() or self._dead()
                if found is not None:
                    return found
                time.sleep(0.1)
            if self._store_is_gone():
                return ExecutionError(GONE)
            cause = cause_of(self._states(), self._rank, late=late)
            if cause is not None:
                self._kill(cause.device)
            return cause
        return ExecutionError(GONE)

    def _store_is_gone(self) -> bool:
        """Whether it has not answered this class's thread for so long that whoever asks it may wait for ever."""
        return time.monotonic() - self._answered > STORE_S

    def _dead(self) -> PlacewrightError | None:
        states = self._states()
        return cause_of(states, self._rank, late=False) if any(s.alive is False for s in states) else None

    def _states(self) -> list[State]:
        """Read what every rank last told."""
        now, states, keys = time.monotonic(), [], [_key(r) for r in range(len(self._devices))]
        for r, (key, device) in enumerate(zip(keys, self._devices, strict=True)):
            if not self._store.check([key]):
                states.append(State(r, device))
                continue
            told = json.loads(self._store.get(key))
            beat, at = self._heard.get(r, (-1, now))
            self._heard[r] = (told["beat"], at if beat == told["beat"] else now)
            silent, alive = now - self._heard[r][1], _alive(told) if r != self._rank else True
            states.append(State(r, device, told["phase"], told["what"], told["source"], told["seconds"], silent, alive))
        return states

    def _kill(self, device: str) -> None:
        """End a rank of this host that no longer answers: what is stopped can't end itself."""
        with contextlib.suppress(RuntimeError, OSError, ValueError):
            told = json.loads(self._store.get(_key(self._devices.index(device))))
            if told["host"] == _host() and _parent(told["pid"]) == os.getppid():
                os.kill(told["pid"], signal.SIGKILL)

    def _beat(self) -> None:
        self._beats += 1
        operator = operator_at_work() if DOING.phase == "computes" else ""
        told = {
            **{"beat": self._beats, "phase": DOING.phase, "what": operator or DOING.what, "source": DOING.source},
            **{"seconds": time.monotonic() - DOING.since_s, "pid": os.getpid(), "host": _host()},
        }
        self._store.set(_key(self._rank), json.dumps(told))

    def _watch(self) -> None:
        while not self._closed:
            readable, _, _ = select.select([self._wake], [], [], BEAT_S)
            signals = self._wake.recv(64) if readable else b""
            if self._closed:
                return
            try:
                if signal.SIGTERM in signals:
                    self._terminated()
                self._beat()
                failed = self._failed()
                self._answered = time.monotonic()
            except RuntimeError:
                if self._store_is_gone():
                    self._end(ExecutionError(GONE))
                continue
            if failed is not None:
                time.sleep(GRACE_S)
                self._end(failed)
            seconds = time.monotonic() - DOING.since_s
            if DOING.phase == "computes" and seconds > self._limit_s:
                what = operator_at_work() or DOING.what
                self._end(
                    self._told(too_slow(State(self._rank, self._devices[self._rank], "computes", what, -1, seconds)))
                )

    def _terminated(self) -> None:
        """Say whom this rank ends with; whoever started the ranks ends all when one has died."""
        until = time.monotonic() + GRACE_S
        while not self._closed and time.monotonic() < until:
            found = self._failed() or self._dead()
            if found is not None:
                self._end(self._told(found))
            time.sleep(0.1)
        if not self._explaining:
            os._exit(128 + signal.SIGTERM)

    def _end(self, error: PlacewrightError) -> None:
        """End the process from this thread, unless the main thread, which may be about to, leaves in time."""
        until = time.monotonic() + ENDING_S
        while self._explaining and not self._closed and time.monotonic() < until:
            if self._explained:
                until = min(until, time.monotonic() + GRACE_S)
            time.sleep(0.05)
        if not self._closed:
            sys.stderr.write(f"placewright: rank {self._rank}: {line_of(error)}\n")
            sys.stderr.flush()
            os._exit(error.exit_code)


def _key(rank: int) -> str:
    return f"placewright/rank/{rank}"


def _alive(told: dict[str, Any]) -> bool | None:
    """Whether a rank's process runs, as far as that can be seen from this host."""
    if told["host"] != _host():
        return None
    try:
        os.kill(told["pid"], 0)
    except ProcessLookupError:
        return False
    except OSError:
        return None
    return _parent(told["pid"]) != 0


def _parent(pid: int) -> int | None:
    """Parent of a process; 0 where that has ended, and ``None`` where the system does not tell."""
    try:
        state, parent = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[:2]
    except (OSError, ValueError):
        return None
    return 0 if state in ("Z", "X") else int(parent)


def _host() -> str:
    """Where a process can be found by its number."""
    with contextlib.suppress(OSError):
        return f"{running_kernel()} {Path('/proc/self/ns/pid').readlink()}"
    return running_kernel()


def _first_line(error: BaseException) -> str:
    """Without the place in a library's source, and its advice."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return re.sub(r"^\[[^\]]*\] ", "", line).partition(". This is typically")[0]
