"""On which figures a plan depends, as a table, as sentences, and as JSON."""

from __future__ import annotations

from math import inf
from typing import Any

from rich.console import RenderableType

from placewright.report.html_parts import sentences, text_table
from placewright.report.listing import counted, percent
from placewright.report.terminal_parts import plain_table, sentences_of, spaced
from placewright.sensitivity import REACH, Dependence, Sensitivity

__all__ = ["explain_sensitivity", "sensitivity_html", "sensitivity_report", "sensitivity_to_json"]

WORTH = 0.005
"""Loss from which a measurement is recommended."""


def sensitivity_report(found: Sensitivity) -> RenderableType:
    """Show a table of all figures, and what follows from it."""
    table = plain_table("What the plan depends on", _headings(found), _rows(found))
    return spaced([table, sentences_of(explain_sensitivity(found))])


def sensitivity_html(found: Sensitivity) -> str:
    """Give the same for a page."""
    told = f'<ul class="sentences">\n{sentences(explain_sensitivity(found))}\n</ul>'
    return f"{text_table(_headings(found), _rows(found))}\n{told}"


def explain_sensitivity(found: Sensitivity) -> list[str]:
    """Say which figures matter, and which one to measure.

    Examples
    --------
    >>> row = Dependence("gpu0", "speed", 1.25, 1.1, 0.0, 1.0, 0.08)
    >>> for line in explain_sensitivity(Sensitivity((row,), None, 5)):
    ...     print(line)
    5 plans were judged with each figure off by up to a factor of 4.
    Measure the speed of gpu0 first: if it is off by 25%, another plan may be 8% faster.
    """
    lines = [f"{counted(found.plans, 'plan')} were judged with each figure off by up to a factor of {REACH:g}."]
    if found.plans == 1:
        lines = [f"No other plan was found with any figure off by up to a factor of {REACH:g}."]
    if found.better is not None:
        lines.append("A better plan was met on the way: plan again with a larger budget before measuring anything.")
    elif found.rows and found.rows[0].loss >= WORTH:
        row = found.rows[0]
        lines.append(
            f"Measure the {row.kind} of {row.what} first: if it is off by {percent(row.doubt - 1)}, "
            f"another plan may be {percent(row.loss)} faster."
        )
    elif found.rows and not found.interrupted:
        lines.append(
            f"No measurement is worth making for this plan: within {_doubts(found)} of error no known plan is more "
            f"than {percent(max(row.loss for row in found.rows))} faster."
        )
    if found.interrupted:
        lines.append(
            "Not every figure was looked at in full: the time was over, or it was interrupted; give more with --budget."
        )
    return lines


def sensitivity_to_json(found: Sensitivity) -> dict[str, Any]:
    """One JSON object; factors that don't exist are null."""
    return {
        "plans": found.plans,
        "better_plan_known": found.better is not None,
        "interrupted": found.interrupted,
        "explanation": explain_sensitivity(found),
        "figures": [
            {
                "figure": row.kind,
                "of": row.what,
                "doubt_factor": row.doubt,
                "slower_at_factor": None if row.slower_at == inf else row.slower_at,
                "faster_at_factor": None if row.faster_at == 0.0 else row.faster_at,
                "proved_optimal_to_factor": row.sure_to,
                "loss_share": row.loss,
            }
            for row in found.rows
        ],
    }


def _headings(found: Sensitivity) -> tuple[str, ...]:
    return ("figure", "another plan is better if", "or if", "proved best until", f"loss at {_doubts(found)}")


def _rows(found: Sensitivity) -> list[tuple[str, ...]]:
    return [
        (
            f"{row.kind} of {row.what}",
            _times(row.slower_at, "slower") if row.slower_at < inf else "-",
            _times(1.0 / row.faster_at, "faster") if row.faster_at > 0.0 else "-",
            _sure(row),
            percent(row.loss),
        )
        for row in found.rows
    ]


def _times(factor: float, word: str) -> str:
    return "now" if factor <= 1.0 else f"{factor:.2f} x {word}"


def _sure(row: Dependence) -> str:
    if row.sure_to <= 1.0:
        return "-"
    return f"{row.sure_to:.0f} x slower" if row.sure_to >= REACH else f"{row.sure_to:.2f} x slower"


def _doubts(found: Sensitivity) -> str:
    doubts = sorted({row.doubt for row in found.rows})
    return " or ".join(f"{percent(d - 1)}" for d in doubts)
