"""What a terminal shows of a plan for the throughput: the loads over all copies, the copies, and what devices hold."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from placewright.evaluate import Evaluation
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.report.copies import copies_of, places_text
from placewright.report.listing import percent
from placewright.report.terminal_loads import load_tables
from placewright.report.terminal_parts import rest_of, table_of, text_of

__all__ = ["copy_tables"]

SHOWN_COPIES = 12


def copy_tables(problem: Problem, evaluation: Evaluation, plan: Plan | None = None) -> list[RenderableType]:
    """Show loads and memory by device, and between them the copies with their shares."""
    loads, *memory = load_tables(problem, evaluation)
    return [loads, *([_copy_table(problem, plan)] if plan is not None else []), *memory]


def _copy_table(problem: Problem, plan: Plan) -> RenderableType:
    uses = copies_of(problem, plan)
    table = table_of("copies of the network")
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("operators", overflow="fold")
    for k, use in enumerate(uses[:SHOWN_COPIES]):
        table.add_row(Text(str(k + 1)), Text(percent(use.share)), text_of(places_text(use)))
    return Group(table, *rest_of(len(uses) - SHOWN_COPIES, "placement"))
