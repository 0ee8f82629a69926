"""Names with ranges, ``node[0-124]-gpu[0-7]``, so that a cluster of 1,000 devices is a line and not a thousand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product

from placewright.errors import InvalidInput

__all__ = ["Expanded", "escape", "escape_slots", "expand", "fill", "parse_numbers"]

MOST_NAMES = 4096
"""Devices of one cluster file: matrices over pairs of them still fit in memory."""

Expanded = tuple[str, tuple[str, ...]]
"""A name, and the text that each of its ranges stands at."""

_RANGE = r"\d+(?:-\d+)?(?:\s*,\s*\d+(?:-\d+)?)*"
_PIECES = re.compile(rf"\[\[|\[({_RANGE})\]")
_SLOTS = re.compile(r"\{\{|\{(\d+)\}")


def expand(text: str, limit: int = MOST_NAMES) -> list[Expanded]:
    """Every name that a text with ranges stands for, in order; the last range runs fastest.

    A range is numbers and spans of them in brackets, ``[0-3,8]``; leading zeros are kept (``[00-11]``); ``[[`` is a
    plain bracket.

    Raises
    ------
    InvalidInput
        If a span goes backwards, or there would be more than ``limit`` names.

    Examples
    --------
    >>> [name for name, _ in expand("gpu[0-1,8]")]
    ['gpu0', 'gpu1', 'gpu8']
    >>> expand("n[0-1]g[0-1]")[2]
    ('n1g0', ('1', '0'))
    """
    if "[" not in text:
        return [(text, ())]
    literals: list[str] = [""]
    ranges: list[list[str]] = []
    at, total = 0, 1
    for piece in _PIECES.finditer(text):
        literals[-1] += text[at : piece.start()]
        at = piece.end()
        if piece[1] is None:
            literals[-1] += "["
            continue
        numbers = _numbers(piece[1], text, limit)
        total *= len(numbers)
        if total > limit:
            raise InvalidInput(_too_many(text, limit))
        ranges.append(numbers)
        literals.append("")
    literals[-1] += text[at:]
    found: list[Expanded] = []
    for chosen in product(*ranges):
        pairs = zip(literals, (*chosen, ""), strict=True)
        found.append(("".join(literal + number for literal, number in pairs), chosen))
    return found


def _numbers(spans: str, text: str, limit: int) -> list[str]:
    numbers: list[str] = []
    for span in spans.split(","):
        first, _, last = span.strip().partition("-")
        last = last or first
        if max(len(first), len(last)) > 9 or int(last) - int(first) >= limit:
            raise InvalidInput(_too_many(text, limit))
        if int(last) < int(first):
            raise InvalidInput(f"range [{span.strip()}] of {text!r} goes backwards; write [{last}-{first}]")
        width = len(first) if first.startswith("0") else 0
        numbers += [f"{k:0{width}d}" for k in range(int(first), int(last) + 1)]
        if len(numbers) > limit:
            raise InvalidInput(_too_many(text, limit))
    return numbers


def _too_many(text: str, limit: int) -> str:
    return f"{text[:100]!r} stands for more than {limit} names; use shorter ranges"


def parse_numbers(text: str) -> tuple[int, ...]:
    """Numbers of ``0-3,8``.

    Examples
    --------
    >>> parse_numbers("0-3,8")
    (0, 1, 2, 3, 8)
    """
    if not re.fullmatch(_RANGE, text.strip()):
        raise InvalidInput(f"{text[:100]!r} is no list of numbers; write for example '0-3,8'")
    return tuple(int(number) for number in _numbers(text.strip(), text, MOST_NAMES))


def fill(text: str, chosen: Sequence[str]) -> str:
    """Put what the ranges of a name stand at in ``{0}``, ``{1}``...; ``{{`` is a plain brace.

    Raises
    ------
    InvalidInput
        If the name has no range of that number.

    Examples
    --------
    >>> fill("node{0}", ("7", "3"))
    'node7'
    """

    def one(slot: re.Match[str]) -> str:
        if slot[1] is None:
            return "{"
        if len(slot[1]) > 3 or int(slot[1]) >= len(chosen):
            raise InvalidInput(
                f"{text!r} refers to range {slot[1]} of its device's name, which has {len(chosen)}; the first is {{0}}"
            )
        return chosen[int(slot[1])]

    return _SLOTS.sub(one, text)


def escape(text: str) -> str:
    """Write a name so that its brackets are no ranges.

    Examples
    --------
    >>> escape("gpu[0]"), expand(escape("gpu[0]"))
    ('gpu[[0]', [('gpu[0]', ())])
    """
    return text.replace("[", "[[")


def escape_slots(text: str) -> str:
    """Write a host so that its braces are no slots."""
    return text.replace("{", "{{")
