"""What is asked for: a placement, its schedule, and where both came from. Frozen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Plan", "Provenance", "Schedule", "Transfer"]


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
class Plan:
    """A device for every operator, the schedule that follows, and the value that the judge gave it.

    Attributes
    ----------
    device_of : (n,) int array
        Index of each operator's device; of a replicated stage the first of its devices.
    schedule : Schedule
        Of one sample that has the cluster for itself: what the makespan is about, and under ``max-load`` how one
        sample passes the empty pipeline.
    value_s : float
        The objective in seconds, as :func:`placewright.evaluate` computed it.
    provenance : Provenance
    replicas : tuple of tuple of int
        Of each replicated stage its devices, ascending: the first one stands in ``device_of``.
    call_of : (n,) int array or None
        Under ``offload``: of each operator the call of its device, counted from 0 in the order in which the device
        makes them; 0 on devices of kind ``cpu``.
    """

    device_of: npt.NDArray[np.int32]
    schedule: Schedule
    value_s: float
    provenance: Provenance = Provenance()
    replicas: tuple[tuple[int, ...], ...] = ()
    call_of: npt.NDArray[np.int32] | None = None

    def __post_init__(self) -> None:
        array = np.array(self.device_of, dtype=np.int32)
        array.setflags(write=False)
        object.__setattr__(self, "device_of", array)
        if self.call_of is not None:
            calls = np.array(self.call_of, dtype=np.int32)
            calls.setflags(write=False)
            object.__setattr__(self, "call_of", calls)
        object.__setattr__(self, "replicas", tuple(tuple(int(i) for i in stage) for stage in self.replicas))

    @property
    def devices_used(self) -> tuple[int, ...]:
        """Indices of the devices that run at least one operator, ascending."""
        first = {int(i) for i in np.unique(self.device_of)}
        return tuple(sorted(first.union(*(stage for stage in self.replicas if stage[0] in first))))


def as_placement(devices: Iterable[int]) -> npt.NDArray[np.int32]:
    """(n,) int32 array of device indices."""
    return np.fromiter(devices, dtype=np.int32)
