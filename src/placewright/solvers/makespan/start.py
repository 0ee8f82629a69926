"""A placement to begin with when nothing better is at hand: memory first, speed second."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright.arrays import arrays_of
from placewright.problem import Problem

__all__ = ["starting_placement"]


def starting_placement(problem: Problem) -> npt.NDArray[np.int32]:
    """(n,) units in topological order fill the devices, fastest first, as far as their memory goes.

    Each device is left only when the next unit doesn't fit, so that few tensors cross. A unit that fits nowhere goes
    to the allowed device with most room: the result may exceed the memory, and is only a start for a search.
    """
    a = arrays_of(problem)
    times = problem.times.processing_s
    speed = np.where(problem.allowed, times, np.nan)
    with np.errstate(all="ignore"):
        total = np.nansum(speed, axis=0) + np.isnan(speed).sum(axis=0) * np.nanmax(
            times[np.isfinite(times)], initial=0.0
        )
    by_speed = np.argsort(total, kind="stable")
    room = a.capacity.copy()
    unit_device = np.zeros(len(a.resident), dtype=np.int32)
    for k in range(len(a.resident)):
        fitting = [i for i in by_speed if a.allowed[k, i] and a.resident[k] <= room[i]]
        i = fitting[0] if fitting else int(np.argmax(np.where(a.allowed[k], room, -np.inf)))
        unit_device[k] = i
        room[i] -= a.resident[k]
    return unit_device[a.unit_of]
