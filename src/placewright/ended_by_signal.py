"""SIGTERM and SIGHUP as an exception, for as long as something is held that must not be left behind."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["EndedBySignal", "cleared_when_ended"]


class EndedBySignal(SystemExit):
    """The process was told to end: whoever catches nothing cleans up, and ends with what shells say of such an end."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.name = signal.Signals(number).name

    def __str__(self) -> str:
        return f"ended by {self.name}"


@contextmanager
def cleared_when_ended() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise :class:`EndedBySignal` here, so that folders and processes are cleared away.

    Elsewhere they end the process at once, which is right while nothing outlives it, and quicker than a search may
    hear of them. What is ignored (``nohup``) or has a handler of its own stays so; further ones are ignored while the
    first is heeded. Only the main thread can do this: in others nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [signal.SIGTERM, *((signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ())]
    ours = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]

    def end(number: int, frame: FrameType | None) -> None:
        for each in ours:
            signal.signal(each, signal.SIG_IGN)
        raise EndedBySignal(number)

    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
