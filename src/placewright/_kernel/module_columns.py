"""All placements of a few operators that cost at most so much, and of rows of numbers those that no other row beats."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from placewright._kernel.schedule import Network
from placewright._kernel.span_search import SpanScratch, time_of

__all__ = ["placements_within", "unbeaten"]

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


@njit(cache=True, nogil=True)
def placements_within(
    g: Network,
    unit_ptr: Ints,
    member: Ints,
    price: Floats,
    limit_s: float,
    most: int,
    nodes: int,
    w: SpanScratch,
) -> tuple[int, Ints, Floats]:
    """List every placement whose bound of the makespan and prices are at most ``limit_s`` together, depth first.

    Parameters
    ----------
    unit_ptr, member : (U+1,), (n,)
        Operators that share a device, in the order in which units are decided.
    price : (U, D)
        What unit k pays on device i; inf where it may not run.
    most, nodes : int
        Most placements, and most nodes of the search.

    Returns
    -------
    count : int
        How many there are; -1 when the limits were reached before all were found.
    device : (count, n)
    time_s : (count,)
        Bound of each one's makespan.
    """
    n, D = g.processing.shape
    U = len(unit_ptr) - 1
    found, time_s = np.zeros((most, n), dtype=np.int32), np.zeros(most)
    device = np.full(n, -1, dtype=np.int32)
    cheapest = np.zeros(U + 1)
    for k in range(U - 1, -1, -1):
        cheapest[k] = cheapest[k + 1] + price[k].min()
    paid = np.zeros(U + 1)
    choice = np.full(U + 1, -1, dtype=np.int32)
    k, count, made = 0, 0, 0
    while k >= 0:
        choice[k] += 1
        i = choice[k]
        if i == D:
            for x in range(unit_ptr[k], unit_ptr[k + 1]):
                device[member[x]] = -1
            choice[k] = -1
            k -= 1
            continue
        if price[k, i] == np.inf:
            continue
        made += 1
        if made > nodes:
            return -1, found[:0], time_s[:0]
        for x in range(unit_ptr[k], unit_ptr[k + 1]):
            device[member[x]] = i
        paid[k + 1] = paid[k] + price[k, i]
        if paid[k + 1] + cheapest[k + 1] > limit_s:
            continue
        bound = time_of(g, device, w)
        if bound + paid[k + 1] + cheapest[k + 1] > limit_s:
            continue
        if k + 1 < U:
            k += 1
            continue
        if count == most:
            return -1, found[:0], time_s[:0]
        found[count], time_s[count] = device, bound
        count += 1
    return count, found[:count], time_s[:count]


@njit(cache=True, nogil=True)
def unbeaten(rows: Floats, most: int) -> tuple[npt.NDArray[np.int64], bool]:
    """Rows, sorted by their first number, that no row is below or equal to in all numbers; of equal ones the first.

    Returns
    -------
    kept : (K,)
        Their numbers.
    all_seen : bool
        False when ``most`` were kept before the last row was reached.
    """
    kept = np.zeros(most, dtype=np.int64)
    count = 0
    for a in range(len(rows)):
        beaten = False
        for b in range(count):
            beaten = True
            for m in range(rows.shape[1]):
                if rows[kept[b], m] > rows[a, m]:
                    beaten = False
                    break
            if beaten:
                break
        if beaten:
            continue
        if count == most:
            return kept, False
        kept[count] = a
        count += 1
    return kept[:count], True
