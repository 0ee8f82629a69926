"""Rows for intervals that overlap: the fewest lanes such that none of a lane's intervals overlap."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

__all__ = ["lanes_of"]


def lanes_of(intervals: Sequence[tuple[float, float]]) -> list[int]:
    """Lane of each interval: greedy in the order of their starts, which is the fewest lanes (interval graphs).

    Parameters
    ----------
    intervals : sequence of (start, finish)
        In any order; an interval may start where another finishes.

    Examples
    --------
    >>> lanes_of([(0, 2), (1, 3), (2, 4)])
    [0, 1, 0]
    """
    lanes = [0] * len(intervals)
    busy: list[tuple[float, int]] = []
    free: list[int] = []
    used = 0
    for k in sorted(range(len(intervals)), key=lambda k: (*intervals[k], k)):
        start, finish = intervals[k]
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lanes[k] = heapq.heappop(free)
        else:
            lanes[k] = used
            used += 1
        heapq.heappush(busy, (finish, lanes[k]))
    return lanes
