"""List scheduling: HEFT with insertion, and ETF. Placement and start times are chosen operator by operator."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import inner, kernel
from placewright._kernel.schedule import Network, Workspace, send

__all__ = ["arrivals", "commit", "etf", "heft", "mean_upward_rank"]

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@kernel
def mean_upward_rank(g: Network) -> Floats:
    """(n,) HEFT's rank: mean processing time over devices plus the longest way down with mean transfer times.

    Topcuoglu, Hariri, Wu 2002, equation 8. Means run over the devices that may run the operator and over the pairs of
    different devices that a link joins.
    """
    n, D = g.processing.shape
    tables = g.transfer.shape[0] > 0
    pairs = 0
    latency = 0.0
    per_byte = 0.0
    for i in range(D):
        for j in range(D):
            if i != j and np.isfinite(g.latency[i, j]):
                pairs += 1
                latency += g.latency[i, j]
                per_byte += g.per_byte[i, j]
    rank = np.zeros(n)
    for v in range(n - 1, -1, -1):
        below = 0.0
        for u in range(g.made_ptr[v], g.made_ptr[v + 1]):
            if g.reader_ptr[u] == g.reader_ptr[u + 1]:
                continue
            c = (latency + g.size[u] * per_byte) / max(pairs, 1)
            if tables:
                total, count = 0.0, 0
                for i in range(D):
                    for j in range(D):
                        if i != j and np.isfinite(g.transfer[u, i, j]):
                            total += g.transfer[u, i, j]
                            count += 1
                c = total / max(count, 1)
            for k in range(g.reader_ptr[u], g.reader_ptr[u + 1]):
                if rank[g.reader[k]] + c > below:
                    below = rank[g.reader[k]] + c
        mean, count = 0.0, 0
        for i in range(D):
            if np.isfinite(g.processing[v, i]):
                mean += g.processing[v, i]
                count += 1
        rank[v] = below + mean / max(count, 1)
    return rank


@inner
def arrivals(g: Network, v: int, device: Ints, w: Workspace, ready: Floats, remote: Bools) -> None:
    """When all inputs of v could be on each device, and whether one comes from elsewhere; no transfer is entered."""
    D = g.processing.shape[1]
    latency, per_byte, transfer, resources = g.latency, g.per_byte, g.transfer, g.resources
    arrival, resource_free = w.arrival, w.resource_free
    tables = transfer.shape[0] > 0
    ready[:] = 0.0
    remote[:] = False
    for k in range(g.read_ptr[v], g.read_ptr[v + 1]):
        u = g.read[k]
        j = device[g.producer[u]]
        made = w.finish[g.producer[u]]
        for i in range(D):
            at = made
            if i != j:
                remote[i] = True
                at = arrival[u, i]
                if at < 0.0:
                    at = made
                    for r in range(4):
                        x = resources[j, i, r]
                        if x >= 0 and resource_free[x] > at:
                            at = resource_free[x]
                    at += transfer[u, j, i] if tables else latency[j, i] + g.size[u] * per_byte[j, i]
            if at > ready[i]:
                ready[i] = at


@inner
def commit(g: Network, v: int, i: int, device: Ints, w: Workspace) -> float:
    """Send to device i what v reads from elsewhere; return when the last of it is there."""
    ready = 0.0
    for k in range(g.read_ptr[v], g.read_ptr[v + 1]):
        u = g.read[k]
        j = device[g.producer[u]]
        if j == i:
            at = w.finish[g.producer[u]]
        else:
            if w.arrival[u, i] < 0.0:
                send(g, u, j, i, w.finish[g.producer[u]], w)
            at = w.arrival[u, i]
        if at > ready:
            ready = at
    return ready


@inner
def _slot(begins: Floats, ends: Floats, count: int, ready: float, length: float) -> tuple[float, int]:
    """Earliest start at or after ``ready`` of a gap of ``length``, and its place among the sorted busy intervals."""
    k = int(np.searchsorted(ends[:count], ready))
    at = ready
    while k < count:
        if k > 0 and ends[k - 1] > at:
            at = ends[k - 1]
        if at + length <= begins[k]:
            return at, k
        k += 1
    if count > 0 and ends[count - 1] > at:
        at = ends[count - 1]
    return at, count


@kernel
def heft(g: Network, order: Ints, unit_of: Ints, resident: Floats, capacity: Floats, w: Workspace) -> tuple[Ints, bool]:
    """Place operators in ``order``, each where it would finish first, in gaps too.

    Returns
    -------
    device : (n,)
    complete : bool
        False when an operator found no device with time and memory for it; start times are in the workspace.
    """
    n, D = g.processing.shape
    device = np.full(n, -1, dtype=np.int32)
    unit_device = np.full(len(resident), -1, dtype=np.int32)
    free_bytes = capacity.copy()
    begins = np.zeros((D, n))
    ends = np.zeros((D, n))
    count = np.zeros(D, dtype=np.int64)
    ready_at, remote = np.zeros(D), np.zeros(D, dtype=np.bool_)
    w.resource_free[:] = 0.0
    w.arrival[:] = -1.0
    for position in range(n):
        v = order[position]
        fixed = unit_device[unit_of[v]]
        best, best_end = -1, np.inf
        arrivals(g, v, device, w, ready_at, remote)
        for i in range(D):
            if fixed >= 0 and i != fixed:
                continue
            if fixed < 0 and resident[unit_of[v]] > free_bytes[i]:
                continue
            length = g.processing[v, i] + (g.cut[v, i] if remote[i] else 0.0)
            if ready_at[i] + length >= best_end:
                continue
            at, _ = _slot(begins[i], ends[i], count[i], ready_at[i], length)
            if at + length < best_end:
                best, best_end = i, at + length
        if best < 0:
            return device, False
        i = best
        device[v] = i
        if fixed < 0:
            unit_device[unit_of[v]] = i
            free_bytes[i] -= resident[unit_of[v]]
        ready = commit(g, v, i, device, w)
        length = g.processing[v, i] + (g.cut[v, i] if remote[i] else 0.0)
        at, k = _slot(begins[i], ends[i], count[i], ready, length)
        for m in range(count[i], k, -1):
            begins[i, m] = begins[i, m - 1]
            ends[i, m] = ends[i, m - 1]
        begins[i, k], ends[i, k] = at, at + length
        count[i] += 1
        w.start[v], w.finish[v] = at, at + length
    return device, True


@inner
def _before(first: Floats, second: Floats, v: int, x: int) -> bool:
    """Whether v comes before x: less of ``first``, then more of ``second``, then the lower number."""
    if first[v] != first[x]:
        return bool(first[v] < first[x])
    if second[v] != second[x]:
        return bool(second[v] > second[x])
    return v < x


@inner
def _push(heap: Ints, count: int, first: Floats, second: Floats, v: int) -> int:
    """Put v on a heap of ``count`` operators, the first of them on top; return the new count."""
    k = count
    while k > 0:
        above = (k - 1) // 2
        if not _before(first, second, v, heap[above]):
            break
        heap[k] = heap[above]
        k = above
    heap[k] = v
    return count + 1


@inner
def _pop(heap: Ints, count: int, first: Floats, second: Floats) -> int:
    """Take the top off a heap; return the new count."""
    count -= 1
    v = heap[count]
    k = 0
    while True:
        below = 2 * k + 1
        if below >= count:
            break
        if below + 1 < count and _before(first, second, heap[below + 1], heap[below]):
            below += 1
        if not _before(first, second, heap[below], v):
            break
        heap[k] = heap[below]
        k = below
    heap[k] = v
    return count


@kernel
def etf(
    g: Network, level: Floats, unit_of: Ints, resident: Floats, capacity: Floats, w: Workspace
) -> tuple[Ints, bool]:
    """Place again and again the ready operator that can start earliest anywhere; ties go to the higher level.

    Each device has two heaps of ready operators: those whose inputs could be there when it is free, by level, and those
    that it would wait for, by the time it would wait until. What was placed, or can't be placed there any more, is
    dropped when it comes to the top.

    Returns as :func:`heft`. Complexity O(E D + n D log n).
    """
    n, D = g.processing.shape
    device = np.full(n, -1, dtype=np.int32)
    unit_device = np.full(len(resident), -1, dtype=np.int32)
    free_bytes = capacity.copy()
    w.resource_free[:] = 0.0
    w.device_free[:] = 0.0
    w.arrival[:] = -1.0
    waiting = np.zeros(n, dtype=np.int64)
    for v in range(n):
        waiting[v] = g.read_ptr[v + 1] - g.read_ptr[v]
    data_at, nothing = np.zeros((D, n)), np.zeros(n)
    now, later = np.empty((D, n), dtype=np.int32), np.empty((D, n), dtype=np.int32)
    now_count, later_count = np.zeros(D, dtype=np.int64), np.zeros(D, dtype=np.int64)
    ready_at, remote = np.zeros(D), np.zeros(D, dtype=np.bool_)
    for v in range(n):
        if waiting[v] == 0:
            for i in range(D):
                if np.isfinite(g.processing[v, i]):
                    now_count[i] = _push(now[i], now_count[i], nothing, level, v)
    for _ in range(n):
        best, best_device, best_start = -1, -1, np.inf
        for i in range(D):
            while now_count[i] > 0 and _gone(now[i, 0], i, device, unit_of, unit_device, resident, free_bytes):
                now_count[i] = _pop(now[i], now_count[i], nothing, level)
            while later_count[i] > 0 and _gone(later[i, 0], i, device, unit_of, unit_device, resident, free_bytes):
                later_count[i] = _pop(later[i], later_count[i], data_at[i], level)
            if now_count[i] > 0:
                v, at = now[i, 0], w.device_free[i]
            elif later_count[i] > 0:
                v, at = later[i, 0], data_at[i, later[i, 0]]
            else:
                continue
            better = at < best_start
            if at == best_start and np.isfinite(at):
                if v == best:
                    better = g.processing[v, i] < g.processing[v, best_device]
                else:
                    better = level[v] > level[best] or (level[v] == level[best] and v < best)
            if better:
                best, best_device, best_start = v, i, at
        if best < 0:
            return device, False
        v, i = best, best_device
        device[v] = i
        if unit_device[unit_of[v]] < 0:
            unit_device[unit_of[v]] = i
            free_bytes[i] -= resident[unit_of[v]]
        cut = 0.0
        for k in range(g.read_ptr[v], g.read_ptr[v + 1]):
            if device[g.producer[g.read[k]]] != i:
                cut = g.cut[v, i]
        at = max(commit(g, v, i, device, w), w.device_free[i])
        w.start[v] = at
        w.finish[v] = at + g.processing[v, i] + cut
        w.device_free[i] = w.finish[v]
        while later_count[i] > 0 and data_at[i, later[i, 0]] <= w.device_free[i]:
            x = later[i, 0]
            later_count[i] = _pop(later[i], later_count[i], data_at[i], level)
            now_count[i] = _push(now[i], now_count[i], nothing, level, x)
        for u in range(g.made_ptr[v], g.made_ptr[v + 1]):
            for k in range(g.reader_ptr[u], g.reader_ptr[u + 1]):
                x = g.reader[k]
                waiting[x] -= 1
                if waiting[x] > 0:
                    continue
                arrivals(g, x, device, w, ready_at, remote)
                for j in range(D):
                    if not np.isfinite(g.processing[x, j]) or not np.isfinite(ready_at[j]):
                        continue
                    data_at[j, x] = ready_at[j]
                    if ready_at[j] <= w.device_free[j]:
                        now_count[j] = _push(now[j], now_count[j], nothing, level, x)
                    else:
                        later_count[j] = _push(later[j], later_count[j], data_at[j], level, x)
    return device, True


@kernel(inline="always")
def _gone(v: int, i: int, device: Ints, unit_of: Ints, unit_device: Ints, resident: Floats, free_bytes: Floats) -> bool:
    """Whether v is placed, or its unit elsewhere, or device i has no room for the unit any more."""
    fixed = unit_device[unit_of[v]]
    if device[v] >= 0:
        return True
    return bool(fixed != i) if fixed >= 0 else bool(resident[unit_of[v]] > free_bytes[i])
