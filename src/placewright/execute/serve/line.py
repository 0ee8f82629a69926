"""The line before an engine: so many requests are under way, so many wait, and whoever comes then is sent away."""

from __future__ import annotations

import asyncio
import math
from collections import deque

__all__ = ["Full", "Line"]

_KEPT = 64
"""Requests whose times the estimate of a wait rests on."""


class Full(Exception):
    """The line is full; ``retry_after_s`` is when there should be room again."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"the line is full; try again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


class Line:
    """Who may go on to the engine, in the order of arrival.

    Parameters
    ----------
    at_once : int
        Requests under way.
    longest : int
        Requests that wait beside those.
    """

    def __init__(self, at_once: int, longest: int) -> None:
        self.at_once, self.longest = at_once, longest
        self.under_way = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._took: deque[float] = deque(maxlen=_KEPT)

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    async def enter(self) -> None:
        """Wait for a place; whoever has entered must leave.

        Raises
        ------
        Full
            If too many wait already.
        """
        if self.under_way < self.at_once and not self._waiting:
            self.under_way += 1
            return
        if len(self._waiting) >= self.longest:
            raise Full(self.retry_after_s())
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # called up in the moment in which it gave up
                self._next()
            elif place in self._waiting:  # else passed over already, between giving up and this
                self._waiting.remove(place)
            raise

    def leave(self, took_s: float | None = None) -> None:
        """Make room for the next, and say how long one was under way that was served."""
        if took_s is not None:
            self._took.append(took_s)
        self._next()

    def retry_after_s(self) -> int:
        """Whole seconds, at least 1, in which half of the line should be gone, by how long the last ones took."""
        if not self._took:
            return 1
        mean = sum(self._took) / len(self._took)
        return max(1, math.ceil(mean * (len(self._waiting) + self.at_once) / self.at_once / 2))

    def _next(self) -> None:
        """Hand a place on, or free it."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self.under_way -= 1
