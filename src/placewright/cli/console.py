"""How the command line speaks: reports and JSON to standard output, progress and complaints to standard error."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType

if TYPE_CHECKING:
    from placewright.problem import Problem
    from placewright.report.progress import ProgressLine
    from placewright.result import Result

__all__ = ["EXIT_INTERRUPTED", "complain", "exit_code", "present", "print_json", "progress_line", "tell_of_compiling"]

EXIT_CODES = {"optimal": 0, "feasible": 0, "infeasible": 3, "unknown": 4}
EXIT_REJECTED = 3
EXIT_INTERRUPTED = 130


def present(renderable: RenderableType) -> None:
    """Show a report, 80 columns wide where it goes to no terminal."""
    Console(soft_wrap=False, width=None if sys.stdout.isatty() else 80, highlight=False).print(renderable)


def progress_line() -> ProgressLine:
    """Make the line that shows how far a long work is."""
    from placewright.report.progress import ProgressLine

    return ProgressLine(sys.stderr)


def tell_of_compiling(problem: Problem, progress: ProgressLine) -> None:
    """Say why nothing is heard for a while, where an installation searches for the first time."""
    from placewright._kernel.warm import compiled_before

    if not compiled_before(problem.objective.name):
        progress.tell("compiling the kernels of the search, once for an installation: about a minute")


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
    sys.stderr.write(f"placewright: {line}\n")
