"""How near the lines of each probed link come to times that they were not fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from placewright.report.terminal_parts import SHOWN_DEVICES, rest_of, sentences_of, table_of, text_of

if TYPE_CHECKING:
    from placewright.execute.probe.link_fit import LinkFit

__all__ = ["links_report"]


def links_report(fits: Sequence[tuple[str, LinkFit]], notes: Sequence[str] = ()) -> RenderableType:
    """Show of each pair the lines, their median and worst relative error, and both of one line alone; and the notes."""
    if not fits:
        return sentences_of(notes)
    table = table_of("error of the links, over all sizes")
    table.add_column("between", overflow="fold")
    for heading in ("lines", "median", "worst", "one line: median", "worst"):
        table.add_column(heading, justify="right")
    for name, fit in fits[:SHOWN_DEVICES]:
        off = [f(np.abs(error)) for error in (fit.error, fit.straight_error) for f in (np.median, np.max)]
        table.add_row(text_of(name), Text(f"{len(fit.points) + 1}"), *(Text(f"{100.0 * x:.1f}%") for x in off))
    return Group("", table, *rest_of(len(fits) - SHOWN_DEVICES, "pair"), *(("", sentences_of(notes)) if notes else ()))
