"""Seconds against operators as an SVG picture, both axes logarithmic."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

__all__ = ["picture"]

WIDTH, HEIGHT = 800, 460
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 30, 50
COLOURS = ("#1b6ca8", "#c8553d", "#2f8f5b", "#7d5ba6", "#8a6d1a", "#555555")
DASHES = ("", "6 4", "2 3")
TARGETS = ((10_000, 2.0), (100_000, 20.0))
"""Most seconds that list scheduling may take at a number of operators."""


def picture(rows: Sequence[Mapping[str, Any]], solvers: Sequence[str]) -> str:
    """Draw one curve a network and solver; circles mark the targets."""
    families = list(dict.fromkeys(row["family"] for row in rows))
    sizes = [row["n"] for row in rows]
    times = [row[solver] for row in rows for solver in solvers] + [target for _, target in TARGETS]
    low, high = (math.floor(math.log10(min(times))), math.ceil(math.log10(max(times))))
    first, last = math.floor(math.log10(min(sizes))), math.ceil(math.log10(max(sizes)))

    def x(n: float) -> float:
        return LEFT + (math.log10(n) - first) / max(1, last - first) * (WIDTH - LEFT - RIGHT)

    def y(seconds: float) -> float:
        return HEIGHT - BOTTOM - (math.log10(seconds) - low) / max(1, high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        *_axes(x, y, range(first, last + 1), range(low, high + 1)),
    ]
    for k, family in enumerate(families):
        colour = COLOURS[k % len(COLOURS)]
        own = [row for row in rows if row["family"] == family]
        for dash, solver in zip(DASHES, solvers, strict=False):
            points = " ".join(f"{x(row['n']):.1f},{y(row[solver]):.1f}" for row in own)
            stroke = f'fill="none" stroke="{colour}" stroke-width="2"' + (f' stroke-dasharray="{dash}"' if dash else "")
            parts.append(f'<polyline points="{points}" {stroke}/>')
            at = TOP + 12 + 20 * (k * len(solvers) + solvers.index(solver))
            parts.append(f'<line x1="{WIDTH - RIGHT + 15}" x2="{WIDTH - RIGHT + 40}" y1="{at}" y2="{at}" {stroke}/>')
            parts.append(f'<text x="{WIDTH - RIGHT + 46}" y="{at + 4}">{escape(family)}, {escape(solver)}</text>')
    for n, target in TARGETS:
        if min(sizes) <= n <= 10**last:
            parts.append(f'<circle cx="{x(n):.1f}" cy="{y(target):.1f}" r="5" fill="none" stroke="#000000"/>')
            parts.append(f'<text x="{x(n) - 9:.1f}" y="{y(target) - 9:.1f}" text-anchor="end">{target:g} s</text>')
    return "\n".join([*parts, "</svg>", ""])


def _axes(x: Any, y: Any, sizes: range, times: range) -> Iterator[str]:
    for k in sizes:
        yield (
            f'<line x1="{x(10**k):.1f}" x2="{x(10**k):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#dddddd"/>'
            f'<text x="{x(10**k):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{10**k:,}</text>'
        )
    for k in times:
        yield (
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(10.0**k):.1f}" y2="{y(10.0**k):.1f}" stroke="#dddddd"/>'
            f'<text x="{LEFT - 8}" y="{y(10.0**k) + 4:.1f}" text-anchor="end">{10.0**k:g} s</text>'
        )
    middle = LEFT + (WIDTH - LEFT - RIGHT) / 2
    yield f'<text x="{middle}" y="{HEIGHT - 10}" text-anchor="middle">operators</text>'
