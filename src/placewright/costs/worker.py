"""The process that measures for one device: pinned to its cores, and killed when a measurement hangs.

Started by :mod:`placewright.costs.worker_process`. It reads a :class:`Setup` and then tasks from its standard input,
and answers each on its standard output, until the stream ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from typing import Protocol

import msgspec

from placewright.cluster import Device
from placewright.costs.tasks import Answer, OnnxPieces, OnnxUnit, OnnxValues, Setup, Task, TorchUnit, receive, send
from placewright.host import confine, keep_freed_memory

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1


class Bench(Protocol):
    """One back-end in this process."""

    def answer(self, task: Task) -> Answer:
        """Do a task."""
        ...


def main() -> None:
    """Entry of the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the profiler's, which ends its workers
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the answers
    setup = msgspec.msgpack.decode(receive(sys.stdin.buffer), type=Setup)
    confine(Device(setup.device, kind="cpu", cores=setup.cores, threads=setup.threads))
    keep_freed_memory()
    bench: Bench | None = None
    while message := receive(sys.stdin.buffer):
        try:
            task: Task = msgspec.msgpack.decode(message, type=OnnxUnit | OnnxPieces | OnnxValues | TorchUnit)
            bench = bench or _bench(task, setup)
            answer = bench.answer(task)
        except Exception as error:
            answer = Answer(error=(" ".join(str(error).split()) or type(error).__name__)[:500])
        send(answers, answer)


def _bench(task: Task, setup: Setup) -> Bench:
    if isinstance(task, TorchUnit) and setup.place:
        from placewright.costs.cuda_bench import CudaBench

        return CudaBench(setup.place)
    if isinstance(task, TorchUnit):
        from placewright.costs.torch_bench import TorchBench

        return TorchBench(setup.threads)
    from placewright.costs.onnx_bench import OnnxBench

    return OnnxBench(setup.threads)


if __name__ == "__main__":
    main()
