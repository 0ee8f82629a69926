"""HiGHS without its banner, and on one thread unless told otherwise."""

from __future__ import annotations

import os
import sys
from typing import Any

__all__ = ["new_highs"]


def new_highs() -> Any:
    """Return a silent ``highspy.Highs`` that searches with one thread.

    The first one of a process writes a banner to the file descriptor of standard output, which belongs to the command
    line's results, before any option can be set; that descriptor points to the null device meanwhile.

    Notes
    -----
    HiGHS keeps one pool of threads for each thread that calls it, and refuses to run where the option ``threads``
    differs from the size of a pool that is there already. So the option stays as it is; ``parallel`` is what is off.
    Whoever sets ``threads`` runs HiGHS in a thread of its own.
    """
    import highspy

    sys.stdout.flush()
    kept = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("parallel", "off")
    return solver
