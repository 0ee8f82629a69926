"""Vectors of loads that no other is better than, and vectors merged where there are too many."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import kernel
from placewright._kernel.load_vectors import Vectors

__all__ = ["cells", "front", "merge"]

Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@kernel
def front(v: Vectors, key: Longs, order: Longs, most: int) -> Bools:
    """(N,) whether a vector is worth keeping: none of its state, earlier in the order, is at least as good throughout.

    ``order`` sorts by state. At most so many of the earlier ones are asked, so that some may be kept in vain.
    """
    n, K = len(key), v.load.shape[1]
    keep = np.zeros(n, dtype=np.bool_)
    kept = np.zeros(min(n, most), dtype=np.int64)
    count, state = 0, -1
    for x in order:
        if key[x] != state:
            state, count = key[x], 0
        found = False
        for c in range(count):
            y = kept[c]
            if v.closed[y] & ~v.closed[x]:
                continue
            better = True
            for k in range(K):
                if v.load[y, k] > v.load[x, k]:
                    better = False
                    break
            if not better:
                continue
            for k in range(v.priced.shape[1]):
                if v.priced[y, k] > v.priced[x, k]:
                    better = False
                    break
            for k in range(v.marks.shape[1]):
                if v.marks[y, k] & ~v.marks[x, k]:
                    better = False
                    break
            if better and not v.used[y] & ~v.used[x]:
                found = True
                if c > 0:  # asked earlier the next time
                    kept[c], kept[c - 1] = kept[c - 1], kept[c]
                break
        if found:
            continue
        keep[x] = True
        if count < len(kept):
            kept[count] = x
            count += 1
    return keep


@kernel
def cells(v: Vectors, width: Floats, code: Longs) -> None:
    """Give a number to each vector's cell: what is closed, used and marked, and its loads in whole widths."""
    for x in range(len(code)):
        h = np.uint64(1469598103934665603)
        for k in range(v.load.shape[1]):
            h = (h ^ np.uint64(np.int64(v.load[x, k] / width[k]))) * np.uint64(1099511628211)
            h ^= h >> np.uint64(29)
        h = (h ^ np.uint64(v.closed[x])) * np.uint64(1099511628211)
        h = (h ^ np.uint64(v.used[x])) * np.uint64(1099511628211)
        for k in range(v.marks.shape[1]):
            h = (h ^ np.uint64(v.marks[x, k])) * np.uint64(1099511628211)
            h ^= h >> np.uint64(29)
        code[x] = np.int64(h >> np.uint64(1))


@kernel
def merge(v: Vectors, key: Longs, code: Longs, order: Longs, lower: bool, keep: Bools) -> int:
    """Keep one vector of each cell, neighbours in the order: the first; how many others there were.

    With ``lower`` it gets the least of each entry of its cell, and stands for all of it: it is no worse than any.
    """
    first, merged = -1, 0
    for x in order:
        same = first >= 0 and key[x] == key[first] and code[x] == code[first]
        same = same and v.closed[x] == v.closed[first] and v.used[x] == v.used[first]
        if same:
            for k in range(v.marks.shape[1]):
                if v.marks[x, k] != v.marks[first, k]:
                    same = False
                    break
        if not same:
            first = x
            keep[x] = True
            continue
        keep[x] = False
        merged += 1
        if not lower:
            continue
        v.loose[first] = True
        for k in range(v.priced.shape[1]):
            v.priced[first, k] = min(v.priced[first, k], v.priced[x, k])
        for k in range(v.load.shape[1]):
            v.load[first, k] = min(v.load[first, k], v.load[x, k])
    return merged
