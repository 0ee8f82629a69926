"""The shortest bottleneck chain through a lattice of ideals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import inner, kernel
from placewright._kernel.device_load import device_load
from placewright._kernel.ideals import Bits, Floats, Ints, Longs, sums
from placewright._kernel.segment import SLACK, Stages

__all__ = ["Labels", "Lattice", "boundaries", "expand", "may_lie", "new_labels", "states_above"]

Bools = npt.NDArray[np.bool_]


class Lattice(NamedTuple):
    """The n ideals that stages may end at, each after those within it: the empty one, ..., everything.

    bits (n, W): sets of blocks. work (n, P, C), banned (n, C), resident, weights (n,): sums over the blocks in it.
    alive (n, .): bit s says that stages may end here with the devices of state s used, and that it is of use to know.
    above (S, .): states that use no device less. key, at (C, n): processing times of both passes on class c, ascending,
    and whose they are. cut_ptr, cut, inside: messages that some of its blocks take
    part in and others not, ascending, and 2 x number of readers in it, plus 1 when it makes the message.
    """

    bits: Bits
    work: Floats
    banned: Ints
    resident: Floats
    weights: Floats
    alive: Bits
    above: Bits
    key: Floats
    at: Ints
    cut_ptr: Longs
    cut: Ints
    inside: Ints


class Labels(NamedTuple):
    """Ways to reach ideals: of each ideal a linked list (head, then next).

    used: state; forward, backward: largest loads so far; before: label of the chain before the last stage, which
    runs on ``copies`` devices of class ``kind``; ideal: where it ends. cell: number of labels made, first of those free
    again, label of the best whole chain.
    """

    head: Ints
    next: Ints
    used: Ints
    forward: Floats
    backward: Floats
    before: Ints
    kind: Ints
    copies: Ints
    ideal: Ints
    cell: Longs


def new_labels(n: int, room: int, old: Labels | None = None) -> Labels:
    """Make room for labels of n ideals, with those of ``old``; without, with one for the empty ideal."""
    made = Labels(
        np.full(n, -1, dtype=np.int32),
        np.zeros(room, dtype=np.int32),
        np.zeros(room, dtype=np.int32),
        np.zeros(room),
        np.zeros(room),
        np.zeros(room, dtype=np.int32),
        np.zeros(room, dtype=np.int32),
        np.zeros(room, dtype=np.int32),
        np.zeros(room, dtype=np.int32),
        np.array([1, -1, -1], dtype=np.int64),
    )
    if old is None:
        made.head[0], made.next[0], made.before[0] = 0, -1, -1
        return made
    made.head[:], made.cell[:] = old.head, old.cell
    for k in range(1, 9):
        made[k][: len(old.next)] = old[k]
    return made


@kernel
def may_lie(
    parent: Ints, last: Ints, weight: Floats, outside: bool, limit: float, alive: Bits, state: int, fresh: bool
) -> None:
    """Clear or set bit ``state`` of the ideals whose blocks (or those outside of it) weigh at most ``limit``."""
    n = len(parent)
    large = 0.0
    for b in range(len(weight)):
        if np.isinf(weight[b]):
            large += 1.0
    finite = np.where(np.isinf(weight), 0.0, weight)
    weighs = sums(parent, last, finite)
    without = sums(parent, last, np.isinf(weight).astype(np.float64)) if large > 0.0 else np.zeros(1)
    whole = finite.sum()
    word, bit = state >> 6, np.uint64(1) << np.uint64(state & 63)
    for k in range(n):
        here = whole - weighs[k] if outside else weighs[k]
        barred = 0.0
        if large > 0.0:
            barred = large - without[k] if outside else without[k]
        if barred > 0.0 or here > limit:
            alive[k, word] &= ~bit
        elif fresh:
            alive[k, word] |= bit


@kernel
def states_above(stride: Longs, count: Longs) -> Bits:
    """(S, .) bit t of row s: state t uses at least the devices of state s."""
    S, C = stride[-1], len(count)
    above = np.zeros((S, (S + 63) // 64), dtype=np.uint64)
    for low in range(S):
        for high in range(low, S):
            over = True
            for c in range(C):
                over = over and high // stride[c] % (count[c] + 1) >= low // stride[c] % (count[c] + 1)
            if over:
                above[low, high >> 6] |= np.uint64(1) << np.uint64(high & 63)
    return above


@kernel
def boundaries(
    s: Stages, bits: Bits, begin: int, end: int, counted: bool, cut_ptr: Longs, cut: Ints, inside: Ints
) -> None:
    """Find the messages that ideals ``begin``... cut: how many (``cut_ptr``) unless ``counted``, else which."""
    one = np.uint64(1)
    for k in range(begin, end):
        n = cut_ptr[k]
        for u in range(len(s.home)):
            h = s.home[u]
            made = (bits[k, h >> 6] >> np.uint64(h & 63)) & one
            read = 0
            for e in range(s.reader_ptr[u], s.reader_ptr[u + 1]):
                b = s.reader[e]
                if (bits[k, b >> 6] >> np.uint64(b & 63)) & one:
                    read += 1
            whole = read == s.readers[u]
            if (made == one and not whole) or (made != one and read > 0):
                if counted:
                    cut[n] = u
                    inside[n] = 2 * read + (1 if made == one else 0)
                n += 1
        if not counted:
            cut_ptr[k + 1] = n


@inner
def _transfers(s: Stages, g: Lattice, i: int, j: int, c: int, most: float, enters: Floats, leaves: Floats) -> bool:
    """Transfers into and out of the stage between two ideals, by pass; False when they are ``most`` or more together.

    Only messages that one of the two cuts can cross the stage's border. One that only j cuts has all its blocks outside
    of i; one that only i cuts has all in j.
    """
    enters[:], leaves[:] = 0.0, 0.0
    total = 0.0
    x, x_end = g.cut_ptr[i], g.cut_ptr[i + 1]
    y, y_end = g.cut_ptr[j], g.cut_ptr[j + 1]
    cut, inside = g.cut, g.inside
    while x < x_end or y < y_end:
        if y >= y_end or (x < x_end and cut[x] < cut[y]):
            u = cut[x]
            low, high = inside[x], 2 * s.readers[u] + 1
            x += 1
        elif x >= x_end or cut[y] < cut[x]:
            u = cut[y]
            low, high = 0, inside[y]
            y += 1
        else:
            u = cut[x]
            low, high = inside[x], inside[y]
            x += 1
            y += 1
        reads = (high >> 1) - (low >> 1)
        if (high & 1) and not (low & 1):
            if reads < s.readers[u]:
                leaves[s.phase[u]] += s.send[u, c]
                total += s.send[u, c]
        elif reads > 0:
            enters[s.phase[u]] += s.receive[u, c]
            total += s.receive[u, c]
        if total >= most:
            return False
    return True


@inner
def _most_sent(s: Stages, room: float, compute: float) -> float:
    """Transfers that a stage can't have: it is busy with their share of them, and its links carry them in ``room``."""
    most = room if s.overlap < 2 else np.inf
    if s.busy_share == 1.0:
        return room - compute
    return min(most, (room - compute) / s.busy_share * (1.0 + SLACK)) if s.busy_share > 0.0 else most


