"""Device-aware critical paths."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from placewright._kernel.schedule import Network, transfer_time

__all__ = ["heads", "tails"]


@njit(cache=True, nogil=True)
def heads(g: Network) -> npt.NDArray[np.float64]:
    """(n, D) no schedule can finish v on device i earlier: f[v, i] of the critical-path bound, send cut excluded."""
    n, D = g.processing.shape
    f = np.zeros((n, D))
    for v in range(n):
        for i in range(D):
            ready = 0.0
            for k in range(g.read_ptr[v], g.read_ptr[v + 1]):
                u = g.read[k]
                x = g.producer[u]
                earliest = f[x, i]
                for j in range(D):
                    if j != i:
                        at = f[x, j] + g.cut[j] + transfer_time(g, u, j, i) + g.cut[i]
                        if at < earliest:
                            earliest = at
                if earliest > ready:
                    ready = earliest
            f[v, i] = ready + g.processing[v, i]
    return f


@njit(cache=True, nogil=True)
def tails(g: Network) -> npt.NDArray[np.float64]:
    """(n, D) seconds that must pass after v's processing on device i, its own send cut included."""
    n, D = g.processing.shape
    tail = np.zeros((n, D))
    for v in range(n - 1, -1, -1):
        for i in range(D):
            for u in range(g.made_ptr[v], g.made_ptr[v + 1]):
                for k in range(g.reader_ptr[u], g.reader_ptr[u + 1]):
                    x = g.reader[k]
                    least = g.processing[x, i] + tail[x, i]
                    for j in range(D):
                        if j != i:
                            at = g.cut[i] + transfer_time(g, u, i, j) + g.cut[j] + g.processing[x, j] + tail[x, j]
                            if at < least:
                                least = at
                    if least > tail[v, i]:
                        tail[v, i] = least
    return tail
