"""Stages between nested ideals: what each costs on each class of devices, and the cheapest chain of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import inner, kernel

__all__ = ["Crossing", "Messages", "StageTable", "cheapest_chain", "count_stages", "crossing", "fill_stages"]

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]


class Messages(NamedTuple):
    """M messages: producer (M,), and readers without it as rows reader_ptr (M+1,), reader; send, receive (M, C) s."""

    producer: Ints
    reader_ptr: Ints
    reader: Ints
    send: Floats
    receive: Floats


class StageTable(NamedTuple):
    """Stages by the ideal they begin at, in the order of the ideals: ptr (N+1,), end (S,), load (S, C) seconds."""

    ptr: Longs
    end: Ints
    load: Floats


class Crossing(NamedTuple):
    """Messages that cross the border of each ideal, either way, as rows: ptr (N+1,), message."""

    ptr: Longs
    message: Ints


@inner
def _nested(inside: Bytes, a: int, b: int) -> bool:
    nested = True
    for k in range(inside.shape[1]):
        if inside[a, k] > inside[b, k]:
            nested = False
            break
    return nested


@kernel
def count_stages(inside: Bytes, resident: Floats, capacity: float, begin: int, end: int) -> int:
    """Count pairs of nested ideals (rows of ``inside`` (N, U), by size) whose difference fits, the first in a range."""
    count = 0
    for a in range(begin, end):
        for b in range(a + 1, len(inside)):
            if resident[b] - resident[a] <= capacity and _nested(inside, a, b):
                count += 1
    return count


@kernel
def crossing(inside: Bytes, m: Messages) -> Crossing:
    """List the messages that cross the border of each ideal."""
    N, M = len(inside), len(m.producer)
    ptr = np.zeros(N + 1, dtype=np.int64)
    for fill in range(2):
        message = np.zeros(ptr[N] if fill == 1 else 0, dtype=np.int32)
        at = 0
        for a in range(N):
            for u in range(M):
                made = inside[a, m.producer[u]]
                for e in range(m.reader_ptr[u], m.reader_ptr[u + 1]):
                    if inside[a, m.reader[e]] != made:
                        if fill == 1:
                            message[at] = u
                        at += 1
                        break
            ptr[a + 1] = at
    return Crossing(ptr, message)


@kernel
def fill_stages(
    inside: Bytes,
    resident: Floats,
    capacity: Floats,
    compute: Floats,
    banned: Ints,
    m: Messages,
    cross: Crossing,
    begin: int,
    end: int,
    table: StageTable,
) -> None:
    """Fill the rows begin..end of a table that has room for all stages; rows before them are filled.

    compute, banned (N, C): of each ideal the seconds, and the number of units that may not run, on each class. A stage
    sends a message that one of its units makes and one outside it reads, and receives one that it reads and that is
    made outside it, once each, at what ``send`` and ``receive`` say.
    """
    N, C = compute.shape
    largest = capacity.max()
    count = table.ptr[begin]
    seen = np.full(len(m.producer), -1, dtype=np.int64)
    for a in range(begin, end):
        for b in range(a + 1, N):
            held = resident[b] - resident[a]
            if held > largest or not _nested(inside, a, b):
                continue
            for c in range(C):
                if held > capacity[c] or banned[b, c] > banned[a, c]:
                    table.load[count, c] = np.inf
                else:
                    table.load[count, c] = compute[b, c] - compute[a, c]
            for side in (a, b):
                for f in range(cross.ptr[side], cross.ptr[side + 1]):
                    u = cross.message[f]
                    if seen[u] == count:
                        continue
                    seen[u] = count
                    home = m.producer[u]
                    mine = inside[b, home] > inside[a, home]
                    reads, leaves = False, False
                    for e in range(m.reader_ptr[u], m.reader_ptr[u + 1]):
                        k = m.reader[e]
                        if inside[b, k] > inside[a, k]:
                            reads = True
                        else:
                            leaves = True
                    if mine and leaves:
                        for c in range(C):
                            table.load[count, c] += m.send[u, c]
                    elif reads and not mine:
                        for c in range(C):
                            table.load[count, c] += m.receive[u, c]
            table.end[count] = b
            count += 1
        table.ptr[a + 1] = count


@inner
def _price(load: float, full: float, least: float, limit: float) -> float:
    """Load of a stage, and what its device does not compute in for its sake: ``full`` of ``limit - least`` seconds."""
    return load * (1.0 + full / (limit - least)) if full > 0.0 else load


@kernel
def cheapest_chain(
    table: StageTable, weight: Floats, full: Floats, least: Floats, limit: float, distance: Floats
) -> Floats:
    """Find the chain of stages from the first to the last ideal of the least sum of weight[c] x price; its prices (C,).

    full, least (N,): seconds of synchronisation, by what all units of each ideal count together; no device may have
    ``least`` of ``limit``. distance (N,) is filled: of the cheapest chain to each ideal, ``inf`` where there is none.
    """
    N, C = len(table.ptr) - 1, len(weight)
    stage = np.full(N, -1, dtype=np.int64)
    kind = np.full(N, -1, dtype=np.int64)
    origin = np.full(N, -1, dtype=np.int64)
    distance[:] = np.inf
    distance[0] = 0.0
    for a in range(N):
        if distance[a] == np.inf:
            continue
        for s in range(table.ptr[a], table.ptr[a + 1]):
            b = table.end[s]
            if least[b] - least[a] >= limit:
                continue
            for c in range(C):
                if table.load[s, c] == np.inf:
                    continue
                there = distance[a] + weight[c] * _price(
                    table.load[s, c], full[b] - full[a], least[b] - least[a], limit
                )
                if there < distance[b]:
                    distance[b] = there
                    stage[b], kind[b], origin[b] = s, c, a
    prices = np.zeros(C)
    b = N - 1
    while b > 0 and stage[b] >= 0:
        a = origin[b]
        prices[kind[b]] += _price(table.load[stage[b], kind[b]], full[b] - full[a], least[b] - least[a], limit)
        b = a
    return prices
