"""Vectors of loads along an order of groups: what the rest costs at least, and which vectors can be reached."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import inner, kernel
from placewright._kernel.load_order import closed_at_cut, enters_in_order, in_canonical_order

__all__ = ["LoadSteps", "Vectors", "cheapest", "cost_to_go", "extend", "new_vectors"]

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Small = npt.NDArray[np.int8]

SLACK = 1e-12
"""Relative; what sums may be wrong by where a vector is passed over. Bounds are lowered by far more at the end."""


class LoadSteps(NamedTuple):
    """G groups in the order in which they are placed, M messages in the order in which their last end is.

    A vector of loads has, for each pass and device, ``parts`` entries (what it is busy with; beside it what links
    carry, in and out together or apart), then one for each pass and channel, then the memory of each device if
    ``memory``, and at its end, for each pass, the largest entry of devices that are closed. The *frontier* at a step
    are the groups placed so far that a later message needs; each has a slot while it is there.
    """

    mode: int
    """0: any placement will do; 1: contiguous; 2: convex."""
    parts: int
    busy_share: float
    """Part of the transfers that devices are busy with."""
    memory: int
    channels: int
    compute: Floats
    """(G, P, D), ``inf`` where the group may not be."""
    held: Floats
    capacity: Floats
    slot: Ints
    """(G,) of the group that a step places."""
    occupied_ptr: Ints
    """(G+2,) slots in use before step t are ``occupied[occupied_ptr[t]:occupied_ptr[t+1]]``, ascending."""
    occupied: Ints
    free_ptr: Ints
    free: Ints
    done_ptr: Ints
    """(G+1,) messages whose last end step t places."""
    sender: Ints
    """(M,) slot."""
    reader_ptr: Ints
    reader: Ints
    phase: Ints
    leave: Floats
    """(M, D, D) what row's device pays to send to column's, ``inf`` without a link."""
    enter: Floats
    wire: Floats
    """(M, D, D) for the channels, or empty."""
    channel_of: Ints
    tail_ptr: Ints
    tail: Ints
    """Slots of the groups before step t's by an order edge."""
    closes: Bools
    """(G,) whether every path passes the group, so that devices used before it, other than its own, are closed."""
    bound: Bools
    kind: Ints
    """(D,) devices of one kind can be exchanged."""


class Vectors(NamedTuple):
    """N partial placements, each seen up to exchanges of alike devices."""

    device: Small
    """(N, W) by slot, -1: not in use."""
    load: Floats
    """(N, K)"""
    closed: Longs
    """(N,) bits of devices that can't be used any more."""
    used: Longs
    marks: Longs
    """(N, D + W) or (N, 0): devices that each device leads to, and that lead to each slot's group."""
    priced: Floats
    """(N, L) what the loads of devices that are open cost at least, at each of L prices."""
    loose: Bools
    """(N,) whether it is merged, so that its loads may cost less than what it stands for."""


@kernel
def new_vectors(n: int, slots: int, entries: int, marks: int, prices: int) -> Vectors:
    """Empty placements."""
    return Vectors(
        np.full((n, slots), -1, dtype=np.int8),
        np.zeros((n, entries)),
        np.zeros(n, dtype=np.int64),
        np.zeros(n, dtype=np.int64),
        np.zeros((n, marks), dtype=np.int64),
        np.zeros((n, prices)),
        np.zeros(n, dtype=np.bool_),
    )


@inner
def _code(s: LoadSteps, t: int, device: Small) -> int:
    """Give a state before step t its number."""
    D, code = s.compute.shape[2], 0
    for x in range(s.occupied_ptr[t + 1] - 1, s.occupied_ptr[t] - 1, -1):
        code = code * D + device[s.occupied[x]]
    return code


@inner
def _send(s: LoadSteps, u: int, device: Small, load: Floats) -> bool:
    """Add what message u costs to ``load``; whether there are the links for it."""
    D, Q = s.compute.shape[2], s.parts
    P, p, i = s.compute.shape[1], s.phase[u], device[s.sender[u]]
    first, longest = s.reader_ptr[u], 0.0
    for x in range(first, s.reader_ptr[u + 1]):
        j = device[s.reader[x]]
        known = j == i
        for y in range(first, x):
            if device[s.reader[y]] == j:
                known = True
        if known:
            continue
        if s.leave[u, i, j] == np.inf:
            return False
        longest = max(longest, s.leave[u, i, j])
        load[(p * D + j) * Q + min(Q - 1, 1)] += s.enter[u, i, j]
        if Q > 1:
            load[(p * D + j) * Q] += s.busy_share * s.enter[u, i, j]
        if len(s.wire):
            for c in s.channel_of[i, j]:
                if c >= 0:
                    load[P * D * Q + p * s.channels + c] += s.wire[u, i, j]
    load[(p * D + i) * Q + Q - 1] += longest
    if Q > 1:
        load[(p * D + i) * Q] += s.busy_share * longest
    return True


