"""The clock of budgets: wall clock that stands still while a kernel is compiled, once for an installation."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["now_s", "standing_still"]


class _Clock:
    """How long it stood still, and who stopped it since when."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.stopped = 0
        self.since_s = 0.0
        self.stood_s = 0.0


_clock = _Clock()


def now_s() -> float:
    """Seconds since some moment, less those for which the clock stood still."""
    with _clock.lock:
        shown_s = _clock.since_s if _clock.stopped else time.monotonic()
        return shown_s - _clock.stood_s


@contextmanager
def standing_still() -> Iterator[None]:
    """Stop the clock, for every thread, until the last of those that stopped it goes on.

    Examples
    --------
    >>> import time
    >>> with standing_still():
    ...     before_s = now_s()
    ...     time.sleep(0.01)
    ...     now_s() == before_s
    True
    """
    with _clock.lock:
        if not _clock.stopped:
            _clock.since_s = time.monotonic()
        _clock.stopped += 1
    try:
        yield
    finally:
        with _clock.lock:
            _clock.stopped -= 1
            if not _clock.stopped:
                _clock.stood_s += time.monotonic() - _clock.since_s
