"""A dozen operators measured on a device, and its curve corrected by what they took."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from placewright import host
from placewright.catalogue import Correction, Efficiency, WrittenEntry, read_entries, with_entry
from placewright.cluster import Cluster, Device
from placewright.costs.analytic import device_curves
from placewright.costs.curve import Curve, Figures, Work
from placewright.costs.curve_fit import Measured, fit_curve
from placewright.costs.roofline import effective_peak, missing_figures
from placewright.costs.tasks import Input, OnnxUnit, Setup, Task, TorchUnit
from placewright.costs.worker_process import MeasuringProcess
from placewright.errors import ExecutionError, InvalidInput, MissingExtra

__all__ = [
    "Calibration",
    "Runtime",
    "Trial",
    "as_runtime",
    "calibrate",
    "calibrate_named",
    "catalogue_text",
    "chosen_device",
    "correct",
    "entry_of",
    "trials",
]

Runtime = Literal["torch", "onnxruntime"]
TIMEOUT_S = 60.0
ROUNDS = 3
"""All operators are measured so often, and the least of an operator's medians counts: what else the machine does only
ever makes it slower."""

GROUPS = ("product", "convolution", "other", "function", "window")
"""Classes of operators that are measured, that which gives the overhead first."""

ALONE = ("function", "window")
"""Classes that one operator speaks for: it gives the share of the peak, and memory is as for ``other``."""

SHARPNESS = 2.0
"""Of a corrected curve: near the 2.2 that products on GPUs were fitted with."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One operator that is measured: fp32, made up from its shapes.

    Attributes
    ----------
    name : str
    group : str
        Class of operators that it speaks for.
    flops, traffic_bytes, depth : int
    inputs : tuple of shapes
    weights : int
        How many of the inputs, from the end, are weights: not in the cache when the operator starts.
    torch : (operator, other arguments)
    onnx : (operator, attributes)
    """

    name: str
    group: str
    flops: int
    traffic_bytes: int
    depth: int
    inputs: tuple[tuple[int, ...], ...]
    weights: int
    torch: tuple[str, tuple[Any, ...]]
    onnx: tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured on a device, and the curves before and after.

    Attributes
    ----------
    device : Device
    runtime : str
    trials : tuple of Trial
    measured_s, before_s, after_s : array of shape (trials,)
    launch_overhead_s : float
        What an operator takes beyond its work.
    curves : mapping of class to Curve
        The device's, corrected.
    """

    device: Device
    runtime: str
    trials: tuple[Trial, ...]
    measured_s: npt.NDArray[np.float64]
    before_s: npt.NDArray[np.float64]
    after_s: npt.NDArray[np.float64]
    launch_overhead_s: float
    curves: Mapping[str, Curve]


def as_runtime(text: str) -> Runtime:
    """Take the name of a runtime.

    Raises
    ------
    InvalidInput
        If there is no such runtime.
    """
    for known in get_args(Runtime):
        if text == known:
            return known  # type: ignore[no-any-return]
    raise InvalidInput(f"runtime {text!r} is not known; use {' or '.join(get_args(Runtime))}")


def chosen_device(cluster: Cluster, name: str | None) -> Device:
    """Return the device of that name; by default the first that is a CPU of this machine, or the first of all.

    Raises
    ------
    InvalidInput
        If there is none of that name.
    """
    if name is not None:
        if name not in cluster.index:
            raise InvalidInput(f"there is no device {name!r} to calibrate; there are: {', '.join(cluster.index)}")
        return cluster.devices[cluster.index[name]]
    return next((d for d in cluster.devices if host.has_cores(d)), cluster.devices[0])


def calibrate_named(
    cluster: Cluster,
    name: str | None,
    runtime: str,
    on_progress: Callable[[str], None] | None = None,
    *,
    catalogue: Path | None = None,
) -> Calibration:
    """Calibrate the device of that name, or the first that is here, as a command line asks for it.

    The ``catalogue`` that the entry is to be added to, where it is there, is read before anything is measured.
    """
    if catalogue is not None and catalogue.is_file():
        read_entries(catalogue)
    return calibrate(chosen_device(cluster, name), runtime=as_runtime(runtime), on_progress=on_progress)


def catalogue_text(found: Calibration, name: str | None, path: Path | None) -> str:
    """Make the text of a catalogue with the device in it, beside what ``path`` holds already."""
    return with_entry(path, name or f"{found.device.name}-{found.runtime}", entry_of(found))


def entry_of(found: Calibration, date: str | None = None) -> WrittenEntry:
    """Write a calibrated device as an entry of a catalogue; ``date`` is today's unless given."""
    device = found.device
    threads = device.threads or len(device.cores)
    corrections = {
        name: Correction(_rounded(c.arithmetic), _rounded(c.memory), _rounded(c.sharpness))
        for name, c in found.curves.items()
    }
    return WrittenEntry(
        vendor=host.cpu_name(),
        kind=device.kind,
        flops={t: float(f) for t, f in device.flops_per_s.items()},
        memory_bandwidth=float(device.memory_bandwidth_bytes_per_s),
        source=f"placewright calibrate: {found.runtime} {version(found.runtime)}, {threads} threads",
        date=date or datetime.date.today().isoformat(),
        launch_overhead=_rounded(found.launch_overhead_s),
        efficiency=Efficiency(**corrections),
    )


