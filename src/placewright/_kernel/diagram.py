"""States of schedules at ideals of a network: made from those of its neighbours, in either direction.

Times are whole quanta, at most :data:`FAR`. With L tensors live at an ideal (made inside, read outside), a *forward*
state is a row of 1 + D + 2 L D numbers: the earliest start of what comes next; when each device is free; for each live
tensor and device when a reader there can start at the earliest; the same for the tensor's arrival alone. A *backward*
state has the time before the end at which what comes after the ideal starts; how long before the end each device is
needed; for each live tensor and device how long before the end it must be made there; and for each live tensor and
device how long before the end it is read there (FAR: it is not).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import inner, kernel
from placewright._kernel.queues import enqueue, pass_on

__all__ = ["FAR", "Diagram", "Room", "backward", "forward"]

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

FAR = 1 << 29
"""Later than every schedule's end; sums of three such numbers still fit 32 bits."""

FIXED_POINT = 20
"""Bits behind the point of the multipliers of loads."""


class Diagram(NamedTuple):
    """Durations in quanta, and N ideals by size, the empty one first and the whole one last.

    Rows with a pointer: what belongs to k is ``values[ptr[k]:ptr[k + 1]]``.
    """

    processing: Ints
    """(n, D)"""
    transfer: Ints
    """(T, D, D)"""
    head: Ints
    """(n, D) least time before v starts on i."""
    tail: Ints
    """(n, D) least time after v ends on i."""
    read_ptr: Ints
    read: Ints
    made_ptr: Ints
    producer: Ints
    live_ptr: Ints
    live: Ints
    """Tensors made inside an ideal and read outside, ascending."""
    in_ptr: Ints
    in_op: Ints
    in_from: Ints
    """Operators that lead to an ideal, and from which."""
    out_ptr: Ints
    out_op: Ints
    out_to: Ints
    """Operators that lead from an ideal, and to which."""
    front_ptr: Ints
    front: Ints
    """Operators outside an ideal that read a live tensor or nothing, ascending."""
    front_ready: Flags
    """Whether all that one reads is live."""
    need_ptr: Ints
    need: Ints
    need_tensor: Ints
    """Per entry of ``front`` what it reads: place of a live tensor, or -1 - place in the front of who makes it."""
    reader_ptr: Ints
    reader: Ints
    """Per entry of ``live`` the places in the front of its readers."""
    back_ptr: Ints
    back: Ints
    """Operators inside an ideal that make a live tensor or are read by nobody, descending."""
    back_ready: Flags
    """Whether all readers of one are outside."""
    use_ptr: Ints
    use: Ints
    use_tensor: Ints
    """Per entry of ``back`` who needs it: the place of its live tensor, or -1 - the place in ``back`` of a reader."""
    maker: Ints
    """Per entry of ``live`` the place in ``back`` of its producer."""
    least_below: Ints
    """(N, D) least processing plus tail on a device of an operator outside."""
    least_above: Ints
    """(N, D) least processing plus head on a device of an operator inside."""
    multiplier: Longs
    """(Y, D) rows of non-negative weights, each of sum at most 1, in fixed point."""
    load_below: Longs
    """(N, Y) sum over the operators outside of the least weighted processing time."""
    load_above: Longs
    """(N, Y) the same inside."""
    resources: Ints
    """(D, D, 4) what a transfer occupies, -1: nothing; see :mod:`placewright._kernel.queues`."""
    queues: int
    """Resources that forward states tell of, which are then schedules and not to be merged; 0: no contention."""


class Room(NamedTuple):
    """Where candidates of one ideal are put."""

    row: Ints
    """(C, W) states."""
    floor: Ints
    """(C, W) what states are compared by."""
    bound: Ints
    """(C,) no schedule through the state ends earlier."""
    origin: Longs
    """(C,) state that it was made from."""
    op: Ints
    device: Ints
    start: Ints
    """(n, D) scratch."""
    finish: Ints
    end: Ints
    slot: Ints
    """(T,) scratch, -1."""


@inner
def _joined(before: Ints, after: Ints, D: int, L: int, limit: int) -> int:
    """Least makespan of any schedule of a forward and a backward state at one ideal; stops at ``limit``.

    What comes next starts no earlier than one says and no later than the other; a device that is needed is free first;
    a tensor made on some device (both views are least there) arrives, and is read on some device.
    """
    value = before[0] + after[0]
    for i in range(D):
        if after[1 + i] > 0:
            value = max(value, before[1 + i] + after[1 + i])
    if value >= limit:
        return int(value)
    for u in range(L):
        read, made = 1 + D + u * D, 1 + D + (L + u) * D
        here, there = 2 * FAR, 2 * FAR
        for j in range(D):
            here = min(here, before[made + j] + after[read + j])
            there = min(there, before[read + j] + after[made + j])
        value = max(value, here, there)
        if value >= limit:
            break
    return int(value)


