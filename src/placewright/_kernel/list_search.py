"""Ranks from weights that a search changes: what a list scheduler goes by."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import kernel
from placewright._kernel.schedule import Network

__all__ = ["mean_transfer", "weighted_rank"]

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


@kernel
def mean_transfer(g: Network) -> Floats:
    """(T,) mean seconds of each tensor over the pairs of different devices that a link joins."""
    D, T = g.processing.shape[1], len(g.producer)
    mean = np.zeros(T)
    tables = g.transfer.shape[0] > 0
    pairs, latency, per_byte = 0, 0.0, 0.0
    for i in range(D):
        for j in range(D):
            if i != j and np.isfinite(g.latency[i, j]):
                pairs += 1
                latency += g.latency[i, j]
                per_byte += g.per_byte[i, j]
    for u in range(T):
        mean[u] = (latency + g.size[u] * per_byte) / max(pairs, 1)
        if tables:
            total, count = 0.0, 0
            for i in range(D):
                for j in range(D):
                    if i != j and np.isfinite(g.transfer[u, i, j]):
                        total += g.transfer[u, i, j]
                        count += 1
            mean[u] = total / max(count, 1)
    return mean


@kernel
def weighted_rank(g: Network, weight: Floats, transfer: Floats, factor: float) -> Floats:
    """(n,) longest way down when v takes ``weight[v]`` seconds and tensor u ``factor * transfer[u]``, none below 0."""
    n = g.processing.shape[0]
    rank = np.zeros(n)
    for v in range(n - 1, -1, -1):
        below = 0.0
        for u in range(g.made_ptr[v], g.made_ptr[v + 1]):
            for k in range(g.reader_ptr[u], g.reader_ptr[u + 1]):
                below = max(below, rank[g.reader[k]] + factor * transfer[u])
        rank[v] = below + weight[v]
    return rank
