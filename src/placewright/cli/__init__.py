"""The command line: read, one call, write. Only this package prints, and there is no logic in it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import NoReturn

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 done, 1 a run failed, 2 bad input, 3 infeasible, 4 budget spent, 130 Ctrl-C."""
    _open_what_is_closed()
    before = signal.getsignal(signal.SIGINT)
    # While modules are loaded nothing is held, and an exception would end somewhere inside them.
    at_once = before is signal.default_int_handler and threading.current_thread() is threading.main_thread()
    if at_once:
        signal.signal(signal.SIGINT, _end)
    from placewright.cli.application import run

    if at_once:
        signal.signal(signal.SIGINT, before)
    run(arguments)


def _open_what_is_closed() -> None:
    """Let standard streams that were closed (``>&-``) lead nowhere: the next file opened would take their place."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", closefd=False))


def _end(number: int, frame: FrameType | None) -> NoReturn:
    sys.stderr.write("placewright: interrupted\n")
    sys.stderr.flush()
    os._exit(128 + number)