def trials(runtime: Runtime = "torch") -> tuple[Trial, ...]:
    """Twelve operators that most networks consist of; FLOPs are counted as for captured networks.

    The functions and windows are those that the runtime takes long for: ``tanh`` and pooling in torch, ``Log`` and
    ``LRN`` in ONNX Runtime.
    """
    return (
        _product("small product", 16, 64, 64),
        _product("product", 256, 768, 768),
        _product("matrix times vector", 1, 4096, 4096),
        _convolution("7 x 7 convolution", 3, 64, 7, 112),
        _convolution("3 x 3 convolution", 64, 64, 3, 56),
        _convolution("1 x 1 convolution", 256, 64, 1, 28),
        _elementwise("sum of two tensors", (1, 256, 56, 56), 1, "add.Tensor", "Add", both=True),
        _elementwise("sigmoid", (1, 128, 1024), 8, "sigmoid.", "Sigmoid"),
        _elementwise("softmax", (8, 128, 128), 5, "softmax.int", "Softmax", (-1,), {"axis": -1}),
        _elementwise("rectifier", (1, 64, 112, 112), 1, "relu.", "Relu"),
        _elementwise("function", (1, 128, 1024), 8, "tanh.", "Log", group="function"),
        _window("window", 64, 56, runtime),
    )


def calibrate(
    device: Device, *, runtime: Runtime = "torch", on_progress: Callable[[str], None] | None = None
) -> Calibration:
    """Measure twelve operators on CPU cores of this machine and correct the device's curves.

    Parameters
    ----------
    device : Device
        With ``cores`` that this process may use, and figures to correct.
    runtime : {"torch", "onnxruntime"}
        What runs the operators.
    on_progress : callable, optional

    Raises
    ------
    InvalidInput
        If the device isn't one of this machine's CPUs, or lacks figures.
    ExecutionError
        If an operator can't be measured.
    """
    _check(device)
    _require(runtime)
    found = trials(runtime)
    seconds = np.full((ROUNDS, len(found)), np.inf)
    threads = device.threads or len(device.cores)
    with MeasuringProcess(Setup(device.name, device.cores, threads)) as process:
        for row, (k, trial) in product(range(ROUNDS), enumerate(found)):
            if on_progress is not None and row == 0:
                on_progress(f"measuring on {device.name}: {trial.name}")
            answer = process.ask(_task(trial, runtime), timeout_s=TIMEOUT_S)
            if answer.error:
                raise ExecutionError(f"{trial.name} can't be measured on device {device.name!r}: {answer.error}")
            seconds[row, k] = max(answer.seconds, 1e-9)
    return correct(device, found, seconds.min(axis=0), runtime=runtime)


def correct(
    device: Device, measured: Sequence[Trial], seconds: npt.NDArray[np.float64], *, runtime: str = "torch"
) -> Calibration:
    """Correct a device's curves by what trials took at full speed.

    Products give their share of the peak and of the bandwidth, and what every operator costs beyond its work;
    convolutions and the others give their own shares with that overhead, functions and windows that of the peak alone.
    Attention is costed as products are. The
    corner between arithmetic and memory is rounded (:data:`SHARPNESS`), so that all trials have a say in both.
    """
    before = device_curves(device)
    figures = Figures(effective_peak(device, "fp32"), device.memory_bandwidth_bytes_per_s)
    groups = [g for g in GROUPS if any(t.group == g for t in measured)]
    of_group = {g: [k for k, t in enumerate(measured) if t.group == g] for g in groups}
    data = {g: Measured(_work([measured[k] for k in ks]), figures, seconds[ks]) for g, ks in of_group.items()}
    after = dict(before)
    floor_s: float | None = None
    for group in groups:
        start = before[group].corrected(
            {"sharpness": SHARPNESS, "floor_cycles": max(device.launch_overhead_s, 1e-7) * figures.clock_hz}
        )
        free: tuple[str, ...] = ("arithmetic", "memory")
        if group in ALONE:
            start, free = start.corrected({"memory": after["other"].memory}), ("arithmetic",)
        found, _ = fit_curve(start, [data[group]], free=free, warm=False, floor_s=floor_s)
        if floor_s is None:
            floor_s = found.floor_cycles / figures.clock_hz
        share = {"arithmetic": found.arithmetic, "memory": found.memory, "sharpness": SHARPNESS}
        for name in (group, *("prefill", "decode") * (group == "product")):
            after[name] = before[name].corrected(share)
    assert floor_s is not None
    before_s, after_s = np.empty(len(measured)), np.empty(len(measured))
    for group, ks in of_group.items():
        work = data[group].work
        before_s[ks] = before[group].seconds(work, figures, floor_s=device.launch_overhead_s)
        after_s[ks] = after[group].seconds(work, figures, floor_s=floor_s)
    corrected = MappingProxyType(after)
    return Calibration(device, runtime, tuple(measured), seconds, before_s, after_s, floor_s, corrected)


