"""How the command line speaks: reports and JSON to standard output, progress and complaints to standard error."""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType

if TYPE_CHECKING:
    from placewright.report.progress import ProgressLine
    from placewright.result import Result

__all__ = ["EXIT_INTERRUPTED", "complain", "exit_code", "present", "print_json", "progress_line", "tell_of_compiling"]

EXIT_CODES = {"optimal": 0, "feasible": 0, "infeasible": 3, "unknown": 4}
EXIT_REJECTED = 3
EXIT_INTERRUPTED = 130

COMPILING = "compiling kernels, each once for an installation: the first plan takes longer than later ones"
LONGEST_LINE = 4_000
"""Characters of a complaint: a name from a file may have millions."""


def present(renderable: RenderableType) -> None:
    """Show a report, 80 columns wide where it goes to no terminal."""
    Console(soft_wrap=False, width=None if sys.stdout.isatty() else 80, highlight=False).print(renderable)


def progress_line() -> ProgressLine:
    """Make the line that shows how far a long work is."""
    from placewright.report.progress import ProgressLine

    return ProgressLine(sys.stderr)


def tell_of_compiling(progress: ProgressLine) -> AbstractContextManager[None]:
    """Say why nothing is heard for a while, where an installation first comes to a kernel."""
    from placewright._kernel.compiling import at_first_compiling

    return at_first_compiling(lambda: progress.tell(COMPILING))


def print_json(content: Any) -> None:
    """Write one JSON object on a line."""
    sys.stdout.write(json.dumps(content, allow_nan=False) + "\n")


def exit_code(result: Result) -> int:
    """Return what the program exits with after a search."""
    if result.plan is None and result.rejected:
        return EXIT_REJECTED
    return EXIT_CODES[result.status.value]


def complain(message: str) -> None:
    """Write one line about what is wrong."""
    line = "".join(c if c.isprintable() else "?" for c in " ".join(message.split()))
    if len(line) > LONGEST_LINE:
        line = f"{line[:LONGEST_LINE]}... ({len(line) - LONGEST_LINE:,} more characters)"
    sys.stderr.write(f"placewright: {line}\n")
