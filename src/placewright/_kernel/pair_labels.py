"""Units of two devices shared out anew in the best way: a dynamic program with labels of two loads."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import kernel
from placewright._kernel.configuration import Incidence, Labels, build_states, spans

__all__ = ["FAR", "loads_of_vertices", "pair_states", "share_out", "stage_end", "with_bits"]

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

FAR = 1e300


@kernel
def loads_of_vertices(g: Incidence, time: Floats, weight: Floats, device: Ints) -> Floats:
    """(D,) loads of a placement; ``time`` (D, n), ``weight`` (D, E)."""
    D = len(time)
    load, seen = np.zeros(D), np.full(D, -1, dtype=np.int64)
    for v in range(len(device)):
        load[device[v]] += time[device[v], v]
    for e in range(len(g.end_ptr) - 1):
        a, b = g.end_ptr[e], g.end_ptr[e + 1]
        first, cut = device[g.end[a]], False
        for x in range(a + 1, b):
            if device[g.end[x]] != first:
                cut = True
                break
        if cut:
            for x in range(a, b):
                i = device[g.end[x]]
                if seen[i] != e:
                    seen[i] = e
                    load[i] += weight[i, e]
    return load


@kernel
def stage_end(
    g: Incidence, order: Ints, begin: int, time: Floats, weight: Floats, size: Floats, limit: float, room: float
) -> int:
    """Longest run of the order from ``begin`` whose load on a device, and memory, are within limits: where it ends.

    ``time`` (n,) and ``weight`` (E,) are the device's. Loads may fall again as a run grows; what leaves are the edges
    that it cuts.
    """
    met = np.zeros(len(weight), dtype=np.int64)
    best, work, cut, held = begin, 0.0, 0.0, 0.0
    for p in range(begin, len(order)):
        v = order[p]
        work += time[v]
        held += size[v]
        if work > limit or held > room:
            break
        for q in range(g.edge_ptr[v], g.edge_ptr[v + 1]):
            e = g.edge[q]
            if met[e] == 0:
                cut += weight[e]
            met[e] += 1
            if met[e] == g.end_ptr[e + 1] - g.end_ptr[e]:
                cut -= weight[e]
        if work + cut <= limit:
            best = p + 1
    return best


@kernel
def pair_states(g: Incidence, order: Ints, time: Floats, weight: Floats, most: int) -> tuple[Longs, Longs, Floats]:
    """List the states of the vertices in ``order`` on two devices; see ``build_states``, also for what is returned.

    Row 0 of ``time`` and ``weight`` is the device of bit 1, row 1 that of bit 0. The other vertices stay elsewhere.
    """
    m = weight.shape[1]
    first, last, slot = np.zeros(m, dtype=np.int32), np.zeros(m, dtype=np.int32), np.zeros(m, dtype=np.int32)
    outside, met = np.zeros(m, dtype=np.bool_), np.zeros(m, dtype=np.int32)
    size = (g.end_ptr[1:] - g.end_ptr[:-1]).astype(np.int32)
    if not spans(g.edge_ptr, g.edge, size, order, first, last, slot, outside, met):
        most = 0
    side = np.array([1, 0], dtype=np.int32)
    return build_states(g.edge_ptr, g.edge, order, first, last, slot, outside, time, weight, side, most)


@kernel
def share_out(
    ptr: Longs, follow: Longs, added: Floats, limit: float, fineness: int, labels: Labels, pool: Longs
) -> tuple[Floats, Longs]:
    """List loads that the vertices can make on two devices within a limit, none with less on both.

    Of each state and bucket of the first load the label of least second load (``gain``) is kept: rows (first load,
    second load) by the first, and their ends in the pool (see ``real_sets``). None where the pool is full: ``labels``,
    which is empty before and after (``gain`` is ``FAR``), is not then.
    """
    n = len(ptr) - 2
    one, two, both = added[0], added[1], np.zeros(len(follow))
    rest, rest2 = np.zeros(len(follow)), np.zeros(len(follow))
    for p in range(n - 1, -1, -1):
        for s in range(ptr[p], ptr[p + 1]):
            a, b = follow[s, 0], follow[s, 1]
            rest[s] = min(rest[a] + one[s, 0], rest[b] + one[s, 1])
            rest2[s] = min(rest2[a] + two[s, 0], rest2[b] + two[s, 1])
            both[s] = min(both[a] + one[s, 0] + two[s, 0], both[b] + one[s, 1] + two[s, 1])
    load, load2, tag, low, high = labels.load, labels.gain, labels.tag, labels.low, labels.high
    B, scale, used = fineness, (fineness - 1) / limit, 1
    pool[0] = -1
    load[0, 0], load2[0, 0], tag[0, 0], low[0, 0], high[0, 0] = 0.0, 0.0, 0, 0, 0
    for p in range(n):
        here, there = p & 1, 1 - (p & 1)
        base, base2 = ptr[p], ptr[p + 1]
        for s in range(base2 - base):
            least = FAR
            for j in range(s * B + low[here, s], s * B + high[here, s] + 1):
                y = load2[here, j]
                if y == FAR:
                    continue
                load2[here, j] = FAR
                if y >= least:
                    continue
                least = y
                for b in range(2):
                    t = follow[base + s, b]
                    x2, y2 = load[here, j] + one[base + s, b], y + two[base + s, b]
                    if x2 + rest[t] > limit or y2 + rest2[t] > limit or x2 + y2 + both[t] > 2.0 * limit:
                        continue
                    t -= base2
                    k = int(x2 * scale)
                    if k < low[there, t]:
                        low[there, t] = k
                    if k > high[there, t]:
                        high[there, t] = k
                    k += t * B
                    if y2 < load2[there, k] or (y2 == load2[there, k] and x2 < load[there, k]):
                        load[there, k], load2[there, k], tag[there, k] = x2, y2, tag[here, j] * 2 + b
            low[here, s], high[here, s] = 1 << 40, -1
        for t in range(ptr[p + 2] - base2):
            for k in range(t * B + low[there, t], t * B + high[there, t] + 1):
                if load2[there, k] < FAR:
                    if used >= len(pool):
                        return np.zeros((0, 2)), np.zeros(0, dtype=np.int64)
                    pool[used], tag[there, k] = tag[there, k], used
                    used += 1
    end = n & 1
    found, at, count, least = np.empty((B, 2)), np.empty(B, dtype=np.int64), 0, FAR
    for k in range(low[end, 0], high[end, 0] + 1):
        if load2[end, k] < least:
            least = load2[end, k]
            found[count, 0], found[count, 1], at[count] = load[end, k], least, tag[end, k]
            count += 1
        load2[end, k] = FAR
    low[end, 0], high[end, 0] = 1 << 40, -1
    return found[:count].copy(), at[:count].copy()


@kernel
def with_bits(device: Ints, order: Ints, pool: Longs, label: int, one: int, zero: int) -> Ints:
    """Placement with the vertices of ``order`` where a label has them."""
    changed = device.copy()
    for p in range(len(order) - 1, -1, -1):
        changed[order[p]] = one if pool[label] & 1 else zero
        label = pool[label] >> 1
    return changed
