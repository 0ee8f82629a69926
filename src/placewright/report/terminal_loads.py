"""What a terminal shows of a plan for the max-load: the pace, the loads, the stages and the memory of the pipeline."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from placewright.evaluate import DeviceUse, Evaluation, Load
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.report.listing import percent
from placewright.report.loads import (
    PASSES,
    StageUse,
    channel_label,
    load_formula,
    loaded_channels,
    operators_text,
    pass_names,
    peaks_s,
    per_second,
    pipeline_order,
    shortened,
    slowest,
    stages_of,
)
from placewright.report.terminal_parts import (
    ABSENT,
    SHOWN_DEVICES,
    SHOWN_IDLE,
    WIDEST_PARTS,
    rest_of,
    seconds_of,
    table_of,
    text_of,
)
from placewright.units import format_bytes

__all__ = ["load_facts", "load_tables", "memory_table"]

MOST_CHARACTERS = 22
"""Longer names of operators are cut in their middle."""


def load_facts(evaluation: Evaluation) -> list[tuple[str, str]]:
    """Value as time per sample and as a rate, and how long one sample alone is under way."""
    if not evaluation.value_s < math.inf:
        return [("value", "infeasible")]
    peaks = peaks_s(evaluation)
    facts = [("value", f"{seconds_of(evaluation.value_s)} a sample, {per_second(evaluation.value_s)}")]
    if len(peaks) > 1:
        parts = [f"{seconds_of(peak)} {name}" for peak, name in zip(peaks, PASSES, strict=True)]
        facts.append(("passes", " + ".join(parts)))
    return [*facts, ("one sample alone", f"{seconds_of(evaluation.schedule.makespan_s)} through the empty pipeline")]


def load_tables(problem: Problem, evaluation: Evaluation, plan: Plan | None = None) -> list[RenderableType]:
    """Show loads by stage and channel, the stages of a contiguous plan in the order of the pipeline, and memory."""
    stages = stages_of(problem, evaluation, plan)
    chain = plan is not None and bool(pipeline_order(problem, plan.device_of))
    tables = [_load_table(problem, evaluation, stages, with_operators=not chain)]
    if chain:
        tables.append(_stage_table(stages))
    tables.append(memory_table(evaluation, stages))
    return tables


def _load_table(
    problem: Problem, evaluation: Evaluation, stages: Sequence[StageUse], *, with_operators: bool
) -> RenderableType:
    peaks, names = peaks_s(evaluation), pass_names(evaluation)
    apart = len(names) > 1
    synced = any(load.sync_s for stage in stages for load in stage.use.loads)
    table = table_of(f"loads of a sample: {load_formula(problem, evaluation)}")
    table.add_column("device", overflow="fold")
    if apart:
        table.add_column("pass", no_wrap=True)
    headings = [*(["operators"] if with_operators else []), "load", "share", "compute", "in", "out"]
    for heading in [*headings, *(["sync"] if synced else [])]:
        table.add_column(heading, justify="right", no_wrap=True)

    def add(name: str, load_s: float, which: int, parts: Sequence[str], operators: str, style: str = "") -> None:
        cells = [name if which == 0 else "", *([names[which] if parts else ""] if apart else [])]
        cells += [operators] if with_operators else []
        share = percent(load_s / peaks[which]) if 0 < peaks[which] < math.inf else ABSENT
        at_peak = bool(slowest([load_s], [peaks[which]])) and load_s > 0
        table.add_row(
            *(text_of(cell) for cell in cells),
            Text(seconds_of(load_s)),
            Text(share),
            *(Text(part) for part in (parts or [ABSENT] * 4)[: 4 if synced else 3]),
            style=style or ("bold" if at_peak else ""),
        )

    shown = _most_loaded(stages)
    for stage in shown:
        for which, load in enumerate(stage.use.loads):
            number = f"{stage.number(which, len(names)):,}" if with_operators and (not apart or stage.first) else ABSENT
            add(stage.name, load.load_s, which, _parts(load), number)
    idle = [use for use in evaluation.devices if not use.operators]
    for use in idle[:SHOWN_IDLE]:
        add(use.name, 0.0, 0, [], "0", "dim")
    channels = loaded_channels(evaluation)
    if channels:
        table.add_section()
    for channel in channels[:SHOWN_DEVICES]:
        for which, load_s in enumerate(channel.load_s):
            add(channel_label(channel.name), load_s, which, [ABSENT] * 4, ABSENT)
    hidden = len(stages) - len(shown) + max(0, len(idle) - SHOWN_IDLE)
    quiet = len(evaluation.channels) - len(channels[:SHOWN_DEVICES])
    return Group(table, *rest_of(hidden, "device"), *rest_of(quiet, "channel"))


def _parts(load: Load) -> list[str]:
    """Parts of a load; a part that is not there has a dash, so that the eye finds those that are."""
    return [seconds_of(part) if part else ABSENT for part in (load.compute_s, load.in_s, load.out_s, load.sync_s)]


def _stage_table(stages: Sequence[StageUse]) -> RenderableType:
    shown = stages[:SHOWN_DEVICES]
    start, ends = shortened([name for stage in shown for name in (stage.first, stage.last)], MOST_CHARACTERS)
    table = table_of("stages, in the order of the pipeline")
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("device", overflow="fold")
    table.add_column("operators", overflow="fold")
    table.add_column("first", overflow="fold")
    table.add_column("last", overflow="fold")
    for k, stage in enumerate(shown):
        cells = stage.name, operators_text(stage).removesuffix(" operators").removesuffix(" operator")
        first, last = ends[2 * k], ends[2 * k + 1] if stage.operators > 1 else ABSENT
        table.add_row(Text(str(k + 1)), *(text_of(cell) for cell in (*cells, first, last)))
    within = [text_of(f" names are those in {start}")] if start else []
    return Group(table, *within, *rest_of(len(stages) - SHOWN_DEVICES, "stage"))


def memory_table(evaluation: Evaluation, stages: Sequence[StageUse]) -> RenderableType:
    """Parts that no device has get no column: activations are not counted where the objective does not see them."""
    uses = [stage.use for stage in stages]
    parts = {name: [use.memory_parts[name] for use in uses] for name in (uses[0].memory_parts if uses else ())}
    columns = [name for name, sizes in parts.items() if name == "weights" or any(sizes)]
    table = table_of("memory" + (" of each copy" if any(len(stage.devices) > 1 for stage in stages) else ""))
    table.add_column("device", overflow="fold")
    used = len(columns) <= WIDEST_PARTS
    for heading in (*columns, *(["total"] if len(columns) > 1 else []), "limit", *(["used"] if used else [])):
        table.add_column(heading, justify="right", no_wrap=True)
    for k, stage in enumerate(stages[:SHOWN_DEVICES]):
        use, limit = stage.use, stage.use.limit_bytes
        sizes = [parts[name][k] for name in columns] + ([use.memory_bytes] if len(columns) > 1 else [])
        table.add_row(
            text_of(stage.name),
            *(Text(format_bytes(size)) for size in sizes),
            Text("none" if limit is None else format_bytes(limit)),
            *([Text(percent(use.memory_bytes / limit) if limit else ABSENT)] if used else []),
            style="bold red" if _over(use) else "",
        )
    return Group(table, *rest_of(len(stages) - SHOWN_DEVICES, "device"))


def _over(use: DeviceUse) -> bool:
    return use.limit_bytes is not None and use.memory_bytes > use.limit_bytes


def _most_loaded(stages: Sequence[StageUse]) -> list[StageUse]:
    """Stages that a table has room for: those with the largest loads, in their own order."""
    order = sorted(range(len(stages)), key=lambda k: (-stages[k].use.load_s, k))
    return [stages[k] for k in sorted(order[:SHOWN_DEVICES])]
