"""Describe this machine as unlike CPU devices, every figure measured by the workers that will run a plan.

The probe runs two kinds of small networks through :class:`placewright.execute.onnx.runner.OnnxRunner`: one on each
device alone, one that goes to and fro between each two of them. What a transfer costs is what the second takes longer:
the time from a producer's finish to its reader's start, and what a session call on a tensor that lies in another
core's cache takes longer than the same call on the device's own. The times of every other run are fitted; the error is
told of the others.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from placewright.capture.onnx_file import onnx_module
from placewright.cluster import Cluster, Device, Link
from placewright.ended_by_signal import cleared_when_ended
from placewright.errors import InvalidInput
from placewright.execute.onnx.runner import OnnxRunner
from placewright.execute.onnx.unsplit import random_inputs
from placewright.execute.probe.gpus import probe_gpus
from placewright.execute.probe.link_fit import SIZES_BYTES, LinkFit, fit_link
from placewright.graph import Operator, OperatorGraph
from placewright.host import available_cores, cpu_name, memory_bytes
from placewright.plan import Plan, Schedule
from placewright.problem import Problem

__all__ = ["Probed", "busy_notes", "layout_devices", "probe", "scaled"]

SLOW_SHARE = 0.75
"""CPU share of a device that would else be like the one before it."""
BUSY_LOAD = 0.5
"""Load average a core from which on other work takes part in what is measured."""
HOPS = 5
TINY_OPERATORS = 32
MATMUL_SIDE = 768
COPY_BYTES = 2**26
RUNS, WARMUP = 20, 3

OnStep = Callable[[str], None]
Floats = npt.NDArray[np.float64]


class Probed(NamedTuple):
    """A cluster, and what its links were fitted to.

    Attributes
    ----------
    cluster : Cluster
    fits : tuple of (str, LinkFit)
        Of each pair that was measured, by its name.
    notes : tuple of str
        What was not measured but assumed, and what may have spoilt the figures.
    """

    cluster: Cluster
    fits: tuple[tuple[str, LinkFit], ...] = ()
    notes: tuple[str, ...] = ()


def probe(*, devices: int | None = None, on_progress: OnStep | None = None) -> Probed:
    """Describe this machine as a cluster of worker devices, and measure them.

    Parameters
    ----------
    devices : int, optional
        How many; by default three where there are four cores or more, two where there are two, else one.
    on_progress : callable, optional
        Called with a line about each step.

    Returns
    -------
    Probed
        The cluster: devices of kind ``cpu`` on the host ``local`` with cores, threads, CPU share, a part of the
        memory, peak FLOP/s in ``fp32`` (of a matrix product), memory bandwidth (of a copy), launch and cut overhead;
        and a link between each two; every GPU that torch finds, with its links to the first CPU device and to each
        other.

    Raises
    ------
    InvalidInput
        If more devices are asked for than there are cores.
    MissingExtra
        If onnx or onnxruntime is not installed.
    ExecutionError
        If a worker fails.

    Notes
    -----
    A device with a CPU share below 1 is measured at full speed and its figures are scaled: a worker keeps its share by
    resting after each call for as long as the share asks.
    """
    tell = on_progress or (lambda _: None)
    notes = busy_notes(os.getloadavg()[0], os.cpu_count() or 1) if hasattr(os, "getloadavg") else ()
    bare = layout_devices(available_cores(), memory_bytes(), devices)
    full = [replace(d, cpu_share=1.0) for d in bare]
    measured, own = [], []
    for k, device in enumerate(bare):
        tell(f"measuring {device.name} ({len(device.cores)} of {len(available_cores())} cores)")
        figures, durations = _measure_device(full, k)
        measured.append(scaled(device, figures))
        own.append(durations)
    links, fits = [], []
    for i, j in itertools.combinations(range(len(bare)), 2):
        tell(f"measuring transfers between {bare[i].name} and {bare[j].name}")
        fitted, checked = _measure_pair(full, i, j, own)
        fit = fit_link(SIZES_BYTES, fitted, checked)
        links.append(fit.link((bare[i].name, bare[j].name)))
        fits.append((f"{bare[i].name}-{bare[j].name}", fit))
    gpus = probe_gpus(measured[0].name, on_progress=tell)
    cluster = Cluster([*measured, *gpus.devices], [*links, *gpus.links], name=cpu_name())
    return Probed(cluster, (*fits, *gpus.fits), notes)


def busy_notes(load: float, cores: int) -> tuple[str, ...]:
    """Say that the machine was at other work when the probe began, where it was.

    Parameters
    ----------
    load : float
        Load average of the last minute: how many threads wanted to run.
    cores : int
        Of the machine.

    Examples
    --------
    >>> busy_notes(0.3, 4)
    ()
    """
    if load < BUSY_LOAD * cores:
        return ()
    return (
        f"Other work kept this machine busy (load average {load:.1f} on {cores} cores), so figures may be far off; "
        "probe again when it is idle.",
    )


def layout_devices(cores: tuple[int, ...], total_bytes: int, count: int | None = None) -> list[Device]:
    """Share out cores so that each device has about half as many as the one before it, but at least one.

    A device that would have as many as the one before it gets 0.75 of that one's CPU share.

    Parameters
    ----------
    cores : tuple of int
    total_bytes : int
        Of memory, shared out like the cores.
    count : int, optional
        As ``devices`` of :func:`probe`.

    Examples
    --------
    >>> [(d.cores, d.cpu_share) for d in layout_devices((0, 1), 2**30)]
    [((0,), 1.0), ((1,), 0.75)]
    >>> [len(d.cores) for d in layout_devices(tuple(range(8)), 2**30)]
    [5, 2, 1]
    """
    n = len(cores)
    if count is None:
        count = 3 if n >= 4 else min(n, 2)
    if not 1 <= count <= n:
        raise InvalidInput(f"{count} devices were asked for, and this process has {n} cores; ask for 1 to {n}")
    weights = [2.0**-k for k in range(count)]
    sizes = [max(1, int(n * w / sum(weights))) for w in weights]
    sizes[0] += n - sum(sizes)
    made: list[Device] = []
    first = 0
    for k, size in enumerate(sizes):
        alike = k > 0 and size == sizes[k - 1]
        made.append(
            Device(
                f"cpu{k}",
                kind="cpu",
                memory_bytes=total_bytes * size // n,
                cores=cores[first : first + size],
                threads=size,
                cpu_share=round(made[-1].cpu_share * SLOW_SHARE, 3) if alike else 1.0,
            )
        )
        first += size
    return made


@dataclass
class _Network:
    """A network under construction: its nodes, where each runs, and which of them end a call."""

    nodes: list[Any] = field(default_factory=list)
    place: list[int] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)
    inputs: dict[str, list[int]] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)

    def chain(self, name: str, shape: list[int], devices: list[int], *, cut: bool = True) -> list[int]:
        """Add a chain of negations over a tensor, one on each of the devices given; indices of the operators."""
        self.inputs[f"{name}.in"] = shape
        value, made = f"{name}.in", []
        for k, device in enumerate(devices):
            made.append(self.add("Neg", [value], f"{name}.{k}", device, cut=cut or k == len(devices) - 1))
            value = f"{name}.{k}"
        self.outputs.append(value)
        return made

    def add(self, kind: str, inputs: list[str], output: str, device: int, *, cut: bool = True) -> int:
        """Add one operator."""
        self.nodes.append(onnx_module().helper.make_node(kind, inputs, [output], name=output))
        self.place.append(device)
        if cut:
            self.cuts.append(len(self.nodes) - 1)
        return len(self.nodes) - 1

    def run(self, devices: list[Device]) -> tuple[Floats, Floats]:
        """Run it often: (2, n) seconds that each call takes, and (2, n) from the operator before it to its start.

        Both stand at the first operator of each call; once for every other run, and once for the runs between them.
        """
        onnx = onnx_module()
        float32 = onnx.TensorProto.FLOAT
        graph = onnx.helper.make_graph(
            self.nodes,
            "probe",
            [onnx.helper.make_tensor_value_info(n, float32, shape) for n, shape in self.inputs.items()],
            [onnx.helper.make_tensor_value_info(n, float32, None) for n in self.outputs],
        )
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
        n = len(self.nodes)
        cluster = Cluster(devices, [Link(0.0, float("inf"), link_class="same-host")])
        problem = Problem(OperatorGraph([Operator(v.name) for v in self.nodes]), cluster, np.zeros((n, len(devices))))
        start = np.arange(n, dtype=np.float64)
        plan = Plan(np.array(self.place), Schedule(start, start + 1.0), 0.0)
        durations, gaps = np.full((RUNS, n), np.nan), np.full((RUNS, n), np.nan)
        with cleared_when_ended(), tempfile.TemporaryDirectory(prefix="placewright-") as folder:
            path = Path(folder) / "probe.onnx"
            path.write_bytes(model.SerializeToString())
            with OnnxRunner(path, problem, plan, cut_after=self.cuts) as runner:
                runner.run(random_inputs(runner.inputs))
                for run in range(-WARMUP, RUNS):
                    runner.go()
                    if run < 0:
                        continue
                    ended = np.zeros(n)
                    timeline = runner.timeline()
                    for call, _, began, end in timeline:
                        durations[run, call.operators[0]] = end - began
                        ended[list(call.operators)] = end
                    for call, _, began, _ in timeline:
                        gaps[run, call.operators[0]] = began - ended[call.operators[0] - 1]
        return _undisturbed(durations), _undisturbed(gaps)


def _undisturbed(times: Floats) -> Floats:
    """Lower quartiles over every other run, and over the rest: other work makes times longer, never shorter."""
    return np.stack([np.quantile(times[half::2], 0.25, axis=0) for half in (0, 1)])


def _measure_device(devices: list[Device], k: int) -> tuple[dict[str, float], Floats]:
    """Figures of one device at full speed; and the seconds of a call on a tensor of its own, twice, by size."""
    net = _Network()
    net.inputs |= {"a": [MATMUL_SIDE] * 2, "b": [MATMUL_SIDE] * 2, "whole": [COPY_BYTES // 4]}
    product = net.add("MatMul", ["a", "b"], "product", k)
    copy = net.add("Neg", ["whole"], "copy", k)
    net.outputs += ["product", "copy"]
    uncut = net.chain("uncut", [16], [k] * TINY_OPERATORS, cut=False)
    cut = net.chain("cut", [16], [k] * TINY_OPERATORS)
    chains = [net.chain(f"own{size}", [size // 4], [k] * (HOPS + 1)) for size in SIZES_BYTES[::-1]][::-1]
    both, waits = net.run(devices)
    durations, gaps = both.min(axis=0), waits.min(axis=0)
    together = float(durations[uncut[0]])
    apart = float(durations[cut].sum() + gaps[cut[1:]].sum())
    figures = {
        "flops_per_s": 2.0 * MATMUL_SIDE**3 / float(durations[product]),
        "bandwidth": 2.0 * COPY_BYTES / float(durations[copy]),
        "launch_s": together / TINY_OPERATORS,
        # A crossing is one more call, and the model charges its two ends: half of a call each.
        "cut_s": max(0.0, apart - together) / (TINY_OPERATORS - 1) / 2.0,
    }
    return figures, np.stack([np.median(both[:, chain[1:]], axis=1) for chain in chains], axis=1)


def _measure_pair(devices: list[Device], i: int, j: int, own: list[Floats]) -> Floats:
    """(2, sizes) seconds of a transfer between two devices: until its reader starts, and what reading takes longer."""
    net = _Network()
    to_and_fro = [j if k % 2 else i for k in range(HOPS + 1)]
    # Large tensors first: while the small ones are sent, the driver, which has no core of its own, sleeps again.
    chains = [net.chain(f"hop{size}", [size // 4], to_and_fro) for size in SIZES_BYTES[::-1]][::-1]
    durations, gaps = net.run(devices)
    times = np.zeros((2, len(chains)))
    for s, chain in enumerate(chains):
        longer = [durations[:, v] - own[net.place[v]][:, s] for v in chain[1:]]
        times[:, s] = np.median(gaps[:, chain[1:]], axis=1) + np.maximum(0.0, np.mean(longer, axis=0))
    return times


def scaled(device: Device, figures: dict[str, float]) -> Device:
    """Figures of the whole core, which costs divide by the share themselves; what a cut costs is taken as it stands."""
    return replace(
        device,
        flops_per_s={"fp32": figures["flops_per_s"]},
        memory_bandwidth_bytes_per_s=figures["bandwidth"],
        launch_overhead_s=figures["launch_s"],
        cut_overhead_s=figures["cut_s"] / device.cpu_share,
    )
