"""Cutting a line of blocks into the stages of one pipeline on devices in a given order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["best_cuts", "divided_time", "priced_cuts"]

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


@njit(cache=True)
def best_cuts(
    compute: Floats,
    left: Floats,
    right: Floats,
    banned: Ints,
    resident: Floats,
    capacity: Floats,
    sync: Floats,
    overlaps: bool,
    cuts: Ints,
) -> float:
    """Find the cuts (S+1,), from 0 to N - 1, of the least largest load of a stage; returns that load.

    compute, banned (S, N): of the blocks before each position the seconds, and how many are banned, on each of S
    devices. left, right (S, N): seconds that a device pays for what crosses a position where its stage begins, or ends.
    resident (N,): bytes before it. sync (N,): share of the device's time that weights before it take. A stage may be
    empty. O(S N w) for stages of w blocks.
    """
    S, N = compute.shape
    value = np.full((S + 1, N), np.inf)
    origin = np.zeros((S + 1, N), dtype=np.int32)
    value[0, 0] = 0.0
    for s in range(S):
        for b in range(N):
            best, start = value[s, b], b
            for a in range(b - 1, -1, -1):
                busy = compute[s, b] - compute[s, a]
                if banned[s, b] > banned[s, a] or resident[b] - resident[a] > capacity[s] or busy >= best:
                    break
                if value[s, a] == np.inf:
                    continue
                sent = left[s, a] + right[s, b]
                load = max(busy, sent) if overlaps else busy + sent
                idle = 1.0 - (sync[b] - sync[a])
                load = load / idle if idle > 0.0 else np.inf
                load = max(load, value[s, a])
                if load < best:
                    best, start = load, a
            value[s + 1, b] = best
            origin[s + 1, b] = start
    b = N - 1
    for s in range(S, 0, -1):
        cuts[s] = b
        b = origin[s, b]
    cuts[0] = b
    return float(value[S, N - 1])


@njit(cache=True)
def priced_cuts(
    compute: Floats, price: Floats, begins: Floats, ends: Floats, low: Ints, high: Ints, cuts: Ints
) -> float:
    """Find the cuts of the least sum over stages of price x compute + begins + ends; returns that sum.

    price (S,); begins, ends (S, N): priced seconds of what crosses the position where a stage begins, or ends. Stage s
    lies within low[s]..high[s] and is not empty, unless that range is.
    """
    S, N = compute.shape
    value = np.full((S + 1, N), np.inf)
    origin = np.zeros((S + 1, N), dtype=np.int32)
    value[0, 0] = 0.0
    for s in range(S):
        if low[s] >= high[s]:
            for b in range(N):
                value[s + 1, b] = value[s, b]
                origin[s + 1, b] = b
            continue
        for b in range(low[s] + 1, high[s] + 1):
            for a in range(low[s], b):
                if value[s, a] == np.inf:
                    continue
                there = value[s, a] + price[s] * (compute[s, b] - compute[s, a]) + begins[s, a] + ends[s, b]
                if there < value[s + 1, b]:
                    value[s + 1, b] = there
                    origin[s + 1, b] = a
    b = N - 1
    for s in range(S, 0, -1):
        cuts[s] = b
        b = origin[s, b]
    cuts[0] = b
    return float(value[S, N - 1])


@njit(cache=True)
def divided_time(
    compute: Floats,
    begins: Floats,
    ends: Floats,
    banned: Ints,
    resident: Floats,
    capacity: Floats,
    sync: Floats,
    overlaps: bool,
) -> float:
    """Find the least largest load of a stage when blocks may be divided among neighbours: no mixture of cuts is better.

    Arrays as for :func:`best_cuts`; begins, ends (S,): the least that a device pays where its stage begins, or ends.
    At a time T each device takes blocks in turn, the last one in part, while computing, what it sends and T x sync are
    within T and bytes within its memory; a block that is banned stops it.
    """
    S, N = compute.shape
    low, high = 0.0, np.inf
    time = 0.0
    for s in range(S):
        time += compute[s, N - 1] + begins[s] + ends[s]
    for _ in range(60):
        at, part = 0, 0.0
        for s in range(S):
            left = time if overlaps else time - begins[s] - ends[s]
            room = capacity[s]
            while at < N - 1 and banned[s, at + 1] == banned[s, at]:
                work = compute[s, at + 1] - compute[s, at] + time * (sync[at + 1] - sync[at])
                held = resident[at + 1] - resident[at]
                rest = 1.0 - part
                take = rest
                if work * take > left:
                    take = max(0.0, left / work)
                if held * take > room:
                    take = max(0.0, room / held)
                if take < rest:
                    part += take
                    break
                left -= work * take
                room -= held * take
                at += 1
                part = 0.0
        if at == N - 1:
            high = time
            time = 0.5 * (low + high)
        else:
            low = time
            time = 0.5 * (low + high) if high < np.inf else 2.0 * time
        if high - low <= 1e-6 * high or time > 1e30:
            break
    return high
