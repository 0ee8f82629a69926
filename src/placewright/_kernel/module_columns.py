"""All placements of a few operators that cost at most so much, and of rows of numbers those that no other row beats."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import kernel
from placewright._kernel.schedule import Network
from placewright._kernel.span_search import SpanScratch, least_time, time_of

__all__ = ["placements_within", "unbeaten"]

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

PLACED_NODES = 200
"""Most nodes of the search for the units that are not listed."""


@kernel
def placements_within(
    g: Network,
    unit_ptr: Ints,
    member: Ints,
    heavy: int,
    price: Floats,
    alike: Ints,
    limit_s: float,
    most: int,
    nodes: int,
    w: SpanScratch,
) -> tuple[int, Ints, Floats]:
    """List every placement of the first units whose bound of the makespan and prices are together at most a limit.

    Depth first; the other units are then placed by :func:`least_time`.

    Parameters
    ----------
    unit_ptr, member : (U+1,), (n,)
        Operators that share a device, in the order in which units are decided.
    heavy : int
        How many units are listed; the others pay nothing.
    price : (U, D)
        What unit k pays on device i; inf where it may not run.
    alike : (D,)
        Classes of devices that can be swapped.
    limit_s : float
    most, nodes : int
        Most placements, and most nodes of the search.

    Returns
    -------
    count : int
        How many there are; -1 when the limits were reached before all were found.
    device : (count, n)
        With a good choice for the other units; -1 where there is none.
    time_s : (count,)
        Bound of the makespan, however the others are placed.
    """
    n, D = g.processing.shape
    U = heavy
    toll = np.zeros((0, 0))
    found, time_s = np.zeros((most, n), dtype=np.int32), np.zeros(most)
    device = np.full(n, -1, dtype=np.int32)
    cheapest = np.zeros(U + 1)
    for k in range(U - 1, -1, -1):
        cheapest[k] = cheapest[k + 1] + price[k].min()
    paid = np.zeros(U + 1)
    choice = np.full(U + 1, -1, dtype=np.int32)
    chosen = price.copy()
    if U == 0:
        bound, _, rest = least_time(g, unit_ptr, member, chosen, toll, 1.0, alike, np.inf, PLACED_NODES, w)
        if bound > limit_s:
            return 0, found[:0], time_s[:0]
        found[0], time_s[0] = rest, bound
        return 1, found[:1], time_s[:1]
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
        for x in range(U):
            chosen[x] = np.inf
            chosen[x, choice[x]] = 0.0
        bound, spent, rest = least_time(g, unit_ptr, member, chosen, toll, 1.0, alike, np.inf, PLACED_NODES, w)
        made += abs(spent)
        if bound + paid[U] > limit_s:
            continue
        found[count], time_s[count] = rest, bound
        count += 1
    return count, found[:count], time_s[:count]


@kernel
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
