"""Processing times from a device's peaks alone: the roofline model of Williams, Waterman and Patterson (CACM 2009)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from placewright.cluster import Cluster, Device
from placewright.errors import InvalidInput
from placewright.graph import OperatorGraph
from placewright.problem import Times

__all__ = ["FALLBACKS", "effective_peak", "missing_figures", "roofline"]

COMPUTE_EFFICIENCY: Mapping[str, float] = MappingProxyType({"gpu": 0.8, "cpu": 0.8})
"""Share of the peak that arithmetic reaches, by kind of device. ``gpu``: the median over 2,186 bf16 matrix products
that were measured on A100, H100, L40S and Arc Pro B60, of those that are bound by arithmetic and take 0.1 ms or more at
peak, is 0.81 (by device 0.69 to 0.90). ``cpu``: ResNet-50 as a whole ran at
78 GFLOP/s on one Zen 3 core of 32 FLOP/cycle, which is 1.0 of its peak at the base clock of 2.45 GHz and 0.7 at the
boost clock of 3.5 GHz; all cores together run in between. Small operators stay below; that is what profiling is for."""

MEMORY_EFFICIENCY: Mapping[str, float] = MappingProxyType({"gpu": 0.8, "cpu": 0.7})
"""Share of the memory bandwidth that is reached. ``gpu``: the median over 2,715 of the same products, of those that are
bound by memory and take 0.05 ms or more at peak, is 0.80. ``cpu``: assumed to be as far from its peak as its
arithmetic."""

OTHER_KINDS = 0.5
"""Either efficiency for a kind of device that nothing is known about: assumed, not measured."""

FALLBACKS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "fp64": ("fp64", "fp32"),
        "fp32": ("fp32",),
        "tf32": ("tf32", "fp32"),
        "fp16": ("fp16", "fp32"),
        "bf16": ("bf16", "fp16", "fp32"),
        "fp8": ("fp8", "bf16", "fp16", "fp32"),
        "int8": ("int8", "fp32"),
        "int4": ("int4", "int8", "fp32"),
    }
)
"""Whose peak an operator's dtype is costed with: the first of these that the device states. Narrow floats are computed
in the next wider ones, integers without a unit of their own at the rate of fp32; so is every dtype that is not listed.
A device that states none of them is costed with the lowest peak that it does state."""


def effective_peak(device: Device, dtype: str) -> float:
    """FLOP/s that ``device`` is costed with for ``dtype``, after the fallbacks; 0 when it states no peak at all.

    Examples
    --------
    >>> effective_peak(Device("t4", flops_per_s={"fp32": 8e12, "fp16": 65e12}), "bf16")
    65000000000000.0
    """
    peaks = {known: peak for known, peak in device.flops_per_s.items() if peak > 0}
    for candidate in FALLBACKS.get(dtype, (dtype, "fp32")):
        if candidate in peaks:
            return peaks[candidate]
    return min(peaks.values(), default=0.0)


def roofline(graph: OperatorGraph, cluster: Cluster) -> Times:
    """Cost every operator on every device from FLOPs, bytes and the device's peaks.

    p[v, i] = launch_overhead[i] + max(flops[v] / (e_i peak[i, dtype]), traffic_bytes[v] / (m_i bandwidth[i])), with the
    efficiencies e and m of the device's kind (:data:`COMPUTE_EFFICIENCY`, :data:`MEMORY_EFFICIENCY`). A device's
    ``cpu_share`` divides the whole.

    Parameters
    ----------
    graph : OperatorGraph
    cluster : Cluster

    Returns
    -------
    Times
        ``processing_s`` of shape (operators, devices), source ``roofline``.

    Raises
    ------
    InvalidInput
        If a device states no peak or no memory bandwidth; each such device is named.

    Examples
    --------
    >>> from placewright.graph import Operator
    >>> half = Device("d", kind="other", flops_per_s={"fp32": 2e9}, memory_bandwidth_bytes_per_s=2e9)
    >>> graph = OperatorGraph([Operator("compute", flops=10**9), Operator("copy", traffic_bytes=10**6)])
    >>> roofline(graph, Cluster([half])).processing_s.tolist()
    [[1.0], [0.001]]
    """
    violations = missing_figures(cluster.devices)
    if violations:
        raise InvalidInput(violations, what=f"cluster {cluster.name!r}" if cluster.name else "cluster")
    dtypes: dict[str, int] = {}
    dtype_of = np.fromiter((dtypes.setdefault(v.dtype, len(dtypes)) for v in graph.operators), np.intp, len(graph))
    flops = np.fromiter((v.flops for v in graph.operators), np.float64, len(graph))
    traffic = np.fromiter((v.traffic_bytes for v in graph.operators), np.float64, len(graph))
    processing = np.empty((len(graph), len(cluster)))
    columns: dict[tuple[float, ...], npt.NDArray[np.float64]] = {}
    for i, device in enumerate(cluster.devices):
        seconds_per_flop = tuple(1.0 / (_compute(device) * effective_peak(device, t)) for t in dtypes)
        seconds_per_byte = 1.0 / (_memory(device) * device.memory_bandwidth_bytes_per_s)
        figures = (device.launch_overhead_s, device.cpu_share, seconds_per_byte, *seconds_per_flop)
        if figures not in columns:  # alike devices are costed once
            arithmetic = flops * np.array(seconds_per_flop)[dtype_of]
            columns[figures] = (
                device.launch_overhead_s + np.maximum(arithmetic, traffic * seconds_per_byte)
            ) / device.cpu_share
        processing[:, i] = columns[figures]
    return Times(processing, source="roofline")


def _compute(device: Device) -> float:
    return COMPUTE_EFFICIENCY.get(device.kind, OTHER_KINDS)


def _memory(device: Device) -> float:
    return MEMORY_EFFICIENCY.get(device.kind, OTHER_KINDS)


def missing_figures(devices: Sequence[Device]) -> list[str]:
    """Say what devices lack to be costed from their figures, a line each."""
    found = []
    for d in devices:
        if not effective_peak(d, "fp32") > 0:
            found.append(
                f"device {d.name!r} states no peak above 0 FLOP/s; give model: (an entry of the hardware catalogue) or "
                "flops: {fp32: 10 TFLOP/s}"
            )
        if not d.memory_bandwidth_bytes_per_s > 0:
            found.append(
                f"device {d.name!r} states no memory bandwidth above 0 B/s; give model: (an entry of the hardware "
                "catalogue) or memory_bandwidth: 100 GB/s"
            )
    return found
