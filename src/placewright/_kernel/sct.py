"""Small communication times: earliest time first in which a device waits for its last operator's favourite child."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import kernel
from placewright._kernel.list_schedule import arrivals, commit
from placewright._kernel.schedule import Network, Workspace

__all__ = ["small_communication_times"]

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


@kernel
def small_communication_times(
    g: Network, favourite: Ints, unit_of: Ints, resident: Floats, capacity: Floats, w: Workspace
) -> tuple[Ints, bool]:
    """Place again and again the pair of ready operator and device that can start first.

    A device is awake while the favourite child of its last operator is ready, not placed, and could start nowhere
    earlier. It then takes that child, or another operator from the time on at which it is urgent: when its inputs
    could be on every device that may run it. Ties: an urgent operator before a favourite child, then the earlier
    urgent one (on a device that is awake), then the lower number, then the faster device.

    Parameters
    ----------
    favourite : (n,) the favourite child of each operator, -1: none
    unit_of, resident, capacity, w
        As :func:`placewright._kernel.list_schedule.heft`.

    Returns
    -------
    device : (n,)
    complete : bool
        False when no ready operator has a device with time and memory for it.
    """
    n, D = g.processing.shape
    device = np.full(n, -1, dtype=np.int32)
    unit_device = np.full(len(resident), -1, dtype=np.int32)
    free_bytes = capacity.copy()
    w.resource_free[:] = 0.0
    w.device_free[:] = 0.0
    w.arrival[:] = -1.0
    waiting = np.zeros(n, dtype=np.int64)
    ready, count = np.empty(n, dtype=np.int64), 0
    data_at, urgent_at = np.zeros((n, D)), np.zeros(n)
    remote = np.zeros(D, dtype=np.bool_)
    last = np.full(D, -1, dtype=np.int64)
    child = np.full(D, -1, dtype=np.int64)
    for v in range(n):
        waiting[v] = g.read_ptr[v + 1] - g.read_ptr[v]
        if waiting[v] == 0:
            ready[count] = v
            count += 1
    for _ in range(n):
        for i in range(D):
            child[i] = -1
            f = favourite[last[i]] if last[i] >= 0 else -1
            if (
                f >= 0
                and device[f] < 0
                and waiting[f] == 0
                and _may(g, f, i, unit_of, unit_device, resident, free_bytes)
            ):
                here, first = max(data_at[f, i], w.device_free[i]), np.inf
                for j in range(D):
                    if _may(g, f, j, unit_of, unit_device, resident, free_bytes):
                        first = min(first, max(data_at[f, j], w.device_free[j]))
                if here <= first:
                    child[i] = f
        best, best_device, best_start, best_child, best_urgent = -1, -1, np.inf, False, np.inf
        for k in range(count):
            v = ready[k]
            for i in range(D):
                if not _may(g, v, i, unit_of, unit_device, resident, free_bytes):
                    continue
                at, own = max(data_at[v, i], w.device_free[i]), child[i] == v
                urgent = 0.0
                if child[i] >= 0 and not own:
                    at, urgent = max(at, urgent_at[v]), urgent_at[v]
                if not np.isfinite(at) or at > best_start:
                    continue
                if at == best_start:
                    if own != best_child:
                        if own:
                            continue
                    elif urgent != best_urgent:
                        if urgent > best_urgent:
                            continue
                    elif ready[best] != v:
                        if v > ready[best]:
                            continue
                    elif g.processing[v, i] >= g.processing[v, best_device]:
                        continue
                best, best_device, best_start, best_child, best_urgent = k, i, at, own, urgent
        if best < 0:
            return device, False
        v, i = ready[best], best_device
        count -= 1
        ready[best] = ready[count]
        device[v] = i
        if unit_device[unit_of[v]] < 0:
            unit_device[unit_of[v]] = i
            free_bytes[i] -= resident[unit_of[v]]
        cut = 0.0
        for k in range(g.read_ptr[v], g.read_ptr[v + 1]):
            if device[g.producer[g.read[k]]] != i:
                cut = g.cut[v, i]
        at = max(commit(g, v, i, device, w), best_start)
        w.start[v] = at
        w.finish[v] = at + g.processing[v, i] + cut
        w.device_free[i] = w.finish[v]
        last[i] = v
        for u in range(g.made_ptr[v], g.made_ptr[v + 1]):
            for k in range(g.reader_ptr[u], g.reader_ptr[u + 1]):
                x = g.reader[k]
                waiting[x] -= 1
                if waiting[x] > 0:
                    continue
                arrivals(g, x, device, w, data_at[x], remote)
                for j in range(D):
                    if np.isfinite(g.processing[x, j]) and np.isfinite(data_at[x, j]):
                        urgent_at[x] = max(urgent_at[x], data_at[x, j])
                ready[count] = x
                count += 1
    return device, True


@kernel(inline="always")
def _may(g: Network, v: int, i: int, unit_of: Ints, unit_device: Ints, resident: Floats, free_bytes: Floats) -> bool:
    """Whether device i can run v, is where its unit is, and has room for the unit where that is nowhere yet."""
    if not np.isfinite(g.processing[v, i]):
        return False
    fixed = unit_device[unit_of[v]]
    return bool(fixed == i) if fixed >= 0 else bool(resident[unit_of[v]] <= free_bytes[i])
