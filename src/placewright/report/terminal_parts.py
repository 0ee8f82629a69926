"""What tables, facts and sentences for a terminal are made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from types import MappingProxyType

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from placewright.report.listing import counted
from placewright.units import format_seconds

__all__ = [
    "ABSENT",
    "SHOWN_DEVICES",
    "SHOWN_IDLE",
    "WIDEST_PARTS",
    "facts_of",
    "plain_table",
    "rest_of",
    "seconds_of",
    "sentences_of",
    "spaced",
    "table_of",
    "text_of",
]

WIDEST_PARTS = 3
"""A table of memory with more parts has no column for how much is used; the total and the limit stand there."""

SHOWN_DEVICES = 32
"""Tables show so many devices that are in use, and count the rest."""

SHOWN_IDLE = 4
"""And so many that are not."""

ABSENT = "-"

STATUS_COLOURS = MappingProxyType({"optimal": "green", "feasible": "yellow", "infeasible": "red", "unknown": "red"})
"""On a terminal; what is said is in the words."""


def rest_of(number: int, noun: str) -> list[RenderableType]:
    """Count what a table leaves out."""
    return [Text(f" ... and {counted(number, noun)} more", style="dim")] if number > 0 else []


def spaced(parts: Sequence[RenderableType]) -> Group:
    """Put an empty line between the parts."""
    return Group(*(line for k, part in enumerate(parts) for line in (("", part) if k else (part,))))


def facts_of(facts: Iterable[tuple[str, str]]) -> Table:
    """Names and values, one a line."""
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=True)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        style = STATUS_COLOURS.get(value.split()[0] if value else "", "") if name == "status" else ""
        table.add_row(Text(name), Text(text_of(value).plain, style))
    return table


def sentences_of(sentences: Iterable[str], mark: str = "-") -> RenderableType:
    """Sentences as a list."""
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(width=1)
    table.add_column(overflow="fold")
    for sentence in sentences:
        table.add_row(Text(mark), text_of(sentence))
    return Padding(table, (0, 0, 0, 1))


def plain_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Table of texts."""
    table = table_of(title)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(text_of(cell) for cell in row))
    return table


def table_of(title: str) -> Table:
    """Empty table that stays plain in a pipe."""
    return Table(
        title=title, title_justify="left", title_style="bold cyan", box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1)
    )


def text_of(value: str) -> Text:
    """Text as it stands: a name may contain what rich would take for markup, or control characters."""
    return Text("".join(c if c.isprintable() else "?" for c in value))


def seconds_of(value: float) -> str:
    """Duration, or that there is none."""
    return "infeasible" if value == math.inf else format_seconds(value)
