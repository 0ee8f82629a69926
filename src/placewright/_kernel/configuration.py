"""Sets of units under a limit of load: a dynamic program over a vertex order, with the open tensors as its state."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import kernel

__all__ = [
    "MOST_OPEN",
    "Incidence",
    "Labels",
    "States",
    "build_states",
    "completion",
    "dual",
    "greedy_order",
    "real_sets",
    "spans",
    "upper_labels",
    "width_score",
]

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

MOST_OPEN = 31
"""Edges that may be open at once: two bits each of a 64-bit code."""

NONE = -1e300


class Incidence(NamedTuple):
    """A hypergraph: edges of each vertex, ends of each edge, ragged."""

    edge_ptr: Ints
    edge: Ints
    end_ptr: Ints
    end: Ints


class States(NamedTuple):
    """Reachable states of a vertex order; those before position p are ``ptr[p]..ptr[p+1]-1``."""

    ptr: Longs
    follow: Longs
    """(S, 2) next state without and with the vertex."""
    added: Floats
    """(R, S, 2) load that this adds, by row."""


class Labels(NamedTuple):
    """Work space for the labels of two neighbouring layers; a cell is empty where ``gain`` is ``NONE``."""

    load: Floats
    gain: Floats
    tag: Longs
    low: Longs
    high: Longs
    """(2, W) first and last bucket in use of each state."""


@kernel
def greedy_order(g: Incidence, start: int, rng: np.random.Generator) -> Ints:
    """Order the vertices from ``start``: always the one that leaves fewest edges open, ties at random."""
    edge_ptr, edge, end_ptr, end = g.edge_ptr, g.edge, g.end_ptr, g.end
    n = len(edge_ptr) - 1
    left = end_ptr[1:] - end_ptr[:-1]
    order = np.empty(n, dtype=np.int32)
    near = np.empty(n, dtype=np.int64)
    state = np.zeros(n, dtype=np.int8)
    n_near, scanned = 0, 0
    for p in range(n):
        v = start
        if p > 0:
            if n_near == 0:
                while state[scanned] != 0:
                    scanned += 1
                near[0], n_near, state[scanned] = scanned, 1, 1
            best, at = 1e300, 0
            for k in range(n_near):
                u = near[k]
                opened, linked = 0, 0
                for q in range(edge_ptr[u], edge_ptr[u + 1]):
                    e = edge[q]
                    if left[e] == 1:
                        opened -= 1
                    elif left[e] == end_ptr[e + 1] - end_ptr[e]:
                        opened += 1
                    else:
                        linked += 1
                score = opened - 1e-4 * linked + 1e-5 * rng.random()
                if score < best:
                    best, at = score, k
            v = near[at]
            n_near -= 1
            near[at] = near[n_near]
        state[v], order[p] = 2, v
        for q in range(edge_ptr[v], edge_ptr[v + 1]):
            e = edge[q]
            if left[e] == end_ptr[e + 1] - end_ptr[e]:
                for x in range(end_ptr[e], end_ptr[e + 1]):
                    if state[end[x]] == 0:
                        state[end[x]] = 1
                        near[n_near] = end[x]
                        n_near += 1
            left[e] -= 1
    return order


@kernel
def width_score(g: Incidence, order: Ints) -> float:
    """Estimate the states of an order: the sum of 1.8 to the number of open edges over the positions."""
    n, m = len(order), len(g.end_ptr) - 1
    place, change = np.empty(n, dtype=np.int64), np.zeros(n + 1, dtype=np.int64)
    for p in range(n):
        place[order[p]] = p
    for e in range(m):
        first, last = n, 0
        for x in range(g.end_ptr[e], g.end_ptr[e + 1]):
            first, last = min(first, place[g.end[x]]), max(last, place[g.end[x]])
        change[first] += 1
        change[last] -= 1
    score, opened = 0.0, 0
    for p in range(n):
        opened += change[p]
        score += 1.8**opened
    return score


@kernel
def spans(
    edge_ptr: Ints, edge: Ints, size: Ints, order: Ints, first: Ints, last: Ints, slot: Ints, outside: Bools, met: Ints
) -> bool:
    """Find where each edge of the vertices in ``order`` opens and closes, and a slot of the code meanwhile.

    ``outside``: whether the edge has ends that are not in the order. ``met`` is zero before and after. False: more than
    ``MOST_OPEN`` are open at once.
    """
    n = len(order)
    for p in range(n):
        v = order[p]
        for q in range(edge_ptr[v], edge_ptr[v + 1]):
            e = edge[q]
            if met[e] == 0:
                first[e] = p
            last[e] = p
            met[e] += 1
    free, fits = np.ones(MOST_OPEN, dtype=np.bool_), True
    for p in range(n):
        v = order[p]
        for q in range(edge_ptr[v], edge_ptr[v + 1]):
            e = edge[q]
            outside[e] = met[e] < size[e]
            if first[e] == p:
                slot[e] = 0
                if last[e] > p:
                    k = 0
                    while k < MOST_OPEN and not free[k]:
                        k += 1
                    if k == MOST_OPEN:
                        fits = False
                    else:
                        free[k], slot[e] = False, k
        for q in range(edge_ptr[v], edge_ptr[v + 1]):
            e = edge[q]
            if last[e] == p and first[e] < p:
                free[slot[e]] = True
    for p in range(n):
        v = order[p]
        for q in range(edge_ptr[v], edge_ptr[v + 1]):
            met[edge[q]] = 0
    return fits


@kernel
def build_states(
    edge_ptr: Ints,
    edge: Ints,
    order: Ints,
    first: Ints,
    last: Ints,
    slot: Ints,
    outside: Bools,
    time: Floats,
    weight: Floats,
    side: Ints,
    most: int,
) -> tuple[Longs, Longs, Floats]:
    """List the states: of each open edge, whether the vertices so far are all out, all in, or on both sides.

    Row r of ``time`` and ``weight`` is a device that holds the vertices of side ``side[r]`` (1: in, 0: out). It pays
    an edge as soon as both sides have an end, and one with ends outside as soon as its own side has. Arrays without
    states when there are more than ``most``.
    """
    n, R = len(order), len(side)
    ptr = np.zeros(n + 2, dtype=np.int64)
    ptr[1] = 1
    room = 1024
    follow, added = np.empty((room, 2), dtype=np.int64), np.zeros((R, room, 2))
    current = np.zeros(1, dtype=np.int64)
    total = 1
    for p in range(n):
        v, S = order[p], len(current)
        if ptr[p] + 3 * S > room:
            while ptr[p] + 3 * S > room:
                room *= 2
            wider, longer = np.empty((room, 2), dtype=np.int64), np.zeros((R, room, 2))
            wider[: ptr[p]] = follow[: ptr[p]]
            longer[:, : ptr[p]] = added[:, : ptr[p]]
            follow, added = wider, longer
        codes = np.empty(2 * S, dtype=np.int64)
        for s in range(S):
            at = ptr[p] + s
            for b in range(2):
                code = current[s]
                for r in range(R):
                    added[r, at, b] = time[r, v] if side[r] == b else 0.0
                for q in range(edge_ptr[v], edge_ptr[v + 1]):
                    e = edge[q]
                    shift = 2 * slot[e]
                    now = b
                    if first[e] == p:
                        if outside[e]:
                            for r in range(R):
                                if side[r] == b:
                                    added[r, at, b] += weight[r, e]
                    else:
                        now = (code >> shift) & 3
                        if now != 2 and now != b:
                            for r in range(R):
                                if side[r] == b or not outside[e]:
                                    added[r, at, b] += weight[r, e]
                            now = 2
                        code &= ~(3 << shift)
                    if last[e] > p:
                        code |= now << shift
                codes[2 * s + b] = code
        found = np.unique(codes)
        if total + len(found) > most:
            return ptr[:0], follow[:0], added[:, :0]
        rank = np.searchsorted(found, codes)
        for s in range(S):
            follow[ptr[p] + s, 0], follow[ptr[p] + s, 1] = total + rank[2 * s], total + rank[2 * s + 1]
        current = found
        total += len(found)
        ptr[p + 2] = total
    return ptr, follow[:total].copy(), added[:, :total].copy()


@kernel
def completion(ptr: Longs, follow: Longs, added: Floats, profit: Floats, price: float, best: Floats) -> None:
    """Fill ``best``: of each state the most that can still be made of profit - price x load, without any limit."""
    n = len(ptr) - 2
    best[ptr[n]] = 0.0
    for p in range(n - 1, -1, -1):
        for s in range(ptr[p], ptr[p + 1]):
            without = best[follow[s, 0]] - price * added[s, 0]
            with_it = best[follow[s, 1]] - price * added[s, 1] + profit[p]
            best[s] = max(without, with_it)


@kernel
def dual(
    ptr: Longs, follow: Longs, added: Floats, profit: Floats, limit: float, floor: float, best: Floats
) -> tuple[float, float]:
    """Bound the profit of sets whose load is within the limit by a Lagrangian; price of load, bound.

    Any price gives a bound; the best is sought by bisection, until one is at or below ``floor``.
    """
    n = len(ptr) - 2
    worth = np.abs(profit).sum()
    low, high = 0.0, max(1e-12, worth / max(limit, 1e-9 * worth, 1e-300)) * 4  # the limit may be 0
    least, at = 1e300, 0.0
    for k in range(40):
        price = 0.5 * (low + high) if k > 0 else 0.0
        completion(ptr, follow, added, profit, price, best)
        value = price * limit + best[0]
        if value < least:
            least, at = value, price
        if least <= floor:
            break
        s, load = 0, 0.0
        for p in range(n):
            without = best[follow[s, 0]] - price * added[s, 0]
            b = 0 if without >= best[follow[s, 1]] - price * added[s, 1] + profit[p] else 1
            load += added[s, b]
            s = follow[s, b]
        if load > limit:
            low = price
        else:
            high = price
        if high - low < 1e-7 * high:
            break
    return at, least


@kernel
def upper_labels(
    ptr: Longs, follow: Longs, added: Floats, profit: Floats, limit: float, floor: float, prices: Floats, best: Floats,
    buckets: Longs, labels: Labels, begin: int, work: int,
) -> int:  # fmt: skip
    """Go on from layer ``begin`` until about ``work`` labels are made; the layer reached.

    A label is the least load and the most profit of all sets of a state in a bucket of load, so that no set is better
    than its label. Labels that can't end above ``floor`` under some price are dropped.
    """
    n, K = len(ptr) - 2, len(prices)
    done, p = 0, begin
    while p < n and done < work:
        here, there = p & 1, 1 - (p & 1)
        load, gain, low, high = labels.load[here], labels.gain[here], labels.low[here], labels.high[here]
        load2, gain2, low2, high2 = labels.load[there], labels.gain[there], labels.low[there], labels.high[there]
        B, B2, base, base2 = buckets[p], buckets[p + 1], ptr[p], ptr[p + 1]
        scale = (B2 - 1) / max(limit, 1e-300)  # the limit may be 0
        for s in range(base2 - base):
            most = NONE
            for j in range(s * B + low[s], s * B + high[s] + 1):
                made = gain[j]
                if made == NONE:
                    continue
                gain[j] = NONE
                if made <= most:
                    continue
                most = made
                done += 1
                for b in range(2):
                    t = follow[base + s, b]
                    x = load[j] + added[base + s, b]
                    y = made + profit[p] if b == 1 else made
                    if x > limit:
                        continue
                    keep = True
                    for q in range(K):
                        if y + prices[q] * (limit - x) + best[q, t] <= floor:
                            keep = False
                            break
                    if not keep:
                        continue
                    t -= base2
                    k = int(x * scale)
                    if k < low2[t]:
                        low2[t] = k
                    if k > high2[t]:
                        high2[t] = k
                    k += t * B2
                    if gain2[k] == NONE:
                        gain2[k], load2[k] = y, x
                    else:
                        gain2[k], load2[k] = max(y, gain2[k]), min(x, load2[k])
            done += (high[s] - low[s]) >> 3 if high[s] >= 0 else 0
            low[s], high[s] = 1 << 40, -1
        p += 1
    return p


@kernel
def real_sets(
    ptr: Longs, follow: Longs, added: Floats, profit: Floats, limit: float, floor: float, prices: Floats, best: Floats,
    buckets: Longs, labels: Labels, pool: Ints, begin: int, used: int, work: int,
) -> tuple[int, int]:  # fmt: skip
    """Like :func:`upper_labels`, but a label is a set, of a bucket the one of most profit; layer, labels in the pool.

    ``pool`` holds twice the number of a label's parent, plus 1 if the vertex is in. -1 labels: it is full.
    """
    n, K = len(ptr) - 2, len(prices)
    done, p = 0, begin
    while p < n and done < work:
        here, there = p & 1, 1 - (p & 1)
        load, gain, low, high = labels.load[here], labels.gain[here], labels.low[here], labels.high[here]
        load2, gain2, low2, high2 = labels.load[there], labels.gain[there], labels.low[there], labels.high[there]
        tag, tag2 = labels.tag[here], labels.tag[there]
        B, B2, base, base2 = buckets[p], buckets[p + 1], ptr[p], ptr[p + 1]
        scale = (B2 - 1) / max(limit, 1e-300)  # the limit may be 0
        for s in range(base2 - base):
            most = NONE
            for j in range(s * B + low[s], s * B + high[s] + 1):
                made = gain[j]
                if made == NONE:
                    continue
                gain[j] = NONE
                if made <= most:
                    continue
                most = made
                done += 1
                for b in range(2):
                    t = follow[base + s, b]
                    x = load[j] + added[base + s, b]
                    y = made + profit[p] if b == 1 else made
                    if x > limit:
                        continue
                    keep = True
                    for q in range(K):
                        if y + prices[q] * (limit - x) + best[q, t] <= floor:
                            keep = False
                            break
                    if not keep:
                        continue
                    t -= base2
                    k = int(x * scale)
                    if k < low2[t]:
                        low2[t] = k
                    if k > high2[t]:
                        high2[t] = k
                    k += t * B2
                    if y > gain2[k] or (y == gain2[k] and x < load2[k]):
                        gain2[k], load2[k], tag2[k] = y, x, tag[j] * 2 + b
            done += (high[s] - low[s]) >> 3 if high[s] >= 0 else 0
            low[s], high[s] = 1 << 40, -1
        for t in range(ptr[p + 2] - base2):
            for k in range(t * B2 + low2[t], t * B2 + high2[t] + 1):
                if gain2[k] != NONE:
                    if used >= len(pool):
                        return p, -1
                    pool[used], tag2[k] = tag2[k], used
                    used += 1
        p += 1
    return p, used
