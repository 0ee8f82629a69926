"""An offload problem as the kernel of splits takes it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright._kernel.calls import CallLimits, CallNetwork
from placewright.offloads import Offloads, offload_of, offloads_of
from placewright.problem import Problem

__all__ = ["call_network", "devices_of", "places_of"]

Ints = npt.NDArray[np.int32]


def call_network(problem: Problem) -> tuple[CallNetwork, CallLimits]:
    """Return the network and the limits of its placements."""
    o = offloads_of(problem)
    n, units = len(o.cpu_s), int(o.unit_of.max(initial=-1)) + 1
    seconds = np.ascontiguousarray(np.column_stack([o.acc_s, o.cpu_s]))  # one order, so that kernels compile once
    network = CallNetwork(
        o.producer, o.reader_ptr, o.reader, o.made_ptr, o.read_ptr, o.read, seconds, o.in_from_s, o.out_to_s
    )
    runs = np.ones((units, seconds.shape[1]), dtype=np.bool_)
    np.logical_and.at(runs, o.unit_of, np.isfinite(seconds))
    member_ptr = np.zeros(units + 1, dtype=np.int32)
    member_ptr[1:] = np.bincount(o.unit_of, minlength=units).cumsum()
    member = np.argsort(o.unit_of, kind="stable").astype(np.int32)
    size = np.bincount(o.unit_of, weights=o.size, minlength=units).astype(np.float64)
    most = offload_of(problem).calls
    capacity = np.append(o.capacity, np.inf)
    return network, CallLimits(o.unit_of, member_ptr, member, runs, size, capacity, n if most is None else most)


def places_of(o: Offloads, device_of: npt.ArrayLike) -> Ints:
    """(n,) accelerator of each operator, A on CPUs."""
    place = np.full(int(max(np.max(device_of, initial=0), o.accelerator.max(initial=0))) + 1, len(o.accelerator))
    place[o.accelerator] = np.arange(len(o.accelerator))
    return np.asarray(place[np.asarray(device_of)], dtype=np.int32)


def devices_of(o: Offloads, place: Ints) -> Ints:
    """(n,) device of each operator: on CPUs the one that runs it fastest."""
    A = len(o.accelerator)
    return np.where(place < A, np.append(o.accelerator, 0)[place], o.cpu_device).astype(np.int32)