def _check(device: Device) -> None:
    if not host.has_cores(device):
        raise InvalidInput(
            f"device {device.name!r} is no CPU with 'cores' among this machine's "
            f"({', '.join(map(str, host.available_cores()))}), so it can't be measured; name one that is"
        )
    if lacking := missing_figures([device]):
        raise InvalidInput(lacking)


def _require(runtime: Runtime) -> None:
    if find_spec(runtime) is None:
        raise MissingExtra(runtime, "onnx" if runtime == "onnxruntime" else "torch", "calibration")


def _work(found: Sequence[Trial]) -> Work:
    columns = zip(*((t.flops, t.traffic_bytes, t.depth, 0) for t in found), strict=True)
    return Work(*(np.array(c, dtype=np.float64) for c in columns))


def _product(name: str, m: int, n: int, k: int) -> Trial:
    traffic = 4 * (m * k + k * n + m * n)
    return Trial(name, "product", 2 * m * n * k, traffic, k, ((m, k), (k, n)), 1, ("mm.", ()), ("MatMul", {}))


def _convolution(name: str, given: int, made: int, window: int, side: int) -> Trial:
    pad, stride = window // 2, 2 if window == 7 else 1
    depth = given * window**2
    results = made * side**2
    traffic = 4 * (given * (stride * side) ** 2 + made * depth + results)
    others = (None, [stride] * 2, [pad] * 2, [1, 1], 1)
    shapes = ((1, given, stride * side, stride * side), (made, given, window, window))
    attributes = {"pads": [pad] * 4, "strides": [stride] * 2}
    return Trial(
        name, "convolution", 2 * results * depth, traffic, depth, shapes, 1, ("conv2d.", others), ("Conv", attributes)
    )


def _elementwise(
    name: str,
    shape: tuple[int, ...],
    flops: int,
    operator: str,
    onnx: str,
    others: tuple[Any, ...] = (),
    attributes: Mapping[str, Any] = MappingProxyType({}),
    *,
    both: bool = False,
    group: str = "other",
) -> Trial:
    count = int(np.prod(shape))
    inputs = (shape, shape) if both else (shape,)
    traffic = 4 * count * (len(inputs) + 1)
    return Trial(name, group, flops * count, traffic, 0, inputs, 0, (operator, others), (onnx, attributes))


def _window(name: str, channels: int, side: int, runtime: Runtime) -> Trial:
    """Largest of each 3 x 3 elements, or each element over the norm of five channels."""
    shape, results = (1, channels, side, side), channels * side**2
    flops, attributes = (9, {}) if runtime == "torch" else (2 * 5 + 11, {"size": 5})
    others = ([3, 3], [1, 1], [1, 1])
    return Trial(
        name, "window", flops * results, 8 * results, 0, (shape,), 0, ("max_pool2d.", others), ("LRN", attributes)
    )


def _task(trial: Trial, runtime: Runtime) -> Task:
    warm = len(trial.inputs) - trial.weights
    inputs = tuple(
        Input(f"x{k}", "float32", shape, strides=_strides(shape), warm=k < warm) for k, shape in enumerate(trial.inputs)
    )
    if runtime == "onnxruntime":
        return OnnxUnit(inputs[:warm], _onnx_model(trial, warm))
    operator, _, overload = trial.torch[0].partition(".")
    arguments = [["tensor", i.name] for i in inputs]
    others = [["list", list(a)] if isinstance(a, list) else a for a in trial.torch[1]]
    return TorchUnit(inputs, ([f"aten::{operator}", overload, [*arguments, *others], {}, "y", []],))


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(np.prod(shape[k + 1 :])) for k in range(len(shape)))


def _onnx_model(trial: Trial, warm: int) -> bytes:
    import onnx

    operator, attributes = trial.onnx
    helper, fp32 = onnx.helper, onnx.TensorProto.FLOAT
    names = [f"x{k}" for k in range(len(trial.inputs))]
    random = np.random.default_rng(0)
    weights = [
        helper.make_tensor(name, fp32, shape, random.random(shape, dtype=np.float32).tobytes(), raw=True)
        for name, shape in zip(names[warm:], trial.inputs[warm:], strict=True)
    ]
    graph = helper.make_graph(
        [helper.make_node(operator, names, ["y"], **attributes)],
        "trial",
        [helper.make_tensor_value_info(n, fp32, s) for n, s in zip(names[:warm], trial.inputs[:warm], strict=True)],
        [helper.make_tensor_value_info("y", fp32, None)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(model.SerializeToString())


def _rounded(number: float) -> float:
    return float(f"{number:.4g}")