@kernel
def forward(
    g: Diagram, J: int, ptr: Longs, states: Ints, bounds: Ints, others: Longs, other: Ints, limit: int, room: Room
) -> int:
    """Make the states of ideal J from those of the ideals that lack one of its operators.

    ``states[ptr[A, 0]:ptr[A, 1]]`` are those of ideal A, ``other[others[J, 0]:others[J, 1]]`` the backward states of J
    (none at all: ``other`` is empty). Each operator starts no earlier than the one before. A state is left out when no
    schedule through it ends before ``limit``. Returns how many there are, or -1 when the room is too small.
    """
    D = g.processing.shape[1]
    row, floor, start, finish, end, slot = room.row, room.floor, room.start, room.finish, room.end, room.slot
    live0 = g.live_ptr[J]
    L = g.live_ptr[J + 1] - live0
    front0 = g.front_ptr[J]
    width = g.front_ptr[J + 1] - front0
    arrival = 1 + D + L * D
    count = 0
    for e in range(g.in_ptr[J], g.in_ptr[J + 1]):
        v, A = g.in_op[e], g.in_from[e]
        LA = g.live_ptr[A + 1] - g.live_ptr[A]
        if count + (ptr[A, 1] - ptr[A, 0]) * D > len(room.bound):
            return -1
        for k in range(LA):
            slot[g.live[g.live_ptr[A] + k]] = k
        for s in range(ptr[A, 0], ptr[A, 1]):
            old = states[s]
            for i in range(D):
                if g.processing[v, i] >= limit:
                    continue
                begun = old[1 + i]
                for k in range(g.read_ptr[v], g.read_ptr[v + 1]):
                    begun = max(begun, old[1 + D + slot[g.read[k]] * D + i])
                if g.queues > 0:
                    begun = max(begun, enqueue(g, v, i, old, slot, LA, row[count], arrival + L * D))
                over = begun + g.processing[v, i]
                low = max(over + g.tail[v, i], bounds[s])
                if low >= limit:
                    continue
                new, flat = row[count], floor[count]
                for j in range(D):
                    new[1 + j] = max(old[1 + j], begun)
                new[1 + i] = over
                for y in range(len(g.multiplier)):
                    total = g.load_below[J, y]
                    for j in range(D):
                        total += g.multiplier[y, j] * np.int64(new[1 + j])
                    low = max(low, total >> FIXED_POINT)
                if low >= limit:
                    continue
                for k in range(L):
                    u = g.live[live0 + k]
                    for j in range(D):
                        if g.producer[u] == v:
                            at = min(FAR, over + g.transfer[u, i, j])
                            new[arrival + k * D + j] = at
                        else:
                            at = old[1 + D + slot[u] * D + j]
                            new[arrival + k * D + j] = old[1 + D + (LA + slot[u]) * D + j]
                        new[1 + D + k * D + j] = max(at, new[1 + j])
                if g.queues > 0:
                    pass_on(g, v, i, old, slot, LA, new, flat, live0, L)
                # When the front could start, finish, and all be over.
                following, soonest = FAR, FAR
                for x in range(width):
                    r = g.front[front0 + x]
                    best = 2 * FAR
                    for j in range(D):
                        at = max(new[1 + j], g.head[r, j])
                        for k in range(g.need_ptr[front0 + x], g.need_ptr[front0 + x + 1]):
                            z = g.need[k]
                            if z >= 0:
                                at = max(at, new[1 + D + z * D + j])
                            else:
                                from_front = FAR
                                for h in range(D):
                                    from_front = min(from_front, finish[-1 - z, h] + g.transfer[g.need_tensor[k], h, j])
                                at = max(at, from_front)
                        start[x, j] = min(at, FAR)
                        finish[x, j] = start[x, j] + g.processing[r, j]
                        end[x, j] = finish[x, j] + g.tail[r, j]
                        best = min(best, end[x, j])
                        soonest = min(soonest, finish[x, j])
                        if g.front_ready[front0 + x]:
                            following = min(following, start[x, j])
                    low = max(low, best)
                    if low >= limit:
                        break
                if low >= limit:
                    continue
                new[0] = following if width > 0 else begun
                flat[0] = new[0]
                for j in range(D):
                    if width > 0:
                        new[1 + j] = max(new[1 + j], following)
                    free = soonest
                    for x in range(width):
                        free = min(free, start[x, j])
                    flat[1 + j] = min(max(free, new[1 + j]), max(0, limit - g.least_below[J, j]))
                    if width == 0:
                        flat[1 + j] = new[1 + j]
                for k in range(L):
                    for j in range(D):
                        begins, ends = FAR, 2 * FAR
                        for z in range(g.reader_ptr[live0 + k], g.reader_ptr[live0 + k + 1]):
                            begins = min(begins, start[g.reader[z], j])
                            ends = min(ends, end[g.reader[z], j])
                        at = FAR if ends >= limit else max(begins, new[1 + D + k * D + j])
                        new[1 + D + k * D + j] = at
                        flat[1 + D + k * D + j] = at
                if len(other) > 0:
                    best = 2 * FAR
                    for b in range(others[J, 0], others[J, 1]):
                        best = min(best, _joined(new, other[b], D, L, best))
                        if best <= low:
                            break
                    low = max(low, best)
                    if low >= limit:
                        continue
                room.bound[count], room.origin[count], room.op[count], room.device[count] = low, s, v, i
                count += 1
        for k in range(LA):
            slot[g.live[g.live_ptr[A] + k]] = -1
    return count


