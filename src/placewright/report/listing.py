"""Counts, shares and lists of names as a reader expects them in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["NAMED", "counted", "listed", "percent"]

NAMED = 4
"""Longer lists show so many names and count the rest."""


def counted(number: int, noun: str) -> str:
    """Put a number before its noun.

    Examples
    --------
    >>> counted(1, "device"), counted(3, "device")
    ('1 device', '3 devices')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def percent(share: float) -> str:
    """Three significant digits above 10 %, two below, so that a small share is no 0; below a millionth it is.

    Examples
    --------
    >>> percent(0.1234), percent(0.00123), percent(0.0), percent(1.0)
    ('12.3%', '0.12%', '0%', '100%')
    """
    value = 100.0 * share if abs(share) >= 1e-6 else 0.0
    if abs(value) >= 999.5:
        return f"{value:,.0f}%"
    return f"{value:.3g}%" if abs(value) >= 10 else f"{value:.2g}%"


def listed(names: Sequence[str]) -> str:
    """Join names as a sentence does.

    Examples
    --------
    >>> listed(["a"]), listed(["a", "b", "c"]), listed(list("abcdefgh"))
    ('a', 'a, b and c', 'a, b, c, d and 4 more')
    """
    shown = list(names)
    if len(shown) > NAMED + 1:
        shown = [*shown[:NAMED], f"{len(names) - NAMED} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
