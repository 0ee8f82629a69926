"""What is asked for: a placement, its schedule, and where both came from. Frozen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Copy", "Plan", "Provenance", "Schedule", "Transfer", "in_order"]


@dataclass(frozen=True, slots=True)
class Transfer:
    """One tensor on its way from the device that made it to one that reads it.

    Attributes
    ----------
    tensor : int
        Index in the graph.
    source, target : int
        Indices of devices; different.
    start_s, finish_s : float
        Seconds from the start of the sample.
    """

    tensor: int
    source: int
    target: int
    start_s: float
    finish_s: float


@dataclass(frozen=True, eq=False)
class Schedule:
    """When each operator and each transfer starts and finishes, in seconds from the start of the sample.

    Attributes
    ----------
    start_s, finish_s : (n,) arrays
        Of the operators; the time in between includes what cuts cost (:attr:`Device.cut_overhead_s`).
    transfers : tuple of Transfer
        Each tensor at most once to each device.
    """

    start_s: npt.NDArray[np.float64]
    finish_s: npt.NDArray[np.float64]
    transfers: tuple[Transfer, ...] = ()

    def __post_init__(self) -> None:
        for name in ("start_s", "finish_s"):
            array = np.array(getattr(self, name), dtype=np.float64)
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @property
    def makespan_s(self) -> float:
        """Finish of the last operator."""
        return float(self.finish_s.max(initial=0.0))


@dataclass(frozen=True, slots=True)
class Provenance:
    """How a plan came about, so that it can be made again.

    Attributes
    ----------
    solver : str
    seed : int or None
    version : str
        Of placewright.
    parameters : dict
        Budget and options of the solver.
    """

    solver: str = ""
    seed: int | None = None
    version: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Copy:
    """A copy of the network: where it is, and which part of the samples it takes.

    Attributes
    ----------
    device_of : (n,) int array
        Index of each operator's device.
    share : float
        Above 0; the shares of a plan's copies sum to 1.
    """

    device_of: npt.NDArray[np.int32]
    share: float

    def __post_init__(self) -> None:
        array = np.array(self.device_of, dtype=np.int32)
        array.setflags(write=False)
        object.__setattr__(self, "device_of", array)
        object.__setattr__(self, "share", float(self.share))


@dataclass(frozen=True, eq=False)
class Plan:
    """A device for every operator, the schedule that follows, and the value that the judge gave it.

    Attributes
    ----------
    device_of : (n,) int array
        Index of each operator's device; of a replicated stage the first of its devices, of several copies of the
        network those of the first.
    schedule : Schedule
        Of one sample that has the cluster for itself: what the makespan is about, and under ``max-load`` and
        ``throughput`` how one sample passes the empty pipeline, or its first copy.
    value_s : float
        The objective in seconds, as :func:`placewright.evaluate` computed it.
    provenance : Provenance
    replicas : tuple of tuple of int
        Of each replicated stage its devices, ascending: the first one stands in ``device_of``.
    call_of : (n,) int array or None
        Under ``offload``: of each operator the call of its device, counted from 0 in the order in which the device
        makes them; 0 on devices of kind ``cpu``.
    copies : tuple of Copy
        Under ``throughput``: the copies of the network, the one with the largest share first.
    """

    device_of: npt.NDArray[np.int32]
    schedule: Schedule
    value_s: float
    provenance: Provenance = Provenance()
    replicas: tuple[tuple[int, ...], ...] = ()
    call_of: npt.NDArray[np.int32] | None = None
    copies: tuple[Copy, ...] = ()

    def __post_init__(self) -> None:
        array = np.array(self.device_of, dtype=np.int32)
        array.setflags(write=False)
        object.__setattr__(self, "device_of", array)
        if self.call_of is not None:
            calls = np.array(self.call_of, dtype=np.int32)
            calls.setflags(write=False)
            object.__setattr__(self, "call_of", calls)
        object.__setattr__(self, "replicas", tuple(tuple(int(i) for i in stage) for stage in self.replicas))
        object.__setattr__(self, "copies", tuple(self.copies))

    @property
    def devices_used(self) -> tuple[int, ...]:
        """Indices of the devices that run at least one operator, ascending."""
        first = {int(i) for array in (self.device_of, *(k.device_of for k in self.copies)) for i in np.unique(array)}
        return tuple(sorted(first.union(*(stage for stage in self.replicas if stage[0] in first))))


def as_placement(devices: Iterable[int]) -> npt.NDArray[np.int32]:
    """(n,) int32 array of device indices."""
    return np.fromiter(devices, dtype=np.int32)


def in_order(copies: Iterable[Copy]) -> tuple[Copy, ...]:
    """List copies as plans do: equal placements as one, the largest share first, shares that sum to 1.

    Examples
    --------
    >>> [(k.device_of.tolist(), k.share) for k in in_order([Copy([0], 1.0), Copy([1], 2.0), Copy([0], 1.0)])]
    [([0], 0.5), ([1], 0.5)]
    """
    merged: dict[bytes, list[Copy]] = {}
    for copy in copies:
        merged.setdefault(copy.device_of.tobytes(), []).append(copy)
    shares = {key: sum(k.share for k in same) for key, same in merged.items()}
    total = sum(shares.values())
    order = sorted(merged, key=lambda key: (-shares[key], merged[key][0].device_of.tolist()))
    return tuple(Copy(merged[key][0].device_of, shares[key] / total) for key in order)
