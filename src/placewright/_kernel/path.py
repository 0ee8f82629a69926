"""Device-aware critical paths."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import kernel
from placewright._kernel.schedule import Network, transfer_time

__all__ = ["heads", "tails"]


@kernel
def heads(g: Network) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Seconds that must pass before v when it runs on device i.

    Returns
    -------
    ready : (n, D)
        No schedule can start v on i earlier.
    done : (n, D)
        No schedule can finish v's processing there earlier: f[v, i] of the critical-path bound. The overhead of a cut
        before v counts where an input is better made elsewhere, that of a cut behind it does not.
    """
    n, D = g.processing.shape
    ready = np.zeros((n, D))
    done = np.zeros((n, D))
    for v in range(n):
        for i in range(D):
            begun = 0.0
            for k in range(g.read_ptr[v], g.read_ptr[v + 1]):
                u = g.read[k]
                x = g.producer[u]
                here = done[x, i]
                elsewhere = np.inf
                for j in range(D):
                    if j != i:
                        at = done[x, j] + g.cut[x, j] + transfer_time(g, u, j, i)
                        if at < elsewhere:
                            elsewhere = at
                ready[v, i] = max(ready[v, i], min(here, elsewhere))
                begun = max(begun, min(here, elsewhere + g.cut[v, i]))
            done[v, i] = begun + g.processing[v, i]
    return ready, done


@kernel
def tails(g: Network) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Seconds that must pass below v when it runs on device i.

    Returns
    -------
    tail : (n, D)
        After v's processing: the overhead of a cut behind v counts where its reader is better off elsewhere.
    after : (n, D)
        After v's finish, which that overhead is already part of.
    """
    n, D = g.processing.shape
    tail = np.zeros((n, D))
    after = np.zeros((n, D))
    for v in range(n - 1, -1, -1):
        for i in range(D):
            for u in range(g.made_ptr[v], g.made_ptr[v + 1]):
                for k in range(g.reader_ptr[u], g.reader_ptr[u + 1]):
                    x = g.reader[k]
                    here = g.processing[x, i] + tail[x, i]
                    elsewhere = np.inf
                    for j in range(D):
                        if j != i:
                            at = transfer_time(g, u, i, j) + g.cut[x, j] + g.processing[x, j] + tail[x, j]
                            if at < elsewhere:
                                elsewhere = at
                    tail[v, i] = max(tail[v, i], min(here, g.cut[v, i] + elsewhere))
                    after[v, i] = max(after[v, i], min(here, elsewhere))
    return tail, after
