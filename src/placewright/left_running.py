"""Threads in foreign code that can't be told to stop: a search that was cancelled goes on without them."""

from __future__ import annotations

import atexit
import threading

__all__ = ["any_left", "leave"]

LONGEST_WAIT_S = 60.0
"""Seconds that the interpreter waits at its own end for a thread that was left."""

_left: list[threading.Thread] = []


def leave(thread: threading.Thread) -> None:
    """Go on without a thread, which ends by itself.

    The interpreter waits for it at its own end, since a thread that returns into one that is gone aborts the process.
    Whoever ends a process for good asks :func:`any_left`, and then needs no such end.
    """
    _left.append(thread)
    atexit.register(thread.join, LONGEST_WAIT_S)


def any_left() -> bool:
    """Whether a thread that was left still runs."""
    return any(thread.is_alive() for thread in _left)
