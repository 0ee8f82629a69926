"""Processor seconds of each step against layers and against devices, side by side as an SVG picture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape

__all__ = ["STEPS", "picture"]

PANEL, HEIGHT, LEFT, GAP, TOP, BOTTOM, LEGEND = 330, 380, 70, 66, 40, 50, 40
STEPS = ("classes", "bound", "plan", "check")
COLOURS = ("#1b6ca8", "#c8553d", "#2f8f5b", "#7d5ba6", "#8a6d1a")

Row = Mapping[str, float]


def picture(by_layers: Sequence[Row], by_devices: Sequence[Row]) -> str:
    """Draw two panels, all axes logarithmic; rows have ``layers``, ``devices`` and the seconds of each step."""
    times = [max(1e-3, row[step]) for row in [*by_layers, *by_devices] for step in STEPS]
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    width = LEFT + 2 * PANEL + GAP + 20

    def y(seconds: float) -> float:
        return HEIGHT - BOTTOM - (math.log10(max(1e-3, seconds)) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT + LEGEND}" font-family="sans-serif" '
        'font-size="13">',
        f'<rect width="{width}" height="{HEIGHT + LEGEND}" fill="#ffffff"/>',
    ]
    for left, key, rows, other in (
        (LEFT, "layers", by_layers, "devices"),
        (LEFT + PANEL + GAP, "devices", by_devices, "layers"),
    ):
        said = f"{key}, with {rows[0][other]:,.0f} {other}"
        parts += _panel(left, key, said, rows, y, range(low, high + 1))
    for k, step in enumerate(STEPS):
        x, at = LEFT + 120 * k, HEIGHT + 10
        parts.append(
            f'<line x1="{x}" x2="{x + 28}" y1="{at}" y2="{at}" stroke="{COLOURS[k]}" stroke-width="2"/>'
            f'<text x="{x + 36}" y="{at + 4}">{escape(step)}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def _panel(left: int, key: str, said: str, rows: Sequence[Row], y: object, powers: range) -> Iterator[str]:
    assert callable(y)
    at = [row[key] for row in rows]
    span = math.log(at[-1] / at[0]) or 1.0

    def x(n: float) -> float:
        return left + 14 + math.log(n / at[0]) / span * (PANEL - 28)

    for k in powers:
        yield f'<line x1="{left}" x2="{left + PANEL}" y1="{y(10.0**k):.1f}" y2="{y(10.0**k):.1f}" stroke="#dddddd"/>'
        yield f'<text x="{left - 6}" y="{y(10.0**k) + 4:.1f}" text-anchor="end">{10.0**k:g} s</text>'
    for n in at:
        yield f'<text x="{x(n):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle" font-size="11">{n:,.0f}</text>'
    yield f'<text x="{left + PANEL / 2}" y="{HEIGHT - 12}" text-anchor="middle">{escape(said)}</text>'
    for colour, step in zip(COLOURS, STEPS, strict=False):
        points = " ".join(f"{x(row[key]):.1f},{y(row[step]):.1f}" for row in rows)
        yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
