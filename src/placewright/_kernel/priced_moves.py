"""Descent on the priced loads of one placement: units moved in runs between two devices, as far as that pays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import inner, kernel

__all__ = ["PricedNetwork", "descend_priced"]

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class PricedNetwork(NamedTuple):
    """Units, messages between them, and what they cost at given prices.

    Attributes
    ----------
    unit : (U, D) float64
        Cost of a unit on a device, ``inf`` where it may not run.
    enter, leave : (M, D, D) float64
        Cost of message m that goes from row to column: added over its targets, and the largest of them.
    producer, made_ptr, reader_ptr, reader, read_ptr, read : int32 arrays
        As in :class:`placewright.loads.Loads`.
    tail, head : (E,) int32
        Edges along which devices must have an order; none where that does not matter.
    edge_ptr, edge : (U+1,), (.) int32
        Edges of each unit.
    """

    unit: Floats
    enter: Floats
    leave: Floats
    producer: Ints
    made_ptr: Ints
    reader_ptr: Ints
    reader: Ints
    read_ptr: Ints
    read: Ints
    tail: Ints
    head: Ints
    edge_ptr: Ints
    edge: Ints


@inner
def _message(g: PricedNetwork, m: int, device: Ints, seen: Bools) -> float:
    source, total, most = device[g.producer[m]], 0.0, 0.0
    seen[:] = False
    for x in range(g.reader_ptr[m], g.reader_ptr[m + 1]):
        j = device[g.reader[x]]
        if j != source and not seen[j]:
            seen[j] = True
            total += g.enter[m, source, j]
            most = max(most, g.leave[m, source, j])
    return float(total + most)


@inner
def _around(g: PricedNetwork, k: int, device: Ints, seen: Bools) -> float:
    """Cost of a unit and of the messages that it sends and reads."""
    total = g.unit[k, device[k]]
    for m in range(g.made_ptr[k], g.made_ptr[k + 1]):
        total += _message(g, m, device, seen)
    for x in range(g.read_ptr[k], g.read_ptr[k + 1]):
        total += _message(g, g.read[x], device, seen)
    return float(total)


@inner
def _put(g: PricedNetwork, k: int, to: int, device: Ints, between: Ints) -> None:
    """Move a unit, and count the edges between devices anew."""
    for step in (-1, 1):
        for x in range(g.edge_ptr[k], g.edge_ptr[k + 1]):
            e = g.edge[x]
            between[device[g.tail[e]], device[g.head[e]]] += step
        if step < 0:
            device[k] = to


@inner
def _ordered(between: Ints, waiting: Ints) -> bool:
    """Whether devices have an order along which all edges go."""
    D = between.shape[0]
    waiting[:] = 0
    for i in range(D):
        for j in range(D):
            if i != j and between[i, j] > 0:
                waiting[j] += 1
    left = D
    moved = True
    while moved and left > 0:
        moved = False
        for i in range(D):
            if waiting[i] == 0:
                waiting[i] = -1
                left -= 1
                moved = True
                for j in range(D):
                    if i != j and between[i, j] > 0:
                        waiting[j] -= 1
    return bool(left == 0)


@kernel
def descend_priced(g: PricedNetwork, device: Ints, rounds: int) -> float:
    """Move runs of units from one device to another while the cost falls; how much it fell.

    For each two devices, and both directions along the order of the units, units of the first go to the second one
    after the other; the run that leaves the least cost, and an order of the devices, is kept. Then single units, each
    to its best device. O(pairs of devices x units x messages of a unit x readers) a round.
    """
    U, D = g.unit.shape
    seen, between, waiting = np.zeros(D, dtype=np.bool_), np.zeros((D, D), dtype=np.int32), np.zeros(D, dtype=np.int32)
    for e in range(len(g.tail)):
        between[device[g.tail[e]], device[g.head[e]]] += 1
    scale = 0.0
    for k in range(U):
        scale += g.unit[k, device[k]]
    step = 1e-12 * scale
    moved, fell = np.empty(U, dtype=np.int32), 0.0
    for _ in range(rounds):
        before = fell
        for a in range(D):
            for b in range(D):
                if a == b:
                    continue
                for direction in range(2):
                    n, kept, gain, best = 0, 0, 0.0, step
                    for x in range(U):
                        k = x if direction == 0 else U - 1 - x
                        if device[k] != a:
                            continue
                        if not np.isfinite(g.unit[k, b]):
                            break
                        gain += _around(g, k, device, seen)
                        _put(g, k, b, device, between)
                        gain -= _around(g, k, device, seen)
                        moved[n] = k
                        n += 1
                        if not gain > -np.inf:
                            break
                        if gain > best and _ordered(between, waiting):
                            kept, best = n, gain
                    for x in range(n - 1, kept - 1, -1):
                        _put(g, moved[x], a, device, between)
                    if kept > 0:
                        fell += best
        for k in range(U):
            source, target, best = device[k], -1, step
            now = _around(g, k, device, seen)
            for b in range(D):
                if b == source or not np.isfinite(g.unit[k, b]):
                    continue
                _put(g, k, b, device, between)
                gain = now - _around(g, k, device, seen)
                if gain > best and _ordered(between, waiting):
                    target, best = b, gain
                _put(g, k, source, device, between)
            if target >= 0:
                _put(g, k, target, device, between)
                fell += best
        if not fell > before:
            break
    return fell
