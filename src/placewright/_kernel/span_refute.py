"""Search for a placement that could meet a time: when none is found, every schedule takes longer."""

from __future__ import annotations

import numpy as np

from placewright._kernel.compiling import inner, kernel
from placewright._kernel.energy import overfull
from placewright._kernel.schedule import Network
from placewright._kernel.span_search import Floats, Ints, SpanScratch, time_of

__all__ = ["FOUND", "REFUTED", "UNKNOWN", "refute"]

REFUTED, FOUND, UNKNOWN = 1, 0, -1
"""No schedule meets the time; a placement is left that may; out of nodes."""

ROUNDS = 5
"""Most times that a node's devices are looked through again because some were struck out."""

ABOVE = 1.0 + 1e-9
"""A time counts as exceeded when it is by more than this: rounding errors of sums are far below it."""


@inner
def _enter(g: Network, processing: Floats, unit_ptr: Ints, member: Ints, left: Ints, device: Ints) -> None:
    """Let the network's operators have the devices that are left, and fix those that have one."""
    D = processing.shape[1]
    for k in range(len(unit_ptr) - 1):
        only, count = -1, 0
        for i in range(D):
            if left[k] >> i & 1:
                only, count = i, count + 1
        for x in range(unit_ptr[k], unit_ptr[k + 1]):
            v = member[x]
            device[v] = only if count == 1 else -1
            for i in range(D):
                g.processing[v, i] = processing[v, i] if left[k] >> i & 1 else np.inf


@inner
def _strike(unit_ptr: Ints, member: Ints, left: Ints, limit: float, w: SpanScratch) -> bool:
    """Strike out devices on which an operator would be too late; say whether any was."""
    D, struck = w.done.shape[1], False
    for k in range(len(unit_ptr) - 1):
        for x in range(unit_ptr[k], unit_ptr[k + 1]):
            v = member[x]
            for i in range(D):
                if left[k] >> i & 1 and not w.done[v, i] + w.tail[v, i] <= limit * ABOVE:
                    left[k] &= ~(1 << i)
                    struck = True
    return struck


@kernel
def refute(
    g: Network,
    processing: Floats,
    unit_ptr: Ints,
    member: Ints,
    alike: Ints,
    limit: float,
    stack: Ints,
    size: int,
    nodes: int,
    tried: int,
    w: SpanScratch,
) -> tuple[int, int]:
    """Depth-first search over the devices that are left to units, for a schedule of at most ``limit``.

    In each node devices are struck out on which an operator's longest path is too long; the node is left when a unit
    has no device, when :func:`time_of` is above the limit, or when the operators don't fit even divided
    (:func:`overfull`). Of some open units, each device is tried; what is too long is struck out, and the unit whose
    least time grows most is the one to branch on: one device, or the others. Devices that nothing distinguishes are
    struck out together.

    Parameters
    ----------
    g : Network
        Its ``processing`` is overwritten.
    processing : (n, D)
        inf where an operator may not run.
    unit_ptr, member : (U+1,), (n,)
        Operators that share a device.
    alike : (D,)
        Class of each device: two of one can be swapped.
    limit : float
    stack : (U D + 2, U)
        Nodes that are to be looked at: bit i of each unit says whether it may be on device i. At most 30 devices.
    size : int
        How many there are; 1 at first, with the devices that units may be on.
    nodes : int
        Most nodes to look at.
    tried : int
        How many open units are tried in a node.

    Returns
    -------
    outcome : int
        ``REFUTED``, ``FOUND`` or ``UNKNOWN``.
    size : int
        Nodes that are left on the stack; with ``UNKNOWN`` the search goes on from them.
    """
    n, D = processing.shape
    U = len(unit_ptr) - 1
    left, device = np.zeros(U, dtype=np.int32), np.full(n, -1, dtype=np.int32)
    scaled, weight = np.zeros((n, D)), np.zeros(D)
    seen = 0
    while size > 0:
        if seen >= nodes:
            return UNKNOWN, size
        seen += 1
        size -= 1
        left[:] = stack[size]
        base, dead = 0.0, False
        for _ in range(ROUNDS):
            _enter(g, processing, unit_ptr, member, left, device)
            base = time_of(g, device, w)
            dead = not base <= limit * ABOVE
            if dead or not _strike(unit_ptr, member, left, limit, w):
                break
            dead = left.min() == 0
            if dead:
                break
        if dead or overfull(g, w, limit * ABOVE, scaled, weight):
            continue
        _enter(g, processing, unit_ptr, member, left, device)
        chosen, first, most, open_ = -1, -1, -1.0, 0
        for k in range(U):
            if left[k] & (left[k] - 1) == 0:
                continue
            if open_ >= tried and chosen >= 0:
                break
            open_ += 1
            least, worst, at = np.inf, -1.0, -1
            for i in range(D):
                if not left[k] >> i & 1:
                    continue
                for x in range(unit_ptr[k], unit_ptr[k + 1]):
                    device[member[x]] = i
                value = time_of(g, device, w)
                if not value <= limit * ABOVE:
                    left[k] &= ~(1 << i)
                    continue
                least = min(least, value)
                if value > worst:
                    worst, at = value, i
            if left[k] & (left[k] - 1) == 0:  # no more than one is left: nothing to branch on
                if left[k] == 0:
                    dead = True
                    break
                _enter(g, processing, unit_ptr, member, left, device)
                continue
            for x in range(unit_ptr[k], unit_ptr[k + 1]):
                device[member[x]] = -1
            score = (least - base) * 4.0 + (worst - base)
            if score > most:
                most, chosen, first = score, k, at
        if dead:
            continue
        if chosen < 0:
            if open_ == 0:
                return FOUND, size
            stack[size] = left  # all that were open have been decided: once more
            size += 1
            continue
        stack[size] = left
        for j in range(D):
            if j == first or alike[j] == alike[first]:
                same = True
                for k in range(U):
                    same = same and (left[k] >> j & 1) == (left[k] >> first & 1)
                if same:
                    stack[size, chosen] &= ~(1 << j)
        if stack[size, chosen] != 0:
            size += 1
        stack[size] = left
        stack[size, chosen] = 1 << first
        size += 1
    return REFUTED, 0
