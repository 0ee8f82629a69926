"""Ideals of a partial order: all of its downward closed sets, each once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import kernel

__all__ = ["Ideals", "enumerate_ideals", "first_ideal", "sums"]

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]


class Ideals(NamedTuple):
    """Room for ideals, the first few of which are known.

    bits, ready (n, W): sets of elements as 64-bit words: the ideal, and what may be added to it that comes after all of
    it. parent, last (n,): the ideal without its last element, and that element; of the empty ideal -1 and -1.
    """

    bits: Bits
    ready: Bits
    parent: Ints
    last: Ints


def first_ideal(before_ptr: Ints, room: int) -> Ideals:
    """Make room for ideals, with the empty one; the system gives the memory as it is filled."""
    n = len(before_ptr) - 1
    words = max(1, -(-n // 64))
    made = Ideals(
        np.empty((room, words), dtype=np.uint64),
        np.empty((room, words), dtype=np.uint64),
        np.empty(room, dtype=np.int32),
        np.empty(room, dtype=np.int32),
    )
    made.bits[0], made.ready[0], made.parent[0], made.last[0] = 0, 0, -1, -1
    for v in range(n):
        if before_ptr[v] == before_ptr[v + 1]:
            made.ready[0, v >> 6] |= np.uint64(1) << np.uint64(v & 63)
    return made


@kernel
def enumerate_ideals(
    before_ptr: Ints, before: Ints, after_ptr: Ints, after: Ints, ideals: Ideals, done: int, known: int, most: int
) -> tuple[int, int]:
    """Add the children of ideals ``done``... to the ``known`` ones, of at most ``most`` ideals, while there is room.

    Elements are numbered topologically, so an ideal without its last element is an ideal too: its parent. Each ideal is
    hence made once, from its parent, without a table of those seen; parents come first. O(words + degree) each. Returns
    the new ``done`` and ``known``; all are known when they are equal.
    """
    bits, ready, parent, last = ideals.bits, ideals.ready, ideals.parent, ideals.last
    words = bits.shape[1]
    room = len(parent)
    stop = min(known, done + most)
    one = np.uint64(1)
    while done < stop:
        count = 0
        for w in range(words):
            left = ready[done, w]
            while left != np.uint64(0):
                left &= left - one
                count += 1
        if known + count > room:
            break
        for w in range(words):
            left = ready[done, w]
            while left != np.uint64(0):
                low = left & (~left + one)
                left ^= low
                v = 0
                probe = low
                for shift in (32, 16, 8, 4, 2, 1):
                    if probe >> np.uint64(shift) != np.uint64(0):
                        probe = probe >> np.uint64(shift)
                        v += shift
                # What remains ready comes after v.
                for x in range(words):
                    bits[known, x] = bits[done, x]
                    ready[known, x] = ready[done, x] if x > w else np.uint64(0)
                ready[known, w] = left
                bits[known, w] |= low
                v += w << 6
                for e in range(after_ptr[v], after_ptr[v + 1]):
                    y = after[e]
                    free = True
                    for f in range(before_ptr[y], before_ptr[y + 1]):
                        x = before[f]
                        if (bits[known, x >> 6] >> np.uint64(x & 63)) & one == np.uint64(0):
                            free = False
                            break
                    if free:
                        ready[known, y >> 6] |= one << np.uint64(y & 63)
                parent[known] = done
                last[known] = v
                known += 1
        done += 1
    return done, known


@kernel
def sums(parent: Ints, last: Ints, weight: Floats) -> Floats:
    """(n,) sum of the weights of each ideal's elements."""
    n = len(parent)
    found = np.zeros(n)
    for k in range(1, n):
        found[k] = found[parent[k]] + weight[last[k]]
    return found