@inner
def _insert(
    s: Stages, a: Labels, j: int, used: int, f: float, b: float, before: int, c: int, copies: int, loosely: bool
) -> bool:
    """Add a label unless one that uses no device more is as good; False when there is no room.

    ``loosely``: any value is as good as any other, since all are below the limit.
    """
    C = len(s.count)
    slot, previous, k = -1, -1, a.head[j]
    while k >= 0:
        after = a.next[k]
        fewer = more = True
        for x in range(C):
            old, new = a.used[k] // s.stride[x] % (s.count[x] + 1), used // s.stride[x] % (s.count[x] + 1)
            fewer = fewer and old <= new
            more = more and new <= old
        if fewer and ((loosely and not more) or (a.forward[k] <= f and a.backward[k] <= b)):
            return True
        if more and (loosely or (f <= a.forward[k] and b <= a.backward[k])):
            # The old one is beaten; nothing was built on it yet.
            if previous < 0:
                a.head[j] = after
            else:
                a.next[previous] = after
            a.next[k] = a.cell[1]
            a.cell[1] = k
        else:
            previous = k
        k = after
    slot = a.cell[1]
    if slot >= 0:
        a.cell[1] = a.next[slot]
    else:
        slot = a.cell[0]
        if slot >= len(a.next):
            return False
        a.cell[0] += 1
    a.next[slot] = a.head[j]
    a.head[j] = slot
    a.used[slot], a.forward[slot], a.backward[slot], a.before[slot] = used, f, b, before
    a.kind[slot], a.copies[slot], a.ideal[slot] = c, copies, j
    return True


