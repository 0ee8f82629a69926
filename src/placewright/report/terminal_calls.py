"""What a terminal shows of an offload plan: devices, calls in the order of their starts, what they run, and memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from placewright.evaluate import Call, Evaluation, calls_of
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.report.listing import percent
from placewright.report.loads import StageUse, shortened
from placewright.report.terminal_loads import memory_table
from placewright.report.terminal_parts import ABSENT, SHOWN_DEVICES, SHOWN_IDLE, rest_of, seconds_of, table_of, text_of

__all__ = ["call_tables"]

MOST_CHARACTERS = 22
"""Longer names of operators are cut in their middle."""


def call_tables(problem: Problem, evaluation: Evaluation, plan: Plan | None = None) -> list[RenderableType]:
    """Show devices, calls and memory; without a plan nothing is known of the calls but what they cost."""
    tables: list[RenderableType] = [_device_table(problem, evaluation)]
    calls = [] if plan is None else sorted(calls_of(problem, plan, evaluation), key=lambda c: (c.start_s, c.device))
    if calls:
        tables += [_call_table(problem, calls), _content_table(problem, calls)]
    used = [
        StageUse((i,), use.name, use)
        for i, use in enumerate(evaluation.devices)
        if use.operators and problem.cluster.devices[i].kind != "cpu"
    ]
    return [*tables, *([memory_table(evaluation, used)] if used else [])]


def _device_table(problem: Problem, evaluation: Evaluation) -> RenderableType:
    table = table_of("devices")
    table.add_column("device", overflow="fold")
    for heading in ("calls", "operators", "busy", "share", "compute", "transfers"):
        table.add_column(heading, justify="right", no_wrap=True)
    rows = list(enumerate(evaluation.devices))
    used = [x for x in rows if x[1].operators]
    idle = [x for x in rows if not x[1].operators]
    for i, use in sorted([*used[:SHOWN_DEVICES], *idle[:SHOWN_IDLE]], key=lambda x: x[0]):
        pool = problem.cluster.devices[i].kind == "cpu"
        busy = use.load_s
        share = percent(busy / evaluation.value_s) if 0 < evaluation.value_s < math.inf and not pool else ABSENT
        travel = sum(load.in_s + load.out_s for load in use.loads)
        table.add_row(
            text_of(use.name),
            Text(ABSENT if pool else f"{len(use.loads):,}"),
            Text(f"{use.operators:,}"),
            *(Text(x) for x in ([ABSENT, ABSENT] if pool else [seconds_of(busy), share])),
            *(Text(seconds_of(x) if x else ABSENT) for x in (use.busy_s, travel)),
            style="" if use.operators else "dim",
        )
    hidden = max(0, len(used) - SHOWN_DEVICES) + max(0, len(idle) - SHOWN_IDLE)
    return Group(table, *rest_of(hidden, "device"))


def _call_table(problem: Problem, calls: Sequence[Call]) -> RenderableType:
    table = table_of("calls, in the order of their starts")
    table.add_column("device", overflow="fold")
    table.add_column("call", justify="right", no_wrap=True)
    for heading in ("start", "in", "compute", "out", "end"):
        table.add_column(heading, justify="right", no_wrap=True)
    for call in calls[:SHOWN_DEVICES]:
        parts = call.load.in_s, call.load.compute_s, call.load.out_s
        table.add_row(
            text_of(problem.cluster.devices[call.device].name),
            Text(str(call.number + 1)),
            Text(seconds_of(call.start_s)),
            *(Text(seconds_of(part) if part else ABSENT) for part in parts),
            Text(seconds_of(call.finish_s)),
        )
    return Group(table, *rest_of(len(calls) - SHOWN_DEVICES, "call"))


def _content_table(problem: Problem, calls: Sequence[Call]) -> RenderableType:
    shown, operators = calls[:SHOWN_DEVICES], problem.graph.operators
    names = [operators[v].name for call in shown for v in (call.operators[0], call.operators[-1])]
    start, ends = shortened(names, MOST_CHARACTERS)
    table = table_of("what they run")
    table.add_column("device", overflow="fold")
    for heading in ("call", "operators"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("first", "last"):
        table.add_column(heading, overflow="fold")
    for k, call in enumerate(shown):
        table.add_row(
            text_of(problem.cluster.devices[call.device].name),
            Text(str(call.number + 1)),
            Text(f"{len(call.operators):,}"),
            text_of(ends[2 * k]),
            text_of(ends[2 * k + 1] if len(call.operators) > 1 else ABSENT),
        )
    within = [text_of(f" names are those in {start}")] if start else []
    return Group(table, *within, *rest_of(len(calls) - SHOWN_DEVICES, "call"))