@inner
def _place(s: LoadSteps, t: int, d: int, device: Small, load: Floats) -> bool:
    """Place step t's group on d, and add what that costs; whether it can be there."""
    D, Q, P = s.compute.shape[2], s.parts, s.compute.shape[1]
    if s.compute[t, 0, d] == np.inf:
        return False
    device[s.slot[t]] = d
    for p in range(P):
        load[(p * D + d) * Q] += s.compute[t, p, d]
    if s.memory:
        load[P * D * Q + P * s.channels + d] += s.held[t]
    there = True
    for u in range(s.done_ptr[t], s.done_ptr[t + 1]):
        there = there and _send(s, u, device, load)
    return there


@inner
def _decode(s: LoadSteps, t: int, code: int, device: Small) -> None:
    D = s.compute.shape[2]
    for x in range(s.occupied_ptr[t], s.occupied_ptr[t + 1]):
        device[s.occupied[x]] = code % D
        code //= D


@kernel
def cost_to_go(s: LoadSteps, price: Floats, at: Longs, table: Floats, begin: int, end: int) -> None:
    """Least price of what steps from t on add, by the state before step t: ``table[at[t] + code]``, t in begin..end-1.

    ``table`` holds step ``end``'s values already. Bucket elimination: each step tries all states and devices.
    """
    D, W = s.compute.shape[2], int(s.slot.max()) + 1
    device, load = np.full(W, -1, dtype=np.int8), np.zeros(len(price))
    for t in range(end - 1, begin - 1, -1):
        states = D ** (s.occupied_ptr[t + 1] - s.occupied_ptr[t])
        for code in range(states):
            _decode(s, t, code, device)
            best = np.inf
            for d in range(D):
                load[:] = 0.0
                if not _place(s, t, d, device, load):
                    continue
                cost = table[at[t + 1] + _code(s, t + 1, device)]
                for k in range(len(price)):
                    cost += price[k] * load[k]
                best = min(best, cost)
            table[at[t] + code] = best


@kernel
def cheapest(s: LoadSteps, price: Floats, at: Longs, table: Floats, place: Ints) -> Floats:
    """Give in ``place`` a placement of least price, and return its loads."""
    G, D, W = s.compute.shape[0], s.compute.shape[2], int(s.slot.max()) + 1
    device, load, added = np.full(W, -1, dtype=np.int8), np.zeros(len(price)), np.zeros(len(price))
    for t in range(G):
        best, chosen = np.inf, -1
        for d in range(D):
            added[:] = 0.0
            if not _place(s, t, d, device, added):
                continue
            cost = table[at[t + 1] + _code(s, t + 1, device)]
            for k in range(len(price)):
                cost += price[k] * added[k]
            if cost < best:
                best, chosen = cost, d
        if chosen < 0:
            place[:] = -1
            return load
        place[t] = chosen
        _place(s, t, chosen, device, load)
    return load


@inner
def _too_much(s: LoadSteps, load: Floats, limit: float) -> bool:
    """Whether a partial placement exceeds the limit, or a memory, by itself."""
    D, Q, P = s.compute.shape[2], s.parts, s.compute.shape[1]
    wires = P * D * Q
    room = wires + P * s.channels
    value = 0.0
    for p in range(P):
        peak = load[len(load) - P + p]
        for k in range(p * D * Q, (p + 1) * D * Q):
            peak = max(peak, load[k])
        for k in range(wires + p * s.channels, wires + (p + 1) * s.channels):
            peak = max(peak, load[k])
        value += peak
    if value > limit:
        return True
    if s.memory:
        for i in range(D):
            if load[room + i] > s.capacity[i]:
                return True
    return False


@inner
def _cost(price: Floats, load: Floats) -> float:
    cost = 0.0
    for k in range(len(price)):
        cost += price[k] * load[k]
    return cost


