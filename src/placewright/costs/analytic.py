"""Processing times from the work of operators and a device's figures, by size-dependent efficiency curves."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import prod
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from placewright import catalogue
from placewright.cluster import Cluster, Device
from placewright.costs.curve import CLASSES, USUAL_CLOCK_HZ, Curve, Figures, Work, curves_of
from placewright.costs.roofline import effective_peak, missing_figures
from placewright.errors import InvalidInput
from placewright.graph import OperatorGraph, Tensor
from placewright.problem import Times

__all__ = ["analytic", "class_of", "device_curves", "work_of"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PRODUCTS = _words(
    "linear mm addmm bmm baddbmm matmul einsum addmv mv dot addbmm chain_matmul bilinear _trilinear _grouped_mm "
    "grouped_mm _scaled_mm _int_mm _addmm_activation vdot linear_backward lstm gru rnn rnn_tanh rnn_relu gemm "
    "matmulinteger qlinearmatmul fusedgemm gemmfloat8 fusedmatmul matmulintegertofloat dynamicquantizematmul qgemm "
    "matmulnbits matmulbnb4"
)
"""Last words of the kinds of operators, in lower case, that are matrix products."""

CONVOLUTIONS = _words(
    "conv conv1d conv2d conv3d convolution _convolution convolution_backward conv_tbc conv_transpose1d "
    "conv_transpose2d conv_transpose3d conv_depthwise3d convtranspose deformconv convinteger qlinearconv fusedconv "
    "nhwcconv nhwcfusedconv"
)
"""The same of convolutions."""

FUNCTIONS = _words(
    "aten.tanh aten.sin aten.cos aten.tan aten.asin aten.acos aten.atan aten.atan2 aten.sinh aten.cosh aten.asinh "
    "aten.acosh aten.atanh aten.log aten.log2 aten.log10 aten.log1p aten.exp2 aten.expm1 aten.softplus aten.elu "
    "aten.selu aten.celu aten.mish aten.erfinv aten.lgamma "
    "log sin cos tan asin acos atan sinh cosh asinh acosh atanh softplus elu selu celu mish pow"
)
"""Kinds, in lower case, that back-ends on CPUs compute by slow library functions; others are vectorised throughout."""

WINDOWS = _words(
    "aten.max_pool1d aten.max_pool2d aten.max_pool3d aten.max_pool2d_with_indices aten.max_pool3d_with_indices "
    "aten.avg_pool1d aten.avg_pool2d aten.avg_pool3d aten.lp_pool1d aten.lp_pool2d lrn lppool"
)
"""The same of windows. ONNX Runtime's poolings are vectorised."""

QUERY_BLOCK = 128
"""New tokens that a kernel of fused attention takes at once."""

VECTOR_CLASSES = ("function", "window", "other")
"""Classes that compute on the vector units."""

_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1, "int64": 8}
_Column = npt.NDArray[np.float64]


def analytic(
    graph: OperatorGraph, cluster: Cluster, *, curves: Mapping[str, Mapping[str, Curve]] = MappingProxyType({})
) -> Times:
    """Cost every operator on every device by the curve of its class (:class:`placewright.costs.curve.Curve`).

    The device's ``launch_overhead_s`` takes the place of a matrix product's floor; attention has more of it. Operators
    that are neither products nor attention compute on the vector units: at the fp32 peak where that is the lower one.
    Weights and tensors come from memory, not from a warm cache. Clock, units and what a calibration corrected are the
    catalogue's where the device names an entry of it as its model. ``cpu_share`` divides the whole.

    Parameters
    ----------
    graph : OperatorGraph
    cluster : Cluster
    curves : mapping of device name to curves by class
        In place of the shipped and calibrated ones.

    Returns
    -------
    Times
        ``processing_s`` of shape (operators, devices), source ``analytic``.

    Raises
    ------
    InvalidInput
        If a device states no peak or no memory bandwidth; each such device is named.

    Examples
    --------
    A CPU's products run at 0.8 of the peak as far as nobody measured it:

    >>> from placewright.graph import Operator
    >>> cpu = Device("d", kind="cpu", flops_per_s={"fp32": 1e9}, memory_bandwidth_bytes_per_s=1e9)
    >>> analytic(OperatorGraph([Operator("a", "aten.mm", flops=8 * 10**8)]), Cluster([cpu])).processing_s.tolist()
    [[1.0]]
    """
    violations = missing_figures(cluster.devices)
    if violations:
        raise InvalidInput(violations, what=f"cluster {cluster.name!r}" if cluster.name else "cluster")
    work = work_of(graph)
    classes = np.array([CLASSES.index(c) for c in classes_of(graph)], dtype=np.intp)
    dtypes = [v.dtype for v in graph.operators]
    processing = np.empty((len(graph), len(cluster)))
    alike: dict[object, int] = {}
    for i, device in enumerate(cluster.devices):
        own = curves.get(device.name)
        twin = alike.setdefault(_figures_of(device), i) if own is None else i
        if twin == i:
            processing[:, i] = _column(work, classes, dtypes, device, own or device_curves(device))
        else:
            processing[:, i] = processing[:, twin]
    return Times(processing, source="analytic")