@kernel
def backward(
    g: Diagram, A: int, ptr: Longs, states: Ints, bounds: Ints, others: Longs, other: Ints, limit: int, room: Room
) -> int:
    """Make the backward states of ideal A from those of the ideals that have one more operator; see :func:`forward`."""
    D = g.processing.shape[1]
    row, floor, start, finish, end, slot = room.row, room.floor, room.start, room.finish, room.end, room.slot
    live0 = g.live_ptr[A]
    L = g.live_ptr[A + 1] - live0
    back0 = g.back_ptr[A]
    width = g.back_ptr[A + 1] - back0
    reading = 1 + D + L * D
    count = 0
    for e in range(g.out_ptr[A], g.out_ptr[A + 1]):
        v, J = g.out_op[e], g.out_to[e]
        LJ = g.live_ptr[J + 1] - g.live_ptr[J]
        if count + (ptr[J, 1] - ptr[J, 0]) * D > len(room.bound):
            return -1
        for k in range(LJ):
            slot[g.live[g.live_ptr[J] + k]] = k
        for s in range(ptr[J, 0], ptr[J, 1]):
            old = states[s]
            for i in range(D):
                if g.processing[v, i] >= limit:
                    continue
                after = old[1 + i]
                for u in range(g.made_ptr[v], g.made_ptr[v + 1]):
                    if slot[u] >= 0:
                        after = max(after, old[1 + D + slot[u] * D + i])
                before = max(old[0], after + g.processing[v, i])
                low = max(before + g.head[v, i], bounds[s])
                if low >= limit:
                    continue
                new, flat = row[count], floor[count]
                new[0] = before
                for j in range(D):
                    new[1 + j] = old[1 + j]
                new[1 + i] = before
                for y in range(len(g.multiplier)):
                    total = g.load_above[A, y]
                    for j in range(D):
                        total += g.multiplier[y, j] * np.int64(new[1 + j])
                    low = max(low, total >> FIXED_POINT)
                if low >= limit:
                    continue
                for k in range(L):
                    u = g.live[live0 + k]
                    reads = False
                    for z in range(g.read_ptr[v], g.read_ptr[v + 1]):
                        reads = reads or g.read[z] == u
                    for j in range(D):
                        at, known = 0, FAR
                        if slot[u] >= 0:
                            at = old[1 + D + slot[u] * D + j]
                            known = old[1 + D + (LJ + slot[u]) * D + j]
                        if reads:
                            at = max(at, before + g.transfer[u, j, i])
                            if j == i:
                                known = before
                        new[1 + D + k * D + j] = min(at, FAR)
                        new[reading + k * D + j] = known
                following, soonest = FAR, FAR
                for x in range(width):
                    y = g.back[back0 + x]
                    best = 2 * FAR
                    for j in range(D):
                        at = max(new[1 + j], g.tail[y, j])
                        for k in range(g.use_ptr[back0 + x], g.use_ptr[back0 + x + 1]):
                            z = g.use[k]
                            if z >= 0:
                                at = max(at, new[1 + D + z * D + j])
                            else:
                                from_back = FAR
                                for h in range(D):
                                    from_back = min(from_back, finish[-1 - z, h] + g.transfer[g.use_tensor[k], j, h])
                                at = max(at, from_back)
                        start[x, j] = min(at, FAR)
                        finish[x, j] = max(start[x, j] + g.processing[y, j], before)
                        end[x, j] = finish[x, j] + g.head[y, j]
                        best = min(best, end[x, j])
                        soonest = min(soonest, finish[x, j])
                        if g.back_ready[back0 + x]:
                            following = min(following, finish[x, j])
                    low = max(low, best)
                    if low >= limit:
                        break
                if low >= limit:
                    continue
                flat[0] = following if width > 0 else before
                for j in range(D):
                    needed = soonest
                    for x in range(width):
                        needed = min(needed, start[x, j])
                    flat[1 + j] = min(max(needed, new[1 + j]), max(0, limit - g.least_above[A, j]))
                    if width == 0:
                        flat[1 + j] = new[1 + j]
                for k in range(L):
                    x = g.maker[live0 + k]
                    for j in range(D):
                        at = FAR if end[x, j] >= limit else start[x, j]
                        new[1 + D + k * D + j] = at
                        flat[1 + D + k * D + j] = at
                if len(other) > 0:
                    best = 2 * FAR
                    for b in range(others[A, 0], others[A, 1]):
                        best = min(best, _joined(other[b], new, D, L, best))
                        if best <= low:
                            break
                    low = max(low, best)
                    if low >= limit:
                        continue
                room.bound[count], room.origin[count], room.op[count], room.device[count] = low, s, v, i
                count += 1
        for k in range(LJ):
            slot[g.live[g.live_ptr[J] + k]] = -1
    return count
