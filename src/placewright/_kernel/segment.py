"""Contiguous max-load along one order of the blocks: the best cut into stages."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import inner, kernel
from placewright._kernel.device_load import device_load

__all__ = [
    "Stages",
    "Table",
    "cut",
    "multipliers",
    "table",
]

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

SLACK = 1e-9
"""By how much sums of processing times may be off, relative, before they count as beyond a limit."""

UNREACHABLE = 1e6
"""What a missing link costs the search, in sums of all times: it takes terms out of its sums again."""


class Stages(NamedTuple):
    """B blocks, C classes of alike devices, M messages between blocks, P passes.

    compute (B, P, C): seconds; 0 where banned. banned (B, C): 1 where the block may not run. resident, weights (B,):
    bytes. capacity, count, most_copies, sync_s_per_byte (C,): of a device; how many there are; how many may run copies
    of one stage; of a synchronisation, a sample. stride (C+1,): the state in which u_c devices of class c are used is
    sum u_c stride_c; the last entry is the number of states. overlap, busy_share: as for ``device_load``. home, phase,
    readers (M,): producing block, pass, number of other blocks that read. reader_ptr, reader: those blocks. touch_ptr,
    touch: of each block its messages, 2u + 1 where it makes message u and 2u where it reads it. send, receive (M, C):
    seconds.
    """

    compute: Floats
    banned: Ints
    resident: Floats
    weights: Floats
    capacity: Floats
    count: Longs  # type: ignore[assignment]
    stride: Longs
    most_copies: Longs
    sync_s_per_byte: Floats
    overlap: int
    busy_share: float
    home: Ints
    phase: Ints
    readers: Ints
    reader_ptr: Ints
    reader: Ints
    touch_ptr: Ints
    touch: Ints
    send: Floats
    receive: Floats


class Table(NamedTuple):
    """Memory of :func:`cut`: labels (F, B) by position, state and rank, where each came from, and counters.

    source: (position, rank, class, copies) of the label before. need (R, B), room (R,), row (S,): of the devices that a
    state leaves, what a block takes of them at least, and what they have, in units of the limit.
    """

    forward: Floats
    backward: Floats
    found: Ints
    source: Ints
    need: Floats
    room: Floats
    row: Ints
    rest: Floats
    inside: Ints
    made: Ints


@kernel
def multipliers(total: Floats, banned: Ints, left: Longs, steps: int) -> Floats:
    """Find y >= 0 with sum left_c y_c = 1 and a large sum over blocks of min over the classes left of y_c p_bc.

    Any such y proves that the largest load is at least that sum (the dual of fractional assignment). Multiplicative
    weights; the best y of all steps. A block that no class left may run counts nothing.
    """
    B, C = total.shape
    z, best = np.zeros(C), np.zeros(C)
    for c in range(C):
        if left[c] > 0:
            work = 0.0
            for b in range(B):
                if banned[b, c] == 0:
                    work += total[b, c]
            z[c] = left[c] / max(work, 1e-300)
    scale = z.sum()
    if scale <= 0.0:
        return best
    z /= scale
    top, load = -1.0, np.zeros(C)
    for step in range(steps):
        load[:] = 0.0
        value = 0.0
        for b in range(B):
            least, at = np.inf, -1
            for c in range(C):
                if left[c] > 0 and banned[b, c] == 0:
                    x = z[c] / left[c] * total[b, c]
                    if x < least:
                        least, at = x, c
            if at >= 0:
                value += least
                load[at] += total[b, at] / left[at]
        if value > top:
            top = value
            for c in range(C):
                best[c] = z[c] / left[c] if left[c] > 0 else 0.0
        most = load.max()
        if most <= 0.0:
            break
        for c in range(C):
            z[c] *= np.exp(load[c] / most / np.sqrt(step + 1.0))
        z /= z.sum()
    return best


@kernel
def table(s: Stages, total: Floats, width: int, most_rows: int) -> Table:
    """Make the memory of :func:`cut`; ``width`` labels a state, 1 where the passes count together."""
    B, C = total.shape
    S = s.stride[C]
    rows = 1 if most_rows < S else S
    need, room, row = np.zeros((rows, B)), np.zeros(rows), np.zeros(S, dtype=np.int32)
    left = np.zeros(C, dtype=np.int64)
    if rows == S:
        for state in range(S):
            row[state] = state
            for c in range(C):
                left[c] = s.count[c] - state // s.stride[c] % (s.count[c] + 1)
            y = multipliers(total, s.banned, left, 60)
            room[state] = (left * y).sum()
            for b in range(B):
                least = np.inf
                for c in range(C):
                    if left[c] > 0 and s.banned[b, c] == 0:
                        least = min(least, y[c] * total[b, c])
                need[state, b] = least
    M = len(s.home)
    return Table(
        np.zeros((B + 1, S, width)),
        np.zeros((B + 1, S, width)),
        np.zeros((B + 1, S), dtype=np.int32),
        np.zeros((B + 1, S, width, 4), dtype=np.int32),
        need,
        room,
        row,
        np.zeros((rows, B + 1)),
        np.zeros(M, dtype=np.int32),
        np.zeros(M, dtype=np.int32),
    )


@inner
def _add(s: Stages, t: Table, b: int, enters: Floats, leaves: Floats) -> None:
    """Add a block to the stage: what its messages now cost each class."""
    C = len(s.count)
    inside, made = t.inside, t.made
    for k in range(s.touch_ptr[b], s.touch_ptr[b + 1]):
        u = s.touch[k] >> 1
        readers, phase = s.readers[u], s.phase[u]
        entered = made[u] == 0 and inside[u] > 0
        left = made[u] == 1 and inside[u] < readers
        if s.touch[k] & 1:
            made[u] = 1
        else:
            inside[u] += 1
        enters_now = made[u] == 0 and inside[u] > 0
        leaves_now = made[u] == 1 and inside[u] < readers
        if enters_now != entered:
            for c in range(C):
                enters[phase, c] += s.receive[u, c] if enters_now else -s.receive[u, c]
        if leaves_now != left:
            for c in range(C):
                leaves[phase, c] += s.send[u, c] if leaves_now else -s.send[u, c]


@inner
def _insert(t: Table, j: int, state: int, f: float, b: float, i: int, rank: int, c: int, copies: int) -> None:
    """Keep a label unless another is at least as good in both; of too many, the ones of least sum."""
    width = t.forward.shape[2]
    forward, backward, source = t.forward[j, state], t.backward[j, state], t.source[j, state]
    n = t.found[j, state]
    kept = 0
    for k in range(n):
        if forward[k] <= f and backward[k] <= b:
            return
    for k in range(n):
        if forward[k] < f or backward[k] < b:
            if kept != k:
                forward[kept], backward[kept] = forward[k], backward[k]
                source[kept] = source[k]
            kept += 1
    at = kept
    if kept == width:
        worst = 0
        for k in range(1, kept):
            if forward[k] + backward[k] > forward[worst] + backward[worst]:
                worst = k
        if forward[worst] + backward[worst] <= f + b:
            return
        at = worst
    else:
        kept += 1
    forward[at], backward[at] = f, b
    source[at, 0], source[at, 1], source[at, 2], source[at, 3] = i, rank, c, copies
    t.found[j, state] = kept


@kernel
def cut(s: Stages, t: Table, order: Ints, limit: float) -> tuple[float, int, int]:
    """Best value of cutting ``order`` into stages, if it is below ``limit``, else inf; with its state and rank.

    best(j, used) = min over i < j, class c, copies r of max(best(i, used - r of c), load of order[i:j] on r of c), with
    both passes' maxima kept apart (all pairs that no other beats, up to the table's width) where they count apart.
    O(B S + pairs (degree + C S)), where pairs are those whose processing times stay below the limit.
    """
    B, P, C = s.compute.shape
    S = s.stride[C]
    found, rest, row, room, need = t.found, t.rest, t.row, t.room, t.need
    rows = rest.shape[0]
    for k in range(rows):
        rest[k, B] = 0.0
        for j in range(B - 1, -1, -1):
            rest[k, j] = rest[k, j + 1] + need[k, order[j]]
    found[:] = 0
    found[0, 0] = 1
    t.forward[0, 0, 0] = t.backward[0, 0, 0] = 0.0
    compute, enters, leaves = np.zeros((P, C)), np.zeros((P, C)), np.zeros((P, C))
    banned = np.zeros(C, dtype=np.int64)
    active = np.zeros(S, dtype=np.int64)
    loose, share = min(limit * (1.0 + SLACK), 1e300), s.busy_share
    for i in range(B):
        n_active = 0
        for state in range(S):
            if found[i, state] > 0:
                active[n_active] = state
                n_active += 1
        if n_active == 0:
            continue
        compute[:], enters[:], leaves[:], banned[:] = 0.0, 0.0, 0.0, 0
        resident = weights = 0.0
        end = i
        for j in range(i + 1, B + 1):
            b = order[j - 1]
            _add(s, t, b, enters, leaves)
            end = j
            resident += s.resident[b]
            weights += s.weights[b]
            on = False
            for c in range(C):
                banned[c] += s.banned[b, c]
                for p in range(P):
                    compute[p, c] += s.compute[b, p, c]
                if banned[c] > 0 or resident > s.capacity[c]:
                    continue
                for r in range(1, s.most_copies[c] + 1):
                    sync = 2.0 * (r - 1) / r * weights * s.sync_s_per_byte[c]
                    f = device_load(s.overlap, share, compute[0, c] / r, enters[0, c] / r, leaves[0, c] / r)
                    back = 0.0
                    if P == 2:
                        back = device_load(s.overlap, share, compute[1, c] / r, enters[1, c] / r, leaves[1, c] / r)
                        back += sync
                    else:
                        f += sync
                    on = on or compute[:, c].sum() < r * loose
                    if not f + back < limit:
                        continue
                    for k in range(n_active):
                        state = active[k]
                        if state // s.stride[c] % (s.count[c] + 1) + r > s.count[c]:
                            continue
                        target = state + r * s.stride[c]
                        if rest[row[target], j] > room[row[target]] * loose:
                            continue
                        for rank in range(found[i, state]):
                            x, y = max(f, t.forward[i, state, rank]), max(back, t.backward[i, state, rank])
                            if x + y < limit:
                                _insert(t, j, target, x, y, i, rank, c, r)
            if not on:
                break
        for j in range(i, end):
            b = order[j]
            for k in range(s.touch_ptr[b], s.touch_ptr[b + 1]):
                t.inside[s.touch[k] >> 1] = 0
                t.made[s.touch[k] >> 1] = 0
    best, at, rank_at = np.inf, -1, 0
    for state in range(S):
        for rank in range(found[B, state]):
            value = t.forward[B, state, rank] + t.backward[B, state, rank]
            if value < best:
                best, at, rank_at = value, state, rank
    return best, at, rank_at
