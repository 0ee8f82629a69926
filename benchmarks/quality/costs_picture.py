"""Share of a GPU's roofline that matrix products reach, against their size: measured and as the curve says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from itertools import pairwise

import numpy as np

from placewright.costs.curve import Curve
from placewright.costs.curve_fit import Measured

__all__ = ["picture"]

WIDTH, HEIGHT = 800, 420
LEFT, RIGHT, TOP, BOTTOM = 60, 170, 25, 50
COLOURS = ("#1b6ca8", "#c8553d", "#2f8f5b", "#7d5ba6")
FIRST, LAST = -7, -2
"""Decades of the ideal time, in seconds."""

BINS_A_DECADE = 3


def picture(devices: Mapping[str, Measured], curve: Curve, floors: Mapping[str, float]) -> str:
    """Draw medians of measured efficiency as points with quartiles, and the curve's medians as lines."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        *(_vertical(k) for k in range(FIRST, LAST + 1)),
        *(_horizontal(share) for share in (0.0, 0.25, 0.5, 0.75, 1.0)),
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">time at the peaks</text>',
    ]
    for k, (name, seen) in enumerate(devices.items()):
        colour = COLOURS[k % len(COLOURS)]
        f = seen.figures
        ideal = np.maximum(seen.work.flops / f.peak_flops_per_s, seen.work.traffic_bytes / f.bandwidth_bytes_per_s)
        said = curve.seconds(seen.work, f, floor_s=floors[name] / f.clock_hz, warm=True)
        line = []
        for middle, inside in _bins(ideal):
            low, half, high = np.quantile(ideal[inside] / seen.seconds[inside], [0.25, 0.5, 0.75])
            line.append(f"{_x(middle):.1f},{_y(float(np.median(ideal[inside] / said[inside]))):.1f}")
            parts.append(
                f'<line x1="{_x(middle):.1f}" x2="{_x(middle):.1f}" y1="{_y(low):.1f}" y2="{_y(high):.1f}" '
                f'stroke="{colour}" stroke-opacity="0.4"/>'
                f'<circle cx="{_x(middle):.1f}" cy="{_y(half):.1f}" r="3.5" fill="{colour}"/>'
            )
        parts.append(f'<polyline points="{" ".join(line)}" fill="none" stroke="{colour}" stroke-width="2"/>')
        at = TOP + 12 + 20 * k
        parts.append(f'<circle cx="{WIDTH - RIGHT + 22}" cy="{at}" r="3.5" fill="{colour}"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 34}" y="{at + 4}">{escape(name)}</text>')
    note = TOP + 12 + 20 * len(devices) + 10
    for k, line_of_text in enumerate(("points: measured,", "bars: quartiles,", "lines: the curve")):
        parts.append(f'<text x="{WIDTH - RIGHT + 15}" y="{note + 18 * k}" fill="#555555">{line_of_text}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _bins(ideal: np.ndarray) -> list[tuple[float, np.ndarray]]:
    edges = np.logspace(FIRST, LAST, (LAST - FIRST) * BINS_A_DECADE + 1)
    found = []
    for low, high in pairwise(edges):
        inside = np.flatnonzero((ideal >= low) & (ideal < high))
        if inside.size >= 10:
            found.append((math.sqrt(low * high), inside))
    return found


def _x(seconds: float) -> float:
    return LEFT + (math.log10(seconds) - FIRST) / (LAST - FIRST) * (WIDTH - LEFT - RIGHT)


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - min(share, 1.15) / 1.15 * (HEIGHT - TOP - BOTTOM)


def _vertical(decade: int) -> str:
    at = _x(10.0**decade)
    name = {-7: "0.1 us", -6: "1 us", -5: "10 us", -4: "0.1 ms", -3: "1 ms", -2: "10 ms"}[decade]
    return (
        f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#dddddd"/>'
        f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{name}</text>'
    )


def _horizontal(share: float) -> str:
    at = _y(share)
    return (
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#dddddd"/>'
        f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{share:.0%}</text>'
    )
