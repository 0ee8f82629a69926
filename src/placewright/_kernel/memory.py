"""Peak of the live tensors on each device."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import kernel
from placewright._kernel.schedule import Network, Workspace

__all__ = ["peak_activations"]


@kernel
def peak_activations(
    g: Network, device: npt.NDArray[np.int32], output: npt.NDArray[np.bool_], w: Workspace
) -> npt.NDArray[np.float64]:
    """(D,) largest sum of live bytes at any instant of the schedule in the workspace.

    On its producer's device a tensor lives from the producer's start to the latest finish of the producer, its readers
    there and the transfers that take it away; an ``output`` of the network lives to the end. On another device it
    lives from the start of its transfer to the finish of its last reader there. Intervals are half open.
    """
    T, D = w.arrival.shape
    most = T + len(g.reader)  # once where it is made, and once at most for each reader
    births = np.empty(most)
    deaths = np.empty(most)
    bytes_ = np.empty(most)
    where = np.empty(most, dtype=np.int32)
    until = np.empty(D)
    m = 0
    for u in range(T):
        if g.size[u] == 0.0:
            continue
        v = g.producer[u]
        home = device[v]
        until[:] = -1.0
        until[home] = w.finish[v]
        for k in range(g.reader_ptr[u], g.reader_ptr[u + 1]):
            x = g.reader[k]
            if w.finish[x] > until[device[x]]:
                until[device[x]] = w.finish[x]
        for j in range(D):
            if j != home and until[j] >= 0.0:
                if w.arrival[u, j] > until[home]:
                    until[home] = w.arrival[u, j]
                if until[j] > w.sent[u, j]:
                    births[m], deaths[m], bytes_[m], where[m] = w.sent[u, j], until[j], g.size[u], j
                    m += 1
        if output[u]:
            until[home] = np.inf
        if until[home] > w.start[v]:
            births[m], deaths[m], bytes_[m], where[m] = w.start[v], until[home], g.size[u], home
            m += 1
    by_birth = np.argsort(births[:m], kind="mergesort")
    by_death = np.argsort(deaths[:m], kind="mergesort")
    live = np.zeros(D)
    peak = np.zeros(D)
    d = 0
    for b in range(m):
        a = by_birth[b]
        while d < m and deaths[by_death[d]] <= births[a]:
            live[where[by_death[d]]] -= bytes_[by_death[d]]
            d += 1
        live[where[a]] += bytes_[a]
        if live[where[a]] > peak[where[a]]:
            peak[where[a]] = live[where[a]]
    return peak
