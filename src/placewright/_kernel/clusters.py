"""Clusters of operators that follow each other in a topological order: the order, where to cut it, and a placement."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import inner, kernel
from placewright._kernel.list_schedule import commit
from placewright._kernel.schedule import Network, Workspace

__all__ = ["depth_first_order", "place_clusters", "sequential_partition"]

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


@kernel
def depth_first_order(g: Network, level: Floats) -> Ints:
    """(n,) topological order: next comes, of the operators made ready last, the one of the highest ``level``.

    Operators that one operator makes ready, and those that wait for nothing, go by falling level, ties by number.
    """
    n = g.processing.shape[0]
    waiting = np.zeros(n, dtype=np.int64)
    for v in range(n):
        waiting[v] = g.read_ptr[v + 1] - g.read_ptr[v]
    stack, count = np.empty(n, dtype=np.int32), 0
    order = np.empty(n, dtype=np.int32)
    for v in range(n):
        if waiting[v] == 0:
            stack[count] = v
            count += 1
    _by_level(stack, 0, count, level)
    for position in range(n):
        count -= 1
        v = stack[count]
        order[position] = v
        first = count
        for k in range(g.reader_ptr[g.made_ptr[v]], g.reader_ptr[g.made_ptr[v + 1]]):
            x = g.reader[k]
            waiting[x] -= 1
            if waiting[x] == 0:
                stack[count] = x
                count += 1
        _by_level(stack, first, count, level)
    return order


@inner
def _by_level(stack: Ints, first: int, last: int, level: Floats) -> None:
    """Sort ``stack[first:last]`` by rising level, the lower number of equal ones last."""
    some = np.sort(stack[first:last])[::-1]
    by_level = np.argsort(level[some], kind="mergesort")
    for k in range(last - first):
        stack[first + k] = some[by_level[k]]


@kernel
def sequential_partition(
    g: Network, order: Ints, seconds: Floats, bytes_: Floats, most_seconds: float, most_bytes: float, most: int
) -> Ints:
    """Cut an order into clusters so that the bytes read across cuts are fewest (Kernighan 1971).

    best[j] = max over i < j of best[i] + inside(i, j) for clusters order[i:j] within the limits, where inside(i, j)
    sums the bytes of each read whose two ends lie in the cluster; ties go to the longest cluster. Limits don't bind a
    cluster of one operator.

    Returns
    -------
    cut_ptr : (K+1,)
        Cluster k is order[cut_ptr[k]:cut_ptr[k+1]].
    """
    n = len(order)
    position = np.empty(n, dtype=np.int64)
    for k in range(n):
        position[order[k]] = k
    best, came = np.zeros(n + 1), np.zeros(n + 1, dtype=np.int64)
    inside, added = np.zeros(n), np.zeros(n)
    low = 0
    for j in range(1, n + 1):
        v = order[j - 1]
        low = max(low, j - most)
        for k in range(g.read_ptr[v], g.read_ptr[v + 1]):
            at = position[g.producer[g.read[k]]]
            if at >= low:
                added[at] += g.size[g.read[k]]
        total, time_, held = 0.0, 0.0, 0.0
        best[j], came[j] = -1.0, j - 1
        for i in range(j - 1, low - 1, -1):
            total += added[i]
            added[i] = 0.0
            inside[i] += total
            time_ += seconds[order[i]]
            held += bytes_[order[i]]
            if i < j - 1 and (time_ > most_seconds or held > most_bytes):
                # Longer clusters that end here or later are beyond the limits too.
                for m in range(low, i):
                    added[m] = 0.0
                low = i + 1
                break
            if best[i] + inside[i] >= best[j]:
                best[j], came[j] = best[i] + inside[i], i
    clusters, j = 0, n
    while j > 0:
        j = came[j]
        clusters += 1
    cut_ptr = np.empty(clusters + 1, dtype=np.int32)
    j = n
    for k in range(clusters, -1, -1):
        cut_ptr[k] = j
        if k > 0:
            j = came[j]
    return cut_ptr


@kernel
def place_clusters(
    g: Network, order: Ints, cut_ptr: Ints, unit_of: Ints, resident: Floats, capacity: Floats, w: Workspace
) -> tuple[Ints, bool]:
    """Place each cluster in turn on the device where its last operator would finish first.

    What no device can take whole is placed operator by operator. Returns as
    :func:`placewright._kernel.list_schedule.heft`; the schedule is in the workspace.
    """
    device = np.full(len(order), -1, dtype=np.int32)
    unit_device = np.full(len(resident), -1, dtype=np.int32)
    free_bytes = capacity.copy()
    w.resource_free[:] = 0.0
    w.device_free[:] = 0.0
    w.arrival[:] = -1.0
    for k in range(len(cut_ptr) - 1):
        first, last = cut_ptr[k], cut_ptr[k + 1]
        at = _first_to_finish(g, order, first, last, device, unit_of, unit_device, resident, free_bytes, w)
        if at >= 0:
            _run(g, order, first, last, at, device, unit_of, unit_device, resident, free_bytes, w)
            continue
        for m in range(first, last):
            at = _first_to_finish(g, order, m, m + 1, device, unit_of, unit_device, resident, free_bytes, w)
            if at < 0:
                return device, False
            _run(g, order, m, m + 1, at, device, unit_of, unit_device, resident, free_bytes, w)
    return device, True


@inner
def _first_to_finish(
    g: Network, order: Ints, first: int, last: int, device: Ints, unit_of: Ints, unit_device: Ints, resident: Floats,
    free_bytes: Floats, w: Workspace,
) -> int:  # fmt: skip
    """Device that could take order[first:last] whole and would finish it first; -1: none."""
    D = g.processing.shape[1]
    ready, remote = np.zeros(D), np.zeros(D, dtype=np.bool_)
    finish, needed = w.device_free.copy(), np.zeros(D)
    for m in range(first, last):
        v = order[m]
        _ready_outside(g, v, device, w, ready, remote)
        unit = unit_of[v]
        counted = unit_device[unit] >= 0
        for x in range(first, m):
            counted = counted or unit_of[order[x]] == unit
        for i in range(D):
            if not counted:
                needed[i] += resident[unit]
            if (unit_device[unit] >= 0 and unit_device[unit] != i) or needed[i] > free_bytes[i]:
                finish[i] = np.inf
            finish[i] = max(finish[i], ready[i]) + g.processing[v, i] + (g.cut[v, i] if remote[i] else 0.0)
    best = -1
    for i in range(D):
        if np.isfinite(finish[i]) and (best < 0 or finish[i] < finish[best]):
            best = i
    return best


@inner
def _ready_outside(
    g: Network, v: int, device: Ints, w: Workspace, ready: Floats, remote: npt.NDArray[np.bool_]
) -> None:
    """When what v reads of operators that are placed could be on each device, and whether it comes from elsewhere."""
    D = len(ready)
    ready[:] = 0.0
    remote[:] = False
    for k in range(g.read_ptr[v], g.read_ptr[v + 1]):
        u = g.read[k]
        j = device[g.producer[u]]
        if j < 0:
            continue
        for i in range(D):
            at = w.finish[g.producer[u]]
            if i != j:
                remote[i] = True
                if w.arrival[u, i] >= 0.0:
                    at = w.arrival[u, i]
                else:
                    for r in range(4):
                        x = g.resources[j, i, r]
                        if x >= 0:
                            at = max(at, w.resource_free[x])
                    at += g.transfer[u, j, i] if len(g.transfer) else g.latency[j, i] + g.size[u] * g.per_byte[j, i]
            ready[i] = max(ready[i], at)


@inner
def _run(
    g: Network, order: Ints, first: int, last: int, i: int, device: Ints, unit_of: Ints, unit_device: Ints,
    resident: Floats, free_bytes: Floats, w: Workspace,
) -> None:  # fmt: skip
    """Place order[first:last] on device i and enter what it takes there into the workspace."""
    for m in range(first, last):
        v = order[m]
        device[v] = i
        if unit_device[unit_of[v]] < 0:
            unit_device[unit_of[v]] = i
            free_bytes[i] -= resident[unit_of[v]]
        cut = 0.0
        for k in range(g.read_ptr[v], g.read_ptr[v + 1]):
            if device[g.producer[g.read[k]]] != i:
                cut = g.cut[v, i]
        w.start[v] = max(commit(g, v, i, device, w), w.device_free[i])
        w.finish[v] = w.start[v] + g.processing[v, i] + cut
        w.device_free[i] = w.finish[v]
