"""GPUs that torch finds, measured: products, copies, launches, and transfers from and to RAM and each other."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from placewright.cluster import Device, Link
from placewright.execute.probe.link_fit import SIZES_BYTES, LinkFit, fit_link

__all__ = ["Gpus", "probe_gpus", "torch_device_figures"]

SIDE = {"cpu": 768, "cuda": 4096}
"""Of the matrices that are multiplied, by the kind of the torch device."""
COPY_BYTES = {"cpu": 2**26, "cuda": 2**29}
LAUNCHES = 64
RUNS, WARMUP = 20, 3


class Gpus(NamedTuple):
    """What was found: devices, their links, and what those were fitted to."""

    devices: tuple[Device, ...] = ()
    links: tuple[Link, ...] = ()
    fits: tuple[tuple[str, LinkFit], ...] = ()


def probe_gpus(host_device: str, *, on_progress: Callable[[str], None] = lambda line: None) -> Gpus:
    """Describe the GPUs of this machine; none where torch or a GPU is absent.

    Parameters
    ----------
    host_device : str
        Name of the device that stands for the RAM which transfers come from and go to.
    on_progress : callable
        Called with a line about each step.

    Notes
    -----
    RAM is pageable, as a tensor made by torch is. A transfer is timed by the wall clock, from the call until the GPU
    says that it is done.
    """
    try:
        import torch
    except ImportError:
        return Gpus()
    if not torch.cuda.is_available():
        return Gpus()
    devices, links, fits = [], [], []
    places = [f"cuda:{k}" for k in range(torch.cuda.device_count())]
    for k, place in enumerate(places):
        on_progress(f"measuring gpu{k}")
        devices.append(Device(f"gpu{k}", kind="gpu", **torch_device_figures(place)))
    ends = [(host_device, "cpu"), *((d.name, place) for d, place in zip(devices, places, strict=True))]
    for a, source in ends:
        for b, target in ends:
            if a != b:
                on_progress(f"measuring transfers from {a} to {b}")
                fit = _fit(partial(_copies_s, source, target))
                links.append(fit.link((a, b), one_way=True))
                fits.append((f"{a}->{b}", fit))
    return Gpus(tuple(devices), tuple(links), tuple(fits))


def torch_device_figures(place: str) -> dict[str, Any]:
    """Measure a torch device: the fields of a :class:`placewright.Device` for memory, peaks, bandwidth and launches."""
    import torch

    kind = place.split(":")[0]
    side, copied = SIDE[kind], COPY_BYTES[kind]
    figures: dict[str, Any] = {"flops_per_s": {}}
    if kind == "cuda":
        figures["memory_bytes"] = int(torch.cuda.get_device_properties(place).total_memory)
    with torch.inference_mode():
        for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)):
            if kind == "cpu" and name != "fp32":
                continue
            a = torch.rand(side, side, device=place).to(dtype)
            figures["flops_per_s"][name] = 2.0 * side**3 / _typical(_times(partial(torch.matmul, a, a), place))
        whole = torch.zeros(copied // 4, device=place)
        into = torch.empty_like(whole)
        figures["memory_bandwidth_bytes_per_s"] = 2.0 * copied / _typical(_times(lambda: into.copy_(whole), place))
        tiny = torch.zeros(16, device=place)
        seconds = _typical(_times(lambda: [tiny.neg_() for _ in range(LAUNCHES)], place))
        figures["launch_overhead_s"] = seconds / LAUNCHES
    return figures


def _copies_s(source: str, target: str, size: int) -> list[float]:
    """Seconds of each of several copies of a tensor from one torch device to another."""
    import torch

    tensor = torch.zeros(size, dtype=torch.uint8, device=source)
    into = torch.empty(size, dtype=torch.uint8, device=target)
    return _times(lambda: into.copy_(tensor), *{source, target} - {"cpu"})


def _times(work: Callable[[], object], *places: str) -> list[float]:
    """Seconds of each of several runs, until all of these torch devices are done."""
    import torch

    times = []
    for run in range(-WARMUP, RUNS):
        for place in places:
            if place != "cpu":
                torch.cuda.synchronize(place)
        began = time.perf_counter()
        work()
        for place in places:
            if place != "cpu":
                torch.cuda.synchronize(place)
        if run >= 0:
            times.append(time.perf_counter() - began)
    return times


def _typical(times: list[float]) -> float:
    """Lower quartile: what else the machine does makes times longer, never shorter."""
    return float(np.quantile(times, 0.25))


def _fit(measure: Callable[[int], list[float]]) -> LinkFit:
    """Fit the typical time of every other run; the error is told of the rest."""
    times = [measure(size) for size in SIZES_BYTES]
    fitted, checked = (np.array([_typical(row[half::2]) for row in times]) for half in (0, 1))
    return fit_link(SIZES_BYTES, fitted, checked)
