"""What a long search shows while it runs: one line that is rewritten on a terminal, few lines elsewhere."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TextIO

from placewright.algorithm import Progress
from placewright.units import format_seconds

__all__ = ["ProgressLine"]

PAUSE_S = {True: 0.1, False: 2.0}
"""Least seconds between two lines, on a terminal and elsewhere."""


@dataclass(slots=True)
class ProgressLine:
    """Writes progress to a stream, standard error as a rule.

    Attributes
    ----------
    stream : TextIO
    """

    stream: TextIO
    _last: float = field(default=-math.inf)
    _solver: str = ""
    _open: bool = False

    def tell(self, line: str) -> None:
        """Show a line about a step."""
        self.close()
        self.stream.write(f"{line}\n")
        self.stream.flush()

    def __call__(self, progress: Progress) -> None:
        """Show where a search stands: solver, objective, bound, gap. The first report of another solver always is."""
        value, bound = progress.value_s, progress.lower_bound_s
        gap = "" if not math.isfinite(value) or value <= 0 else f"  gap {max(0.0, (value - bound) / value):.2%}"
        shown = format_seconds(value) if math.isfinite(value) else "none yet"
        another, self._solver = progress.solver != self._solver, progress.solver
        line = f"{progress.elapsed_s:6.1f} s  {progress.solver:<19} best {shown}  bound {format_seconds(bound)}{gap}"
        self._write(line, at_once=another)

    def _write(self, line: str, *, at_once: bool = False) -> None:
        terminal = self.stream.isatty()
        now = time.monotonic()
        if now - self._last < PAUSE_S[terminal] and not at_once:
            return
        self._last = now
        self.stream.write(f"\r\x1b[2K{line}" if terminal else f"{line}\n")
        self.stream.flush()
        self._open = terminal

    def step(self, line: str) -> None:
        """Show one of many steps, unless the last one was shown a moment ago."""
        self._write(line[:120])

    def close(self) -> None:
        """End the line that is being rewritten."""
        if self._open:
            self.stream.write("\n")
            self.stream.flush()
            self._open = False
