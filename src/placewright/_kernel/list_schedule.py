"""List scheduling: HEFT with insertion, and ETF. Placement and start times are chosen operator by operator."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from placewright._kernel.schedule import Network, Workspace, send, transfer_time

__all__ = ["etf", "heft", "mean_upward_rank"]

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def _arrival(g: Network, v: int, i: int, device: Ints, w: Workspace) -> tuple[float, bool]:
    """When all inputs of v could be on device i, and whether one of them comes from elsewhere; nothing is changed."""
    ready = 0.0
    remote = False
    for k in range(g.read_ptr[v], g.read_ptr[v + 1]):
        u = g.read[k]
        j = device[g.producer[u]]
        if j == i:
            at = w.finish[g.producer[u]]
        else:
            remote = True
            at = w.arrival[u, i]
            if at < 0.0:
                at = w.finish[g.producer[u]]
                for r in range(4):
                    x = g.resources[j, i, r]
                    if x >= 0 and w.resource_free[x] > at:
                        at = w.resource_free[x]
                at += transfer_time(g, u, j, i)
        if at > ready:
            ready = at
    return ready, remote


@njit(cache=True, nogil=True)
def _commit(g: Network, v: int, i: int, device: Ints, w: Workspace) -> float:
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


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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
    w.resource_free[:] = 0.0
    w.arrival[:] = -1.0
    for position in range(n):
        v = order[position]
        fixed = unit_device[unit_of[v]]
        best, best_end = -1, np.inf
        for i in range(D):
            if fixed >= 0 and i != fixed:
                continue
            if fixed < 0 and resident[unit_of[v]] > free_bytes[i]:
                continue
            ready, remote = _arrival(g, v, i, device, w)
            length = g.processing[v, i] + (g.cut[v, i] if remote else 0.0)
            at, _ = _slot(begins[i], ends[i], count[i], ready, length)
            if at + length < best_end:
                best, best_end = i, at + length
        if best < 0:
            return device, False
        i = best
        device[v] = i
        if fixed < 0:
            unit_device[unit_of[v]] = i
            free_bytes[i] -= resident[unit_of[v]]
        _, remote = _arrival(g, v, i, device, w)
        ready = _commit(g, v, i, device, w)
        length = g.processing[v, i] + (g.cut[v, i] if remote else 0.0)
        at, k = _slot(begins[i], ends[i], count[i], ready, length)
        for m in range(count[i], k, -1):
            begins[i, m] = begins[i, m - 1]
            ends[i, m] = ends[i, m - 1]
        begins[i, k], ends[i, k] = at, at + length
        count[i] += 1
        w.start[v], w.finish[v] = at, at + length
    return device, True


@njit(cache=True, nogil=True)
def etf(
    g: Network, level: Floats, unit_of: Ints, resident: Floats, capacity: Floats, w: Workspace
) -> tuple[Ints, bool]:
    """Place again and again the ready operator that can start earliest anywhere; ties go to the higher level.

    Returns as :func:`heft`.
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
    ready_list = np.empty(n, dtype=np.int64)
    data_at = np.zeros((n, D))
    ready_count = 0
    for v in range(n):
        if waiting[v] == 0:
            ready_list[ready_count] = v
            ready_count += 1
    for _ in range(n):
        best, best_device, best_start = -1, -1, np.inf
        for k in range(ready_count):
            v = ready_list[k]
            fixed = unit_device[unit_of[v]]
            for i in range(D):
                if not np.isfinite(g.processing[v, i]) or (fixed >= 0 and i != fixed):
                    continue
                if fixed < 0 and resident[unit_of[v]] > free_bytes[i]:
                    continue
                at = max(data_at[v, i], w.device_free[i])
                better = at < best_start
                if at == best_start and np.isfinite(at):
                    held = ready_list[best]
                    if v == held:
                        better = g.processing[v, i] < g.processing[v, best_device]
                    else:
                        better = level[v] > level[held] or (level[v] == level[held] and v < held)
                if better:
                    best, best_device, best_start = k, i, at
        if best < 0:
            return device, False
        v, i = ready_list[best], best_device
        ready_count -= 1
        ready_list[best] = ready_list[ready_count]
        device[v] = i
        if unit_device[unit_of[v]] < 0:
            unit_device[unit_of[v]] = i
            free_bytes[i] -= resident[unit_of[v]]
        _, remote = _arrival(g, v, i, device, w)
        at = max(_commit(g, v, i, device, w), w.device_free[i])
        w.start[v] = at
        w.finish[v] = at + g.processing[v, i] + (g.cut[v, i] if remote else 0.0)
        w.device_free[i] = w.finish[v]
        for u in range(g.made_ptr[v], g.made_ptr[v + 1]):
            for k in range(g.reader_ptr[u], g.reader_ptr[u + 1]):
                x = g.reader[k]
                waiting[x] -= 1
                if waiting[x] == 0:
                    for j in range(D):
                        data_at[x, j], _r = _arrival(g, x, j, device, w)
                    ready_list[ready_count] = x
                    ready_count += 1
    return device, True
