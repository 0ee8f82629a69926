"""What keeps partial placements apart besides their loads: order, closed devices; and the names of alike devices."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import inner, kernel

__all__ = ["closed_at_cut", "enters_in_order", "in_canonical_order"]

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Small = npt.NDArray[np.int8]


@kernel
def enters_in_order(mode: int, tails: Ints, slot: int, d: int, bound: Bools, device: Small, marks: Longs) -> bool:
    """Take note of the edges from ``tails`` to the group in ``slot`` on device d; whether order allows them.

    ``marks[i]`` are the devices that device i leads to, ``marks[D + w]`` those that lead to slot w's group: under
    contiguity (mode 1) without passing a bound device, and only for groups on devices that are not bound; under
    convexity (mode 2) in any way, its own device included.
    """
    D, before = len(bound), 0
    if mode == 2:
        for w in tails:
            if bound[d] and device[w] != d and marks[D + w] >> d & 1:
                return False  # a path has left d and comes back
            before |= marks[D + w]
        marks[D + slot] = before | (1 << d if bound[d] else 0)
        return True
    for w in tails:
        e = device[w]
        if not bound[e]:
            if bound[d] and marks[D + w] >> d & 1:
                return False
            before |= marks[D + w]
        elif e != d:
            before |= 1 << e
    if not bound[d]:
        marks[D + slot] = before
        return True
    for i in range(D):
        if before >> i & 1:
            if marks[d] >> i & 1:
                return False
            follow = marks[d] | 1 << d
            for k in range(D):
                if k == i or marks[k] >> i & 1:
                    marks[k] |= follow
    return True


@kernel
def closed_at_cut(
    d: int, slot: int, bound: Bools, passes: int, parts: int, channels: int, memory: int, closed: int, used: int,
    marks: Longs, load: Floats,
) -> tuple[int, int]:  # fmt: skip
    """Close the bound devices used so far but d, that of a group on every path: only their largest entry matters."""
    D = len(bound)
    room = passes * D * parts + passes * channels
    for i in range(D):
        if i == d or not used >> i & 1 or not bound[i]:
            continue
        closed |= 1 << i
        for p in range(passes):
            peak = len(load) - passes + p
            for k in range((p * D + i) * parts, (p * D + i + 1) * parts):
                load[peak] = max(load[peak], load[k])
                load[k] = 0.0
        if memory:
            load[room + i] = 0.0
    marks[:] = 0
    if bound[d]:
        marks[D + slot] = 1 << d
    return closed, 1 << d


@kernel
def in_canonical_order(
    kind: Ints, passes: int, parts: int, channels: int, memory: int, device: Small, load: Floats, closed: int,
    used: int, marks: Longs, place: Longs,
) -> tuple[int, int]:  # fmt: skip
    """Exchange alike devices: first those of the frontier, by slot; then by what they hold; last those closed.

    ``place[i]`` becomes the new name of device i.
    """
    D, W = len(kind), len(device)
    room = passes * D * parts + passes * channels
    first = np.full(D, W, dtype=np.int64)
    for w in range(W - 1, -1, -1):
        if device[w] >= 0:
            first[device[w]] = w
    order = np.arange(D)  # the device that takes each name
    changed = False
    for x in range(1, D):
        y = x
        while y > 0:
            # The device of the next lower name of the same kind, if it should come later.
            z = y - 1
            while z >= 0 and kind[z] != kind[y]:
                z -= 1
            if z < 0 or not _later(order[z], order[y], first, closed, used, load, D, passes, parts, room, memory):
                break
            order[y], order[z] = order[z], order[y]
            changed = True
            y = z
    for x in range(D):
        place[order[x]] = x
    if not changed:
        return closed, used
    for w in range(W):
        if device[w] >= 0:
            device[w] = place[device[w]]
    before = load.copy()
    for x in range(D):
        i = order[x]
        for p in range(passes):
            for q in range(parts):
                load[(p * D + x) * parts + q] = before[(p * D + i) * parts + q]
        if memory:
            load[room + x] = before[room + i]
    if len(marks):
        rows = marks.copy()
        for x in range(D):
            marks[x] = _renamed(rows[order[x]], place)
        for w in range(W):
            marks[D + w] = _renamed(rows[D + w], place)
    return _renamed(closed, place), _renamed(used, place)


@inner
def _renamed(bits: int, place: Longs) -> int:
    found = 0
    for i in range(len(place)):
        if bits >> i & 1:
            found |= 1 << place[i]
    return found


@inner
def _later(
    i: int, j: int, first: Longs, closed: int, used: int, load: Floats, D: int, passes: int, parts: int, room: int,
    memory: int,
) -> bool:  # fmt: skip
    """Whether device i comes after device j."""
    if first[i] != first[j]:
        return bool(first[i] > first[j])
    if (closed >> i & 1) != (closed >> j & 1):
        return bool(closed >> i & 1)
    if (used >> i & 1) != (used >> j & 1):
        return bool(used >> j & 1)
    for p in range(passes):
        for q in range(parts):
            a, b = load[(p * D + i) * parts + q], load[(p * D + j) * parts + q]
            if a != b:
                return bool(a < b)
    if memory:
        return bool(load[room + i] < load[room + j])
    return False
