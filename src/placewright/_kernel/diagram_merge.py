"""Keeping few of the states at an ideal: dominated ones are left out, the rest beyond the width merged or dropped."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import kernel
from placewright._kernel.diagram import FAR, Room

__all__ = ["merge"]

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@kernel
def merge(
    room: Room,
    count: int,
    D: int,
    L: int,
    queues: int,
    apart: int,
    most: int,
    drop: bool,
    real: Flags,
    chosen: Longs,
    row: Ints,
    floor: Ints,
    bound: Ints,
    pure: Flags,
) -> int:
    """Keep at most ``most`` of the candidates, those of least bound first; return how many.

    One that a real state dominates is left out: no number that they are compared by is lower, and the other's own end
    is not above its bound. Beyond ``most``, one is merged with the state that loses least (the least of both in each
    number), or dropped. What a merged state dominates is merged with it too: no schedule stands behind a merged state,
    so that it stands for another only when all of its numbers are at most the other's.

    Parameters
    ----------
    queues, apart : int
        Resources that states tell of; how far two are apart that differ in where a tensor comes from.
    real : (S,)
        Of the states that the candidates were made from, whether schedules stand behind them.
    chosen, row, floor, bound, pure : (most, ...)
        Left holding the candidates that states come from, the states, and whether schedules stand behind them.
    """
    width = 1 + D + L * D + queues
    whole = 1 + D + 2 * L * D + queues
    sources = L * D if queues > 0 else 0
    states = 0
    for c in np.argsort(room.bound[:count], kind="mergesort"):
        nearest, least = -1, 2 * FAR
        flat, own = room.floor[c], real[room.origin[c]]
        for r in range(states):
            rise, fall = 0, 0
            for d in range(width):
                change = floor[r, d] - flat[d]
                rise = max(rise, change)
                fall = max(fall, -change)
                if rise >= least and fall >= least:
                    break
            for d in range(whole, whole + sources):
                if row[r, d] != room.row[c, d] and (rise < least or fall < least):
                    rise, fall = max(rise, apart), max(fall, apart)
                    break
            if min(rise, fall) < least:
                least, nearest = min(rise, fall), r
                if rise == 0:
                    break
        if least == 0:
            dominated, dominates = pure[nearest], own
            for d in range(width):
                dominated = dominated and floor[nearest, d] <= flat[d]
                dominates = dominates and floor[nearest, d] >= flat[d]
            for i in range(D):
                dominates = dominates and room.row[c, 1 + i] <= bound[nearest]
            if dominated:
                continue
            if dominates:
                row[nearest], floor[nearest], bound[nearest] = room.row[c], flat, room.bound[c]
                chosen[nearest], pure[nearest] = c, True
                continue
        if states < most and (least > 0 or (pure[nearest] and own)):
            row[states], floor[states], bound[states] = room.row[c], flat, room.bound[c]
            chosen[states], pure[states] = c, own
            states += 1
        elif not drop:
            pure[nearest] = False
            for d in range(1 + D + 2 * L * D):
                row[nearest, d] = min(row[nearest, d], room.row[c, d])
            for d in range(width):
                floor[nearest, d] = min(floor[nearest, d], flat[d])
    return states
