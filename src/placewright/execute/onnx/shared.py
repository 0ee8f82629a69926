"""Memory that the driver and its workers share: a slot for each tensor that travels, flags, and the clock's marks.

It is an anonymous file that each worker inherits: nothing has a name that could be left behind, whoever dies first.

Flags are 64-bit words, each alone on its cache line. A flag holds the number of the run up to which something is done:
the driver raises ``GO``, a worker that made a tensor raises the tensor's flag, and its own when its last call is
over. A slot is written by one worker and read by others within one run; no run starts before all workers are
done with the one before, so a slot is never overwritten under a reader.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import time
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

__all__ = ["GO", "SENT", "CallSpec", "Job", "Layout", "Shared", "ValueSpec", "wait_for"]

LINE_BYTES = 64
PAGE_BYTES = 4096
GO, SENT = 0, 1
"""Flags of the driver: the number of the run, and the clock in ns when it was raised."""


class ValueSpec(msgspec.Struct, frozen=True):
    """A value that a worker binds: in the shared slot at ``offset``, or private to the worker when that is -1."""

    name: str
    element_type: int
    shape: tuple[int, ...]
    size_bytes: int
    offset: int


class CallSpec(msgspec.Struct, frozen=True):
    """A session call: its model, the values that it binds (indices), and the flags that it awaits and raises."""

    model: bytes
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    waits: tuple[int, ...]
    sends: tuple[int, ...]


class Job(msgspec.Struct, frozen=True):
    """All that a worker needs to know; sent to it once, through its standard input."""

    device: str
    cores: tuple[int, ...]
    threads: int
    pace: float
    spin_s: float
    external_folder: str
    shared_fd: int
    shared_bytes: int
    values: tuple[ValueSpec, ...]
    calls: tuple[CallSpec, ...]
    done: int
    at: int
    marks: int
    """First word of the marks: three a call, in ns: when it began to wait, when it started, when it finished."""


@dataclass(frozen=True)
class Layout:
    """Where things stand in the shared memory.

    Attributes
    ----------
    done, at, marks : tuple of int
        A word for each worker: its flag, the call that it is at, its first mark.
    flag_of : dict of tensor name to word
    offset_of : dict of tensor name to byte
    size_bytes : int
    """

    done: tuple[int, ...]
    at: tuple[int, ...]
    marks: tuple[int, ...]
    flag_of: dict[str, int]
    offset_of: dict[str, int]
    size_bytes: int

    @classmethod
    def make(cls, calls_of: list[int], sent: list[str], slots: dict[str, int]) -> Layout:
        """Lay out flags and marks for workers with so many calls each, a flag for each sent tensor, and the slots."""
        step = LINE_BYTES // 8
        word = 2 * step  # GO and SENT share the driver's line
        done = tuple(word + 2 * k * step for k in range(len(calls_of)))
        at = tuple(word + (2 * k + 1) * step for k in range(len(calls_of)))
        word += 2 * len(calls_of) * step
        flag_of = {name: word + k * step for k, name in enumerate(sent)}
        word += len(sent) * step
        marks = []
        for count in calls_of:
            marks.append(word)
            word += -(-3 * count // step) * step
        offset, offset_of = _up(word * 8, PAGE_BYTES), {}
        for name, size in slots.items():
            offset_of[name] = offset
            offset += _up(max(size, 1), PAGE_BYTES if size >= PAGE_BYTES else 2 * LINE_BYTES)
        return cls(done, at, tuple(marks), flag_of, offset_of, _up(offset, PAGE_BYTES))


class Shared:
    """One mapping of the shared memory: ``words`` are the flags, ``bytes`` all of it."""

    def __init__(self, fd: int, size_bytes: int) -> None:
        self.fd = fd
        self._map = mmap.mmap(fd, size_bytes)
        self.bytes: npt.NDArray[np.uint8] = np.frombuffer(self._map, dtype=np.uint8)
        self.words: memoryview[int] = memoryview(self._map).cast("q")

    @classmethod
    def create(cls, size_bytes: int) -> Shared:
        """Make the memory, zeroed; pages are taken as they are touched."""
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create("placewright")
        else:
            with tempfile.TemporaryFile() as file:
                fd = os.dup(file.fileno())
        try:
            os.ftruncate(fd, size_bytes)
            return cls(fd, size_bytes)
        except BaseException:
            os.close(fd)
            raise

    def close(self) -> None:
        """Let go of the memory; it is freed when the last worker is gone too."""
        self.words.release()
        self.bytes = np.empty(0, dtype=np.uint8)
        os.close(self.fd)

    def address(self, offset: int) -> int:
        """Address of a byte in this process."""
        return int(self.bytes.ctypes.data) + offset


def wait_for(words: memoryview[int], at: int, number: int, spin_s: float, nap_s: float = 50e-6) -> None:
    """Return when the flag has reached the number.

    It spins, giving its core to whoever else wants it at each turn; after ``spin_s`` it sleeps in short naps, so that
    more workers than cores don't hold each other up.
    """
    if words[at] >= number:
        return
    give_way = os.sched_yield if hasattr(os, "sched_yield") else _nap
    until = time.monotonic() + spin_s
    while True:
        for _ in range(32):
            if words[at] >= number:
                return
            give_way()
        if time.monotonic() > until:
            break
    while words[at] < number:
        time.sleep(nap_s)


def _nap() -> None:
    time.sleep(0)


def _up(size: int, step: int) -> int:
    return -(-size // step) * step