@inner
def _most(s: LoadSteps, price: Floats, closed: int, limit: float) -> float:
    """Price what open devices, channels and memories take at most within the limit: docs/max-load-modules.md."""
    D, Q, P = s.compute.shape[2], s.parts, s.compute.shape[1]
    wires = P * D * Q
    room = wires + P * s.channels
    most, memory = 0.0, 0.0
    for p in range(P):
        worth = 0.0
        for i in range(D):
            if not closed >> i & 1:
                for k in range((p * D + i) * Q, (p * D + i + 1) * Q):
                    worth += price[k]
        for k in range(wires + p * s.channels, wires + (p + 1) * s.channels):
            worth += price[k]
        most = max(most, worth)
    if s.memory:
        for i in range(D):
            if price[room + i] > 0.0 and not closed >> i & 1:
                memory += price[room + i] * s.capacity[i]
    return (limit * most + memory) * (1.0 + SLACK)


@kernel
def extend(
    s: LoadSteps,
    t: int,
    old: Vectors,
    prices: Floats,
    at: Longs,
    tables: Floats,
    limit: float,
    new: Vectors,
    parent: Ints,
    choice: Small,
    moved: Longs,
    key: Longs,
    score: Floats,
) -> int:
    """Place step t's group on every device after every old vector; return how many new ones may end within the limit.

    For each new vector ``parent`` and ``choice`` say where it comes from (the device as the old one calls it), four
    bits a device in ``moved`` what each device is called now, ``key`` its state and ``score`` what it costs at least
    by the first prices.
    """
    D = s.compute.shape[2]
    n, place, before = 0, np.zeros(D, dtype=np.int64), np.zeros(len(prices))
    most, most_of = np.zeros(len(prices)), np.full(len(prices), -1, dtype=np.int64)  # for the devices closed last
    for x in range(len(old.load)):
        for k in range(len(prices)):
            before[k] = _cost(prices[k], old.load[x])
        for d in range(D):
            if old.closed[x] >> d & 1:
                continue
            if n >= len(parent):
                return -1
            new.device[n], new.load[n], new.marks[n] = old.device[x], old.load[x], old.marks[x]
            new.closed[n], new.used[n] = old.closed[x], old.used[x] | (1 << d if s.mode else 0)
            device, load = new.device[n], new.load[n]
            if not _place(s, t, d, device, load) or _too_much(s, load, limit):
                continue
            first, last = s.tail_ptr[t], s.tail_ptr[t + 1]
            if s.mode and not enters_in_order(s.mode, s.tail[first:last], s.slot[t], d, s.bound, device, new.marks[n]):
                continue
            new.loose[n] = old.loose[x]
            closed = new.closed[n]
            if s.closes[t] and s.mode:
                new.closed[n], new.used[n] = closed_at_cut(
                    d, s.slot[t], s.bound, s.compute.shape[1], s.parts, s.channels, s.memory, new.closed[n],
                    new.used[n], new.marks[n], load,
                )  # fmt: skip
            for y in range(s.free_ptr[t], s.free_ptr[t + 1]):
                device[s.free[y]] = -1
                if s.mode:
                    new.marks[n, D + s.free[y]] = 0
            code = _code(s, t + 1, device)
            over = False
            for k in range(len(prices)):
                rest, cost = tables[k, at[t + 1] + code], _cost(prices[k], load)
                if old.loose[x] and new.closed[n] == closed:
                    cost = max(cost, old.priced[x, k] + (cost - before[k]))
                new.priced[n, k] = cost
                if most_of[k] != new.closed[n]:
                    most_of[k], most[k] = new.closed[n], _most(s, prices[k], new.closed[n], limit)
                if rest == np.inf or cost + rest > most[k]:
                    over = True
                    break
            if over:
                continue
            score[n] = new.priced[n, 0] + tables[0, at[t + 1] + code]
            new.closed[n], new.used[n] = in_canonical_order(
                s.kind, s.compute.shape[1], s.parts, s.channels, s.memory, device, load, new.closed[n], new.used[n],
                new.marks[n], place,
            )  # fmt: skip
            code = 0
            for i in range(D):
                code |= place[i] << 4 * i
            moved[n], parent[n], choice[n] = code, x, d
            key[n] = _code(s, t + 1, device)
            n += 1
    return n