@kernel
def expand(s: Stages, g: Lattice, a: Labels, limit: Floats, begin: int, most: int) -> tuple[int, int, bool]:
    """Lengthen the chains that end at ideal ``begin`` and later by one stage, for about ``most`` pairs of ideals.

    Only chains below ``limit[0]`` are made; a whole one lowers it to its value. Returns the ideal to go on with, how
    many stages were costed, and whether there is room left for labels (else that ideal is to be done again).
    """
    n, words = g.bits.shape
    C, P = len(s.count), g.work.shape[1]
    masks = g.alive.shape[1]
    loosely = P == 1
    key, at, bits, alive = g.key, g.at, g.bits, g.alive
    mine = np.zeros(s.stride[C] + 16, dtype=np.int64)
    wanted = np.zeros(masks, dtype=np.uint64)
    enters, leaves = np.zeros(P), np.zeros(P)
    pays = np.zeros(C, dtype=np.bool_)
    for c in range(C):
        for u in range(len(s.home)):
            pays[c] = pays[c] or s.send[u, c] > 0.0 or s.receive[u, c] > 0.0
    looked = costed = 0
    for i in range(begin, n - 1):
        if looked >= most:
            return i, costed, True
        count, k = 0, a.head[i]
        while k >= 0:
            if a.forward[k] + a.backward[k] < limit[0]:
                if count == len(mine):
                    longer = np.zeros(2 * count, dtype=np.int64)
                    longer[:count] = mine
                    mine = longer
                mine[count] = k
                count += 1
            k = a.next[k]
        if count == 0:
            continue
        for c in range(C):
            top = 0
            for x in range(count):
                free = s.count[c] - a.used[mine[x]] // s.stride[c] % (s.count[c] + 1)
                top = max(top, min(free, s.most_copies[c]))
            here = 0.0
            for p in range(P):
                here += g.work[i, p, c]
            whole, order, mask, mine_first = key[c, n - 1], at[c], alive[:, 0], bits[i, 0]
            most_resident, bars = g.resident[i] + s.capacity[c], g.banned[n - 1, c] > 0
            for low in range(1, top + 1):
                # Stages of more than low - 1 and up to low times the limit: on low devices or more.
                wanted[:] = np.uint64(0)
                for x in range(count):
                    used = a.used[mine[x]]
                    free = s.count[c] - used // s.stride[c] % (s.count[c] + 1)
                    for r in range(low, min(free, s.most_copies[c]) + 1):
                        state = used + r * s.stride[c]
                        wanted[state >> 6] |= np.uint64(1) << np.uint64(state & 63)
                least = (low - 1) * limit[0] * (1.0 - SLACK) if low > 1 else 0.0
                start = np.searchsorted(key[c], here + least - whole * SLACK)
                end = np.searchsorted(key[c], here + low * limit[0] * (1.0 + SLACK) + whole * SLACK, side="right")
                looked += end - start
                first = wanted[0]
                for place in range(start, end):
                    j = order[place]
                    hit = mask[j] & first != np.uint64(0)
                    if masks > 1 and not hit:
                        for w in range(1, masks):
                            hit = hit or (alive[j, w] & wanted[w]) != np.uint64(0)
                    if not hit or j <= i:
                        continue
                    below = mine_first & ~bits[j, 0] == np.uint64(0)
                    for w in range(1, words):
                        below = below and bits[i, w] & ~bits[j, w] == np.uint64(0)
                    if not below or g.resident[j] > most_resident or (bars and g.banned[j, c] != g.banned[i, c]):
                        continue
                    compute = 0.0
                    for p in range(P):
                        compute += g.work[j, p, c] - g.work[i, p, c]
                    syncs = 2.0 * (g.weights[j] - g.weights[i]) * s.sync_s_per_byte[c]
                    room = -1.0
                    for r in range(low, top + 1):
                        room = max(room, r * limit[0] - (r - 1) * syncs)
                    if room <= compute:
                        continue
                    costed += 1
                    if pays[c] and not _transfers(s, g, i, j, c, _most_sent(s, room, compute), enters, leaves):
                        continue
                    for r in range(low, top + 1):
                        sync = (r - 1) / r * syncs
                        f = device_load(
                            s.overlap,
                            s.busy_share,
                            (g.work[j, 0, c] - g.work[i, 0, c]) / r,
                            enters[0] / r,
                            leaves[0] / r,
                        )
                        b = 0.0
                        if P == 2:
                            b = sync + device_load(
                                s.overlap,
                                s.busy_share,
                                (g.work[j, 1, c] - g.work[i, 1, c]) / r,
                                enters[1] / r,
                                leaves[1] / r,
                            )
                        else:
                            f += sync
                        if not f + b < limit[0]:
                            continue
                        for x in range(count):
                            k = mine[x]
                            used = a.used[k]
                            if used // s.stride[c] % (s.count[c] + 1) + r > s.count[c]:
                                continue
                            state = used + r * s.stride[c]
                            if alive[j, state >> 6] & (np.uint64(1) << np.uint64(state & 63)) == np.uint64(0):
                                continue
                            forward, backward = max(a.forward[k], f), max(a.backward[k], b)
                            if not forward + backward < limit[0]:
                                continue
                            final = j == n - 1
                            if not _insert(s, a, j, state, forward, backward, k, c, r, loosely and not final):
                                return i, costed, False
                            if final:
                                limit[0] = forward + backward
                                a.cell[2] = a.head[j]
                            elif loosely:
                                for w in range(masks):
                                    alive[j, w] &= ~g.above[state, w]
            enters[:], leaves[:] = 0.0, 0.0
    return n, costed, True
