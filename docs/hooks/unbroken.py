"""Numbers and their units in tables, on one line however narrow a column is."""

from __future__ import annotations

import re

__all__ = ["unbroken"]


def unbroken(text: str) -> str:
    """Join numbers and units by no-break spaces in the rows of tables that have no code."""
    return "\n".join(
        re.sub(r"(?<=\d) (?=(?:%|[mun]?s|[KMG]i?B)(?:[ |)/]|$))", "\u00a0", line)
        if line.startswith("|") and "`" not in line
        else line
        for line in text.splitlines()
    )
