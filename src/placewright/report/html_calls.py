"""The parts of the page that show an offload plan: its calls and its devices, as tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape

from placewright.evaluate import Evaluation, calls_of
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.report.html_parts import SHOWN_DEVICES, barred, closing_rows, dot, row, table
from placewright.report.listing import counted, percent
from placewright.units import format_seconds

__all__ = ["call_table", "offload_device_table"]

SHOWN_CALLS = 128
"""The table has a row for so many calls; the rest is counted."""


def call_table(problem: Problem, plan: Plan, evaluation: Evaluation) -> str:
    """Each call in the order of their starts: when, its parts, and what it runs."""
    calls = sorted(calls_of(problem, plan, evaluation), key=lambda c: (c.start_s, c.device))
    operators, rows = problem.graph.operators, []
    for call in calls[:SHOWN_CALLS]:
        first, last = operators[call.operators[0]].name, operators[call.operators[-1]].name
        cells = [
            ("start", format_seconds(call.start_s)),
            ("in", _part(call.load.in_s)),
            ("compute", _part(call.load.compute_s)),
            ("out", _part(call.load.out_s)),
            ("end", format_seconds(call.finish_s)),
            ("operators", f"{len(call.operators):,}"),
            ("first", escape(first)),
            ("last", escape(last) if len(call.operators) > 1 else "-"),
        ]
        name = escape(problem.cluster.devices[call.device].name)
        rows.append(row(f'{dot(call.device)}{name} <span class="stage">{call.number + 1}</span>', cells))
    if len(calls) > SHOWN_CALLS:
        rows.append(f'<tr><th scope="row">and {counted(len(calls) - SHOWN_CALLS, "call")} more</th></tr>')
    if not rows:
        return "<p>No accelerator is called: everything runs on CPUs.</p>"
    return table(("device, call", "start", "in", "compute", "out", "end", "operators", "first", "last"), rows)


def offload_device_table(problem: Problem, evaluation: Evaluation, reasons: Mapping[int, str]) -> str:
    """Each used device with what its calls cost together, then the unused ones with the reason why."""
    rows = []
    uses = [(i, use) for i, use in enumerate(evaluation.devices) if use.operators]
    for i, use in uses[:SHOWN_DEVICES]:
        device = problem.cluster.devices[i]
        pool = device.kind == "cpu"
        share = use.load_s / evaluation.value_s if 0 < evaluation.value_s < math.inf else 0.0
        cells = [
            ("kind", escape(" ".join(x for x in (device.kind, device.model) if x))),
            ("calls", "-" if pool else f"{len(use.loads):,}"),
            ("operators", f"{use.operators:,}"),
            ("in", _part(sum(load.in_s for load in use.loads))),
            ("compute", _part(use.busy_s)),
            ("out", _part(sum(load.out_s for load in use.loads))),
            ("share", "-" if pool else barred(share, percent(share), i)),
        ]
        rows.append(row(dot(i) + escape(use.name), cells))
    rows += closing_rows(problem, reasons, len(uses) - SHOWN_DEVICES, "device", 7)
    return table(("device", "kind", "calls", "operators", "in", "compute", "out", "share of the latency"), rows)


def _part(seconds: float) -> str:
    return format_seconds(seconds) if seconds else "-"
