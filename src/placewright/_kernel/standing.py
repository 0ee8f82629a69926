"""A schedule that is kept up while operators change device and place: only what a change reaches is timed again.

A change is timed from the first position in the order that it touches; behind the last one it is rejected as soon as a
finish plus the longest way to the end, which is known exactly, is too late, and its timing ends where devices and
resources are free as they were before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import uncounted
from placewright._kernel.schedule import Network

__all__ = ["Standing", "free_before", "retime", "revert", "standing"]

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

SLACK = 1e-12
"""Relative, for sums taken in another order than the schedule takes them."""


class Standing(NamedTuple):
    """A placement, an order and their schedule, with what is needed to time changes: changed in place.

    D devices and R resources share arrays of D + R entries. Blocks are runs of ``block`` positions.
    """

    device: Ints
    """(n,)"""
    order: Ints
    """(n,) topological."""
    position: Ints
    """(n,) its inverse."""
    eager: npt.NDArray[np.bool_]
    """(T,) a transfer of u joins the queues of its resources when u is made, else with its first reader there."""
    start: Floats
    """(n,)"""
    finish: Floats
    """(n,)"""
    span: Floats
    """(n,) seconds on the device, cuts included."""
    tail: Floats
    """(n,) seconds from the finish of v to the end along the longest way through tensors, devices and resources."""
    sent: Floats
    """(T, D)"""
    arrival: Floats
    """(T, D)"""
    asked_by: Ints
    """(T, D) the first reader on the device, where u is not eager and comes from elsewhere."""
    behind: Floats
    """(T, D) seconds from the start of a transfer to the end."""
    readers_on: Ints
    """(T, D)"""
    away_in: Ints
    """(n,) reads from other devices."""
    away_out: Ints
    """(n,) reads of its tensors on other devices."""
    resident: Floats
    """(D,) bytes of weights and KV cache."""
    present: Floats
    """(D,) bytes of all tensors that are there at some time."""
    free: Floats
    """(D + R,) scratch: when each is free at the position that is timed."""
    marks: Floats
    """(2, blocks + 1, D + R) when each is free before the block, in the schedule that holds and in the one on trial."""
    holds: Ints
    """(blocks + 1,) which of the two holds."""
    ahead: Floats
    """(blocks + 1, D + R) seconds from the next start on each, from the block on, to the end; -1: none."""
    ended: Floats
    """(D,) last finish on each device."""
    kept: Floats
    """(3, n) start, finish and span before the trial."""
    kept_transfer: Ints
    """(3, E) tensor, target and ``asked_by`` of transfers that the trial changed."""
    kept_times: Floats
    """(2, E) when they were sent and arrived."""
    seen: Ints
    """(D + 1,) scratch: marks of devices, and the last mark given."""
    found: Ints
    """(D,) scratch."""
    most: Floats
    """(D,) scratch."""
    trial: npt.NDArray[np.int64]
    """(4,) first position timed, the one behind the last, transfers kept, last block marked."""
    reach: npt.NDArray[np.int64]
    """(4,) of the change: first and last position that it touches; lowest position whose tail it may change; number."""
    moved: npt.NDArray[np.int64]
    """(n,) number of the last change that put the operator on another device."""
    block: int


def standing(g: Network, device: Ints, order: Ints, eager: npt.NDArray[np.bool_]) -> Standing:
    """Make the arrays; :func:`rebuild` fills them."""
    n, D = g.processing.shape
    T, E, entries = len(g.producer), len(g.read), D + max(1, g.n_resources)
    block = int(max(16, np.sqrt(n), entries / 40))
    blocks = -(-n // block)
    position = np.empty(n, dtype=np.int32)
    position[order] = np.arange(n, dtype=np.int32)
    return Standing(
        np.array(device, dtype=np.int32),
        np.array(order, dtype=np.int32),
        position,
        np.array(eager, dtype=np.bool_),
        np.zeros(n),
        np.zeros(n),
        np.zeros(n),
        np.zeros(n),
        np.zeros((T, D)),
        np.zeros((T, D)),
        np.full((T, D), -1, dtype=np.int32),
        np.zeros((T, D)),
        np.zeros((T, D), dtype=np.int32),
        np.zeros(n, dtype=np.int32),
        np.zeros(n, dtype=np.int32),
        np.zeros(D),
        np.zeros(D),
        np.zeros(entries),
        np.zeros((2, blocks + 1, entries)),
        np.zeros(blocks + 1, dtype=np.int32),
        np.full((blocks + 1, entries), -1.0),
        np.zeros(D),
        np.zeros((3, n)),
        np.zeros((3, max(1, E)), dtype=np.int32),
        np.zeros((2, max(1, E))),
        np.zeros(D + 1, dtype=np.int32),
        np.zeros(D, dtype=np.int32),
        np.zeros(D),
        np.zeros(4, dtype=np.int64),
        np.zeros(4, dtype=np.int64),
        np.full(n, -1, dtype=np.int64),
        block,
    )


@uncounted
def free_before(g: Network, c: Standing, first: int) -> None:
    """Let ``free`` say what is free when, before the position ``first`` of the schedule that holds."""
    read_ptr, read, reader_ptr, reader, made_ptr = g.read_ptr, g.read, g.reader_ptr, g.reader, g.made_ptr
    producer, resources, free, finish, arrival = g.producer, g.resources, c.free, c.finish, c.arrival
    device, order, eager, asked_by = c.device, c.order, c.eager, c.asked_by
    size, latency, per_byte, transfer = g.size, g.latency, g.per_byte, g.transfer
    tables = transfer.shape[0] > 0
    D = len(c.ended)
    k0 = first // c.block
    for z in range(len(free)):
        free[z] = c.marks[c.holds[k0], k0, z]
    queues = g.n_resources > 0
    for q in range(k0 * c.block, first):
        v = order[q]
        i = device[v]
        free[i] = finish[v]
        if not queues:
            continue
        if c.away_in[v] > 0:
            for k in range(read_ptr[v], read_ptr[v + 1]):
                u = read[k]
                j = device[producer[u]]
                if j != i and not eager[u] and asked_by[u, i] == v:
                    e = transfer[u, j, i] if tables else latency[j, i] + size[u] * per_byte[j, i]
                    for m in range(4):
                        r = resources[j, i, m]
                        if r >= 0 and e > 0.0:
                            free[D + r] = arrival[u, i]
        if c.away_out[v] > 0:
            for u in range(made_ptr[v], made_ptr[v + 1]):
                if eager[u]:
                    for k in range(reader_ptr[u], reader_ptr[u + 1]):
                        j = device[reader[k]]
                        if j != i:
                            e = transfer[u, i, j] if tables else latency[i, j] + size[u] * per_byte[i, j]
                            for m in range(4):
                                r = resources[i, j, m]
                                if r >= 0 and e > 0.0:  # a device that is named again changes nothing
                                    free[D + r] = max(free[D + r], arrival[u, j])


@uncounted
def retime(g: Network, c: Standing, limit: float, low_tail: Floats) -> float:
    """Makespan after a change; :func:`commit` or :func:`revert` must follow.

    The first two numbers of ``reach`` are positions between which everything lies that takes another time on its
    device, asks for other transfers, or stands elsewhere in the order.

    Parameters
    ----------
    limit : float
        Return ``inf`` as soon as the makespan can't be at or below it.
    low_tail : (n,)
        Seconds that must pass after v finishes, whatever is decided.
    """
    # Local names: reading arrays out of the tuples inside the loops is three times as slow.
    made_ptr, read_ptr, read, reader_ptr, reader = g.made_ptr, g.read_ptr, g.read, g.reader_ptr, g.reader
    producer, processing, cut, resources = g.producer, g.processing, g.cut, g.resources
    size, latency, per_byte, transfer = g.size, g.latency, g.per_byte, g.transfer
    device, order, position, eager = c.device, c.order, c.position, c.eager
    start, finish, span, tail, sent, arrival = c.start, c.finish, c.span, c.tail, c.sent, c.arrival
    asked_by, away_in, away_out, free, ended = c.asked_by, c.away_in, c.away_out, c.free, c.ended
    kept, kept_transfer, kept_times, seen = c.kept, c.kept_transfer, c.kept_times, c.seen
    tables = transfer.shape[0] > 0
    n, D = processing.shape
    block = c.block
    loose = limit * (1.0 + SLACK)
    first, last = c.reach[0], c.reach[1]
    free_before(g, c, first)
    horizon = last
    count = 0
    trial = c.trial
    trial[0], trial[2], trial[3] = first, 0, -1
    for q in range(first, n):
        if q % block == 0 and q > first:
            k = q // block
            if q > last:
                same = q > horizon
                for z in range(len(free)):
                    rest = c.ahead[k, z]
                    if rest >= 0.0:
                        if free[z] + rest > loose:
                            trial[1], trial[2] = q, count
                            return np.inf
                        if free[z] != c.marks[c.holds[k], k, z]:
                            same = False
                if same:
                    trial[1], trial[2] = q, count
                    makespan = 0.0
                    for i in range(D):
                        makespan = max(makespan, free[i] if c.ahead[k, i] < 0.0 else ended[i])
                    return makespan if makespan <= limit else np.inf
            for z in range(len(free)):
                c.marks[1 - c.holds[k], k, z] = free[z]
            trial[3] = k
        v = order[q]
        i = device[v]
        ready = free[i]
        overhead = 0.0
        if away_in[v] > 0:
            overhead = cut[v, i]
        for k in range(read_ptr[v], read_ptr[v + 1]):
            u = read[k]
            x = producer[u]
            at = finish[x]
            j = device[x]
            if j != i:
                if not eager[u]:
                    y = asked_by[u, i]
                    if y < 0 or device[y] != i or position[y] >= q:
                        e = transfer[u, j, i] if tables else latency[j, i] + size[u] * per_byte[j, i]
                        if e > 0.0:
                            for m in range(4):
                                r = resources[j, i, m]
                                if r >= 0:
                                    at = max(at, free[D + r])
                            for m in range(4):
                                r = resources[j, i, m]
                                if r >= 0:
                                    free[D + r] = at + e
                        kept_transfer[0, count], kept_transfer[1, count], kept_transfer[2, count] = u, i, y
                        kept_times[0, count], kept_times[1, count] = sent[u, i], arrival[u, i]
                        count += 1
                        if at + e != arrival[u, i]:
                            for m in range(reader_ptr[u], reader_ptr[u + 1]):
                                horizon = max(horizon, position[reader[m]])
                        sent[u, i] = at
                        arrival[u, i] = at + e
                        asked_by[u, i] = v
                at = arrival[u, i]
            ready = max(ready, at)
        if away_out[v] > 0:
            overhead += cut[v, i]
        lasting = processing[v, i] + overhead
        end = ready + lasting
        kept[0, v], kept[1, v], kept[2, v] = start[v], finish[v], span[v]
        rest = tail[v] if q > last else low_tail[v]
        if end + rest > loose:
            trial[1], trial[2] = q + 1, count
            return np.inf
        moved = end != finish[v]
        start[v], finish[v], span[v] = ready, end, lasting
        free[i] = end
        if moved or away_out[v] > 0:
            for u in range(made_ptr[v], made_ptr[v + 1]):
                hurry = eager[u] and away_out[v] > 0
                if not moved and not hurry:
                    continue
                seen[D] += 1
                for k in range(reader_ptr[u], reader_ptr[u + 1]):
                    x = reader[k]
                    if moved:
                        horizon = max(horizon, position[x])
                    j = device[x]
                    if hurry and j != i and seen[j] != seen[D]:
                        seen[j] = seen[D]
                        at = end
                        e = transfer[u, i, j] if tables else latency[i, j] + size[u] * per_byte[i, j]
                        if e > 0.0:
                            for m in range(4):
                                r = resources[i, j, m]
                                if r >= 0:
                                    at = max(at, free[D + r])
                            for m in range(4):
                                r = resources[i, j, m]
                                if r >= 0:
                                    free[D + r] = at + e
                        kept_transfer[0, count], kept_transfer[1, count] = u, j
                        kept_transfer[2, count] = asked_by[u, j]
                        kept_times[0, count], kept_times[1, count] = sent[u, j], arrival[u, j]
                        count += 1
                        if at + e != arrival[u, j]:
                            for m in range(reader_ptr[u], reader_ptr[u + 1]):
                                horizon = max(horizon, position[reader[m]])
                        sent[u, j] = at
                        arrival[u, j] = at + e
    trial[1], trial[2] = n, count
    makespan = 0.0
    for i in range(D):
        makespan = max(makespan, free[i])
    return makespan if makespan <= limit else np.inf


@uncounted
def revert(c: Standing) -> None:
    """Forget the times of a trial; devices and order are the caller's to put back, the order only after this."""
    for q in range(c.trial[0], c.trial[1]):
        v = c.order[q]
        c.start[v], c.finish[v], c.span[v] = c.kept[0, v], c.kept[1, v], c.kept[2, v]
    for k in range(c.trial[2] - 1, -1, -1):
        u, j = c.kept_transfer[0, k], c.kept_transfer[1, k]
        c.asked_by[u, j] = c.kept_transfer[2, k]
        c.sent[u, j], c.arrival[u, j] = c.kept_times[0, k], c.kept_times[1, k]
