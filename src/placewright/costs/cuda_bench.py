"""Measuring torch operators on a GPU, in the worker process."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable
from typing import Protocol

import torch

from placewright.costs.tasks import Answer, Task, TorchUnit
from placewright.costs.timing import measure
from placewright.costs.torch_bench import WHOLE_S, compiled, made_up

__all__ = ["CudaBench", "Gpu"]

WARM_UP = 20
"""Calls before the first that counts: kernels are loaded and chosen, and clocks rise."""

AHEAD_CYCLES = 2_000_000
"""That the GPU is kept waiting, about a millisecond: when it comes to the call, all of it has been submitted."""

QUERY_TIMEOUT_S = 5.0


class Gpu(Protocol):
    """What a measurement asks of a GPU."""

    def seconds(self, call: Callable[[], object]) -> float:
        """Time of what a call has the GPU do."""
        ...

    def wait(self) -> None:
        """Return when everything that was submitted is done."""

    def cache_bytes(self) -> int:
        """Bytes of the last-level cache."""
        ...

    def clock_hz(self) -> float:
        """Clock of the multiprocessors now; 0 where it is not known."""
        ...


class CudaBench:
    """Torch on one GPU.

    The GPU's time is that between two events around a call which was submitted before the GPU came to it. An operator
    takes that, or what submitting it takes, whichever is longer: the GPU waits for who submits too slowly. Before each
    call twice the last level's bytes are written, and then the inputs read, so that weights come from memory.

    Parameters
    ----------
    place : str
        ``cuda:0``.
    gpu : Gpu, optional
        Stands in for CUDA.
    """

    def __init__(self, place: str, gpu: Gpu | None = None) -> None:
        self.place = place
        self._gpu = gpu or _Cuda(place)
        self._random = torch.Generator().manual_seed(0)
        self._filler = torch.zeros(2 * self._gpu.cache_bytes() // 4, device=place)
        self._one = torch.zeros(1, device=place)
        self._now = 0.0
        self.call_s = self._submitted(lambda: self._one.neg())

    def answer(self, task: Task) -> Answer:
        """Do a task."""
        if not isinstance(task, TorchUnit):
            raise TypeError(f"{type(task).__name__} is no task for torch")
        with torch.inference_mode():
            function = compiled(task, self.place)
            tensors = [made_up(i, self._random).to(self.place) for i in task.inputs]
            warm = [t for t, i in zip(tensors, task.inputs, strict=True) if i.warm and t.dtype != torch.bool]

            def call() -> object:
                return function(*tensors)

            for _ in range(WARM_UP):
                call()
            self._gpu.wait()
            if task.whole:
                sample = measure(lambda: self._waited(call), clock=time.perf_counter, enough_s=WHOLE_S)
            else:
                sample = measure(lambda: self._alone(call), clock=lambda: self._now, before=lambda: self._before(warm))
        return Answer(sample.seconds, self.call_s, sample.runs, clock_hz=self._gpu.clock_hz())

    def _waited(self, call: Callable[[], object]) -> None:
        call()
        self._gpu.wait()

    def _alone(self, call: Callable[[], object]) -> None:
        """Advance the clock by what a call takes."""
        began = submitted = 0.0

        def timed() -> None:
            nonlocal began, submitted
            began = time.perf_counter()
            call()
            submitted = time.perf_counter()

        taken = self._gpu.seconds(timed)
        self._now += max(taken, submitted - began)

    def _before(self, warm: list[torch.Tensor]) -> None:
        self._filler.fill_(0.0)
        for tensor in warm:
            tensor.sum()
        self._gpu.wait()

    def _submitted(self, call: Callable[[], object]) -> float:
        for _ in range(WARM_UP):
            call()
        return measure(call, clock=time.perf_counter, before=self._gpu.wait).seconds


class _Cuda:
    """CUDA, by torch."""

    def __init__(self, place: str) -> None:
        self._place = torch.device(place)
        torch.cuda.set_device(self._place)

    def seconds(self, call: Callable[[], object]) -> float:
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda._sleep(AHEAD_CYCLES)  # type: ignore[no-untyped-call]
        began.record()
        call()
        ended.record()
        ended.synchronize()
        return float(began.elapsed_time(ended)) * 1e-3

    def wait(self) -> None:
        torch.cuda.synchronize(self._place)

    def cache_bytes(self) -> int:
        return int(getattr(torch.cuda.get_device_properties(self._place), "L2_cache_size", 0)) or 64 << 20

    def clock_hz(self) -> float:
        uuid = getattr(torch.cuda.get_device_properties(self._place), "uuid", None)
        query = ["nvidia-smi", f"--id=GPU-{uuid}", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits"]
        with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
            found = subprocess.run(query, capture_output=True, text=True, timeout=QUERY_TIMEOUT_S, check=True)
            return float(found.stdout.split()[0]) * 1e6
        return 0.0
