"""HiGHS without its banner: standard output belongs to the command line's results."""

from __future__ import annotations

import os
import sys
from typing import Any

__all__ = ["new_highs"]


def new_highs() -> Any:
    """Return a silent ``highspy.Highs``.

    The first one of a process writes a banner to the file descriptor of standard output before any option can be
    set; that descriptor points to the null device meanwhile.
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
    return solver