def device_curves(device: Device) -> Mapping[str, Curve]:
    """Return a device's curves: its kind's, with what a calibration of its model corrected."""
    entry = catalogue.find(device.model)
    corrections = entry.efficiency if entry is not None else {}
    return {name: curve.corrected(corrections.get(name, {})) for name, curve in curves_of(device.kind).items()}


@cache
def class_of(kind: str) -> str:
    """Class of a kind of operators, fused ones by the heaviest part; ``attention`` stands for both of its classes.

    Examples
    --------
    >>> class_of("aten.linear+aten.gelu"), class_of("com.microsoft.Attention"), class_of("aten.softmax")
    ('product', 'attention', 'other')
    >>> class_of("aten.tanh"), class_of("Tanh"), class_of("aten.max_pool2d"), class_of("MaxPool")
    ('function', 'other', 'window', 'other')
    """
    parts = [part.lower().removesuffix("_") for part in kind.split("+")]
    words = [part.rsplit(".", 1)[-1].lower() for part in kind.split("+")]
    if any("attention" in w for w in words):
        return "attention"
    if any(w in CONVOLUTIONS for w in words):
        return "convolution"
    if any(w in PRODUCTS for w in words):
        return "product"
    if any(p in WINDOWS for p in parts):
        return "window"
    return "function" if any(p in FUNCTIONS for p in parts) else "other"


def classes_of(graph: OperatorGraph) -> list[str]:
    """Class of each operator; attention is ``decode`` where it has one new token a sequence."""
    queries = _queries(graph)
    found = [class_of(v.kind) for v in graph.operators]
    return [
        ("decode" if queries[k][2:3] == (1,) else "prefill") if c == "attention" else c for k, c in enumerate(found)
    ]


def work_of(graph: OperatorGraph) -> Work:
    """Work of each operator: what it states, and the depth and pieces that follow from the shapes of its tensors.

    The depth is flops / (2 results): k of a matrix product, input channels x window of a convolution.
    """
    n = len(graph)
    flops = np.fromiter((v.flops for v in graph.operators), np.float64, n)
    traffic = np.fromiter((v.traffic_bytes for v in graph.operators), np.float64, n)
    made = np.zeros(n)
    for tensor in graph.tensors:
        made[tensor.producer] += _elements(tensor, graph.operators[tensor.producer].dtype)
    depth = np.divide(flops, 2 * made, out=np.zeros(n), where=made > 0)
    pieces = np.zeros(n)
    for v, shape in _queries(graph).items():
        depth[v] /= 2  # QK^T and PV
        if shape:
            batch, heads, tokens, _ = shape
            pieces[v] = batch * heads * -(-tokens // QUERY_BLOCK)
    return Work(flops, traffic, depth, pieces)


def _column(
    work: Work,
    classes: npt.NDArray[np.intp],
    dtypes: list[str],
    device: Device,
    curves: Mapping[str, Curve],
) -> _Column:
    entry = catalogue.find(device.model)
    clock = (entry.clock_hz if entry is not None else 0.0) or USUAL_CLOCK_HZ
    units = entry.compute_units if entry is not None else 0.0
    peaks = {t: effective_peak(device, t) for t in dict.fromkeys(dtypes)}
    vector = effective_peak(device, "fp32")
    times = np.empty(len(dtypes))
    dtype_of = np.array(dtypes)
    for name in CLASSES:
        for dtype, peak in peaks.items():
            mine = np.flatnonzero((classes == CLASSES.index(name)) & (dtype_of == dtype))
            figures = Figures(
                min(peak, vector) if name in VECTOR_CLASSES else peak, device.memory_bandwidth_bytes_per_s, clock, units
            )
            part = Work(work.flops[mine], work.traffic_bytes[mine], work.depth[mine], work.pieces[mine])
            beyond = max(0.0, curves[name].floor_cycles - curves["product"].floor_cycles) / clock
            times[mine] = curves[name].seconds(part, figures, floor_s=device.launch_overhead_s + beyond)
    return times / device.cpu_share


def _queries(graph: OperatorGraph) -> dict[int, tuple[int, ...]]:
    """(batch, heads, new tokens, width) of each attention; empty where neither its result nor what it reads says it.

    The result has the shape of the queries, unless it is fused with what reorders it: then what it reads is looked at.
    """
    attention = [v for v, operator in enumerate(graph.operators) if class_of(operator.kind) == "attention"]
    found: dict[int, tuple[int, ...]] = dict.fromkeys(attention, ())
    made = dict.fromkeys(attention, 0)
    for tensor in graph.tensors:
        if tensor.producer in made and not made[tensor.producer]:
            made[tensor.producer] = prod(tensor.shape)
            if len(tensor.shape) == 4:
                found[tensor.producer] = tensor.shape
    for tensor in graph.tensors:
        for v in tensor.readers:
            if v in found and not found[v] and len(tensor.shape) == 4 and prod(tensor.shape) == made[v]:
                found[v] = tensor.shape
    return found


def _elements(tensor: Tensor, dtype: str) -> float:
    return float(prod(tensor.shape)) if tensor.shape else tensor.size_bytes / _BYTES.get(tensor.dtype or dtype, 4)


def _figures_of(device: Device) -> tuple[object, ...]:
    """Everything that times depend on."""
    peaks = tuple(sorted(device.flops_per_s.items()))
    return (
        *(device.kind, device.model, peaks, device.memory_bandwidth_bytes_per_s),
        *(device.launch_overhead_s, device.cpu_share),
    )
