"""Compile ahead: other processes compile kernels on idle cores while this one compiles what it comes to.

They find each other's kernels on disk, see :mod:`placewright._kernel.compiling`. They end with what they are for.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from placewright._kernel.compiling import at_first_compiling, can_lock, writing
from placewright._kernel.warm import AHEAD, PARTS, warm_up
from placewright.host import available_cores

__all__ = ["compile_all", "compiling_ahead", "main"]

ENDING_S = 5.0
"""Seconds within which a process that compiles ahead ends when it is told to; it is ended after that."""


@contextmanager
def compiling_ahead(objective: str) -> Iterator[None]:
    """Have the kernels of an objective compiled beside this block, from when it first misses one to its end.

    A process a core that is left, three at most; none where all is on disk, or where files can't be locked.
    """
    begun: list[subprocess.Popen[bytes]] = []

    def begin() -> None:
        if can_lock() and sys.executable and not getattr(sys, "frozen", False):
            for first in AHEAD[objective][: len(available_cores()) - 1]:
                with suppress(OSError):  # no more processes: this one compiles all the same
                    begun.append(_process(objective, first))

    try:
        with at_first_compiling(begin):
            yield
    finally:
        for process in begun:
            _end(process)


def compile_all() -> None:
    """Compile all that is not on disk, on all cores."""
    for objective in PARTS:
        with compiling_ahead(objective):
            warm_up(objective)


def _process(objective: str, first: int) -> subprocess.Popen[bytes]:
    """Begin a process that compiles; what it reads ends when this one does, however that ends."""
    path = os.pathsep.join(folder for folder in sys.path if folder)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "placewright.ahead", objective, str(first)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,  # a Ctrl-C is for the one that began it
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Tell a process that nobody needs it any more, and see it gone."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(ENDING_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _leave_with_parent() -> None:
    """End this process when what it reads ends, but not while it writes a file."""
    sys.stdin.buffer.read()
    with writing:
        os._exit(0)


def main() -> None:
    """Compile the kernels of an objective, from a part on."""
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    warm_up(sys.argv[1], int(sys.argv[2]))


if __name__ == "__main__":
    main()
