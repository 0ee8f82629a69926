"""Seconds to a proof, against the modules of a chain and against its devices, side by side as an SVG picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape

from benchmarks.quality.modules_chains import Point

__all__ = ["picture"]

PANEL, HEIGHT = 330, 400
LEFT, GAP, TOP, BOTTOM, LEGEND = 70, 66, 40, 50, 60
COLOURS = ("#1b6ca8", "#c8553d", "#2f8f5b", "#7d5ba6")

Scale = Callable[[float], float]


def picture(points: Sequence[Point], devices: int, modules: int, budget_s: float) -> str:
    """Draw two panels, all axes logarithmic; a hollow circle is a run whose budget ended before the proof."""
    shown = [p for p in points if p.run is not None]
    families = list(dict.fromkeys(p.family for p in shown))
    times = [max(1e-3, p.run.wall_s) for p in shown if p.run is not None]
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(*times, budget_s)))
    width = LEFT + 2 * PANEL + GAP + 20

    def y(seconds: float) -> float:
        return HEIGHT - BOTTOM - (math.log10(seconds) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT + LEGEND}" font-family="sans-serif" '
        'font-size="13">',
        f'<rect width="{width}" height="{HEIGHT + LEGEND}" fill="#ffffff"/>',
    ]
    panels = [
        (LEFT, f"modules, on {devices} devices", [p for p in shown if p.devices == devices], False),
        (LEFT + PANEL + GAP, f"devices, for {modules} modules", [p for p in shown if p.modules == modules], True),
    ]
    for left, said, own, by_devices in panels:
        parts += _panel(left, said, own, by_devices, families, y, range(low, high + 1))
    for k, family in enumerate(families):
        x, at = LEFT + (k % 2) * (PANEL + GAP), HEIGHT + 14 + 22 * (k // 2)
        parts.append(
            f'<line x1="{x}" x2="{x + 28}" y1="{at}" y2="{at}" stroke="{COLOURS[k]}" stroke-width="2"/>'
            f'<text x="{x + 36}" y="{at + 4}">{escape(family)}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def _panel(
    left: int, said: str, own: Sequence[Point], by_devices: bool, families: Sequence[str], y: Scale, powers: range
) -> Iterator[str]:
    at = sorted({p.devices if by_devices else p.modules for p in own})
    if not at:
        return
    span = math.log(at[-1] / at[0]) or 1.0

    def x(n: float) -> float:
        return left + 12 + math.log(n / at[0]) / span * (PANEL - 24)

    for k in powers:
        yield (
            f'<line x1="{left}" x2="{left + PANEL}" y1="{y(10.0**k):.1f}" y2="{y(10.0**k):.1f}" stroke="#dddddd"/>'
            f'<text x="{left - 8}" y="{y(10.0**k) + 4:.1f}" text-anchor="end">{10.0**k:g} s</text>'
        )
    for n in at:
        yield (
            f'<line x1="{x(n):.1f}" x2="{x(n):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#dddddd"/>'
            f'<text x="{x(n):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{n}</text>'
        )
    yield f'<text x="{left + PANEL / 2}" y="{HEIGHT - 12}" text-anchor="middle">{said}</text>'
    for k, family in enumerate(families):
        curve = [(p.devices if by_devices else p.modules, p.run) for p in own if p.family == family and p.run]
        curve.sort(key=lambda point: point[0])
        line = " ".join(f"{x(n):.1f},{y(max(1e-3, run.wall_s)):.1f}" for n, run in curve)
        yield f'<polyline points="{line}" fill="none" stroke="{COLOURS[k]}" stroke-width="2"/>'
        for n, run in curve:
            inside = COLOURS[k] if run.proved else "#ffffff"
            yield (
                f'<circle cx="{x(n):.1f}" cy="{y(max(1e-3, run.wall_s)):.1f}" r="4" fill="{inside}" '
                f'stroke="{COLOURS[k]}" stroke-width="1.5"/>'
            )
