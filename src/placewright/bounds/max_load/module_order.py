"""Orders of groups along which few of them are needed at a time: at an operator that every path passes, one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["narrow_order", "reach"]

Ints = npt.NDArray[np.int32]


def narrow_order(n: int, ends: Sequence[Sequence[int]], edges: Sequence[tuple[int, int]], base: int) -> Ints:
    """Return the better of the order of the numbers and of a greedy one: the group next that leaves fewest in use.

    A group is in use from its place to that of the last group that has a message in common with it. Both orders keep
    ``edges``; ``base`` to the power of the groups in use is what a step costs.

    Examples
    --------
    A comb: the greedy order takes each tooth before it goes on, so that one group is in use at a time.

    >>> narrow_order(6, [[0, 1], [1, 2], [0, 3], [1, 4], [2, 5]], [], 2).tolist()
    [0, 3, 1, 4, 2, 5]
    """
    messages: list[list[int]] = [[] for _ in range(n)]
    for m, row in enumerate(ends):
        for x in row:
            messages[x].append(m)
    numbers = list(range(n))
    greedy = _greedy(n, ends, messages, edges)
    best = min((numbers, greedy), key=lambda order: _cost(order, ends, messages, base))
    return np.array(best, dtype=np.int32)


def reach(n: int, edges: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """How many groups each comes after, and before, by paths of edges between ascending numbers."""
    above, below = [0] * n, [0] * n
    for x, y in sorted(edges):
        above[y] |= above[x] | 1 << x
    for x, y in sorted(edges, reverse=True):
        below[x] |= below[y] | 1 << y
    return [bits.bit_count() for bits in above], [bits.bit_count() for bits in below]


def _cost(order: Sequence[int], ends: Sequence[Sequence[int]], messages: Sequence[Sequence[int]], base: int) -> float:
    place = {x: t for t, x in enumerate(order)}
    change = [0] * (len(order) + 1)
    for t, x in enumerate(order):
        until = max((place[y] for m in messages[x] for y in ends[m]), default=t)
        change[t] += 1
        change[max(until, t)] -= 1
    return float((float(base) ** np.minimum(np.cumsum(change), 60)).sum())


def _greedy(
    n: int, ends: Sequence[Sequence[int]], messages: Sequence[Sequence[int]], edges: Sequence[tuple[int, int]]
) -> list[int]:
    waits, follow = [0] * n, [[] for _ in range(n)]  # type: tuple[list[int], list[list[int]]]
    for x, y in edges:
        waits[y] += 1
        follow[x].append(y)
    left = [len(row) for row in ends]
    open_ = [len(row) for row in messages]
    placed, near = [False] * n, set[int]()
    order: list[int] = []
    fresh = 0

    def growth(x: int) -> int:
        ending = [m for m in messages[x] if left[m] == 1]
        gone: dict[int, int] = {}
        for m in ending:
            for y in ends[m]:
                gone[y] = gone.get(y, 0) + 1
        return 1 - sum(open_[y] == k for y, k in gone.items()) - (0 if messages[x] else 1)

    while len(order) < n:
        ready = sorted(x for x in near if not waits[x])
        if ready:
            x = min(ready, key=lambda v: (growth(v), v))
        else:
            while placed[fresh] or waits[fresh]:
                fresh += 1
            x = fresh
            fresh = 0
        placed[x] = True
        near.discard(x)
        order.append(x)
        for y in follow[x]:
            waits[y] -= 1
        for m in messages[x]:
            left[m] -= 1
            if not left[m]:
                for y in ends[m]:
                    open_[y] -= 1
            near.update(y for y in ends[m] if not placed[y])
    return order
