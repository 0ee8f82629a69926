"""The part of the page that shows the copies of a plan for the throughput."""

from __future__ import annotations

from html import escape

from placewright.plan import Plan
from placewright.problem import Problem
from placewright.report.copies import copies_of, places_text
from placewright.report.html_parts import SHOWN_DEVICES, closing_rows, row, table
from placewright.report.listing import percent

__all__ = ["copy_table"]


def copy_table(problem: Problem, plan: Plan) -> str:
    """Tabulate each copy with its share of the samples and the operators on each of its devices."""
    uses = copies_of(problem, plan)
    rows = [
        row(f"copy {k}", [("share", percent(use.share)), ("operators", escape(places_text(use)))])
        for k, use in enumerate(uses[:SHOWN_DEVICES], start=1)
    ]
    rows += closing_rows(problem, {}, len(uses) - SHOWN_DEVICES, "placement", 2)
    return table(("", "share", "operators"), rows)
