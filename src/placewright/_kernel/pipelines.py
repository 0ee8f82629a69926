"""Cutting a line of blocks into the stages of one pipeline on devices in a given order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import inner, kernel

__all__ = ["best_cuts", "divided_time", "priced_cuts"]

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


@inner
def _trace(origin: Ints, cuts: Ints) -> None:
    """Fill the cuts from the last: origin (S+1, N) says where the stage begins that ends at a position."""
    cuts[-1] = origin.shape[1] - 1
    for s in range(len(cuts) - 1, 0, -1):
        cuts[s - 1] = origin[s, cuts[s]]


@kernel
def best_cuts(
    compute: Floats,
    left: Floats,
    right: Floats,
    banned: Ints,
    resident: Floats,
    capacity: Floats,
    sync: Floats,
    overlaps: bool,
    busy_share: float,
    cuts: Ints,
) -> float:
    """Find the cuts (S+1,), from 0 to N - 1, of the least largest load of a stage; returns that load.

    compute, banned (S, N): of the blocks before each position the seconds, and how many are banned, on each of S
    devices. left, right (S, N): seconds that a device pays for what crosses a position where its stage begins, or ends.
    resident (N,): bytes before it. sync (N,): share of the device's time that weights before it take. overlaps: whether
    links carry transfers beside computing, of which the device is busy with ``busy_share``. A stage may be empty. O(S N
    w) for stages of w blocks.
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
                load = busy + busy_share * sent if busy_share > 0.0 else busy  # what can't cross takes infinitely long
                if overlaps:
                    load = max(load, sent)
                idle = 1.0 - (sync[b] - sync[a])
                load = load / idle if idle > 0.0 else np.inf
                load = max(load, value[s, a])
                if load < best:
                    best, start = load, a
            value[s + 1, b] = best
            origin[s + 1, b] = start
    _trace(origin, cuts)
    return float(value[S, N - 1])


@kernel
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
    _trace(origin, cuts)
    return float(value[S, N - 1])


@inner
def _reaches(
    compute: Floats,
    sent: Floats,
    banned: Ints,
    resident: Floats,
    capacity: Floats,
    sync: Floats,
    time: float,
    busy_share: float,
    divided: bool,
) -> bool:
    """Whether devices that take blocks in turn, as many as each can, take all of them; see :func:`divided_time`."""
    S, N = compute.shape
    at, part = 0, 0.0
    for s in range(S):
        left = time - busy_share * sent[s]
        room = capacity[s]
        while at < N - 1 and banned[s, at + 1] == banned[s, at]:
            held = resident[at + 1] - resident[at]
            if held > room or left <= 0.0:
                break
            work = compute[s, at + 1] - compute[s, at] + time * (sync[at + 1] - sync[at])
            if work * (1.0 - part) > left:
                if divided:
                    part += left / work
                break
            left -= work * (1.0 - part)
            room -= held
            at += 1
            part = 0.0
    return bool(at == N - 1)


@kernel
def divided_time(
    compute: Floats,
    sent: Floats,
    banned: Ints,
    resident: Floats,
    capacity: Floats,
    sync: Floats,
    busy_share: float,
) -> float:
    """Estimate the least largest load of a stage when samples may be cut at different places; ``inf``: it does not fit.

    Arrays as for :func:`best_cuts`; sent (S,): what a device pays at least for what crosses the ends of its stage. At a
    time T each device takes blocks in turn while what it is busy with and T x sync are within T and bytes within
    its memory: the last one in part, which both that share it hold, or only whole ones; the better of the two counts.
    """
    S, N = compute.shape
    high = 0.0
    for s in range(S):
        high += compute[s, N - 1] + sent[s]
    least = np.inf
    for divided in (True, False):
        low, top = 0.0, high
        if not _reaches(compute, sent, banned, resident, capacity, sync, top, busy_share, divided):
            top *= 16.0
            if not _reaches(compute, sent, banned, resident, capacity, sync, top, busy_share, divided):
                continue
        for _ in range(40):
            middle = 0.5 * (low + top)
            if _reaches(compute, sent, banned, resident, capacity, sync, middle, busy_share, divided):
                top = middle
            else:
                low = middle
        least = min(least, top)
    return float(least)
