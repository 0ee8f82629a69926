"""Multiplicative weights for the largest load of devices among which units may be divided."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import kernel

__all__ = ["multiplicative_weights", "priced_sum"]

Floats = npt.NDArray[np.float64]


@kernel
def multiplicative_weights(times: Floats, count: Floats, copies: Floats, rounds: int) -> Floats:
    """Weights of the devices, summing to 1, that make the sum of the units' least weighted times large.

    Parameters
    ----------
    times : (U, D) seconds, inf where a unit may not run
    count : (U,) how many units a row stands for
    copies : (D,) how many alike devices a column stands for; its weight is that of all of them together
    rounds : int
        Each takes every unit to its cheapest device, and raises the weights of the devices that are loaded most.
    """
    U, D = times.shape
    weights = copies / copies.sum()
    best, best_value = weights.copy(), -1.0
    load = np.empty(D)
    for k in range(rounds):
        load[:] = 0.0
        value = 0.0
        each = weights / copies
        for u in range(U):
            at, least = -1, np.inf
            for i in range(D):
                if times[u, i] < np.inf and times[u, i] * each[i] < least:
                    at, least = i, times[u, i] * each[i]
            if at >= 0:
                load[at] += times[u, at] * count[u]
                value += least * count[u]
        load /= copies
        if value > best_value:
            best, best_value = weights, value
        peak = load.max()
        if peak <= 0.0:
            break
        weights = weights * np.exp(0.5 / np.sqrt(k + 1.0) * load / peak)
        weights = weights / weights.sum()
    return best  # type: ignore[no-any-return]


@kernel
def priced_sum(times: Floats, resident: Floats, count: Floats, weights: Floats, prices: Floats) -> float:
    """Sum over units of the least of weighted time plus priced bytes, over the devices that each may use."""
    U, D = times.shape
    total = 0.0
    for u in range(U):
        least = np.inf
        for i in range(D):
            if times[u, i] < np.inf:
                cost = times[u, i] * weights[i] + resident[u] * prices[i]
                if cost < least:
                    least = cost
        total += least * count[u]
    return total
