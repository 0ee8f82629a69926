"""A placement to begin with when nothing better is at hand: memory first, speed second."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright._kernel.anneal import Limits
from placewright.arrays import Arrays, arrays_of
from placewright.problem import Problem

__all__ = ["limits_of", "starting_placement"]


def starting_placement(problem: Problem) -> npt.NDArray[np.int32]:
    """(n,) units in topological order fill the devices, fastest first, as far as their memory goes.

    Each device is left only when the next unit doesn't fit, so that few tensors cross. Where a unit fits nowhere in the
    end, the heaviest units are placed first instead (first fit decreasing, Johnson 1973), which uses the memory better.
    A unit that fits nowhere then either goes to the allowed device with most room: the result may exceed the memory,
    and is only a start for a search.
    """
    a = arrays_of(problem)
    times = problem.times.processing_s
    speed = np.where(problem.allowed, times, np.nan)
    with np.errstate(all="ignore"):
        total = np.nansum(speed, axis=0) + np.isnan(speed).sum(axis=0) * np.nanmax(
            times[np.isfinite(times)], initial=0.0
        )
    by_speed = np.argsort(total, kind="stable")
    topological = np.arange(len(a.resident))
    placed, excess = _filled(a, topological, by_speed)
    if excess > 0.0:
        packed, less = _filled(a, np.lexsort((topological, -a.resident)), by_speed)
        if less < excess:
            placed = packed
    return placed[a.unit_of]


def _filled(
    a: Arrays, units: npt.NDArray[np.int64], by_speed: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int32], float]:
    """Device of each unit when they are placed in an order, and the bytes above capacity."""
    room = a.capacity.copy()
    placed = np.zeros(len(a.resident), dtype=np.int32)
    for k in units.tolist():
        fitting = [i for i in by_speed if a.allowed[k, i] and a.resident[k] <= room[i]]
        i = fitting[0] if fitting else int(np.argmax(np.where(a.allowed[k], room, -np.inf)))
        placed[k] = i
        room[i] -= a.resident[k]
    return placed, float(-np.minimum(room, 0.0).sum())


def limits_of(a: Arrays) -> Limits:
    """Tell what a placement must respect, as the kernels of the searches take it."""
    rows, columns = np.nonzero(a.allowed)
    choice_ptr = np.searchsorted(rows, np.arange(len(a.allowed) + 1)).astype(np.int32)
    return Limits(
        a.unit_of,
        a.member_ptr,
        a.member,
        choice_ptr,
        columns.astype(np.int32),
        a.resident,
        a.capacity,
        a.output,
        a.memory_may_bind,
    )
