"""The parts of the page that show a pipeline: the loads as stacked bars, and the stages as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from placewright.evaluate import Evaluation, Load
from placewright.objective import load_rows
from placewright.problem import Problem
from placewright.report.html_parts import COLOURS, SHOWN_DEVICES, closing_rows, dot, row, table
from placewright.report.listing import counted, percent
from placewright.report.loads import (
    StageUse,
    channel_label,
    load_formula,
    load_objective,
    loaded_channels,
    operators_text,
    pass_names,
    peaks_s,
    per_second,
    slowest,
)
from placewright.result import Result
from placewright.units import format_bytes, format_seconds

__all__ = ["load_cards", "load_chart", "stage_table"]

PARTS = (("q0", "compute"), ("q1", "in"), ("q2", "out"), ("q3", "sync"))
"""Style and name of the parts of a load."""

Block = tuple[str, str, float, float, int, int]
"""Style, name, start, length, lane and number of lanes of one coloured block; seconds."""


def load_cards(result: Result, evaluation: Evaluation | None) -> list[tuple[str, str, str]]:
    """Cards of the headline: time per sample and rate, and how long one sample alone is under way."""
    if result.plan is None or evaluation is None:
        return []
    names, note = pass_names(evaluation), f"{per_second(result.value_s)} in steady state"
    if len(names) > 1:
        peaks = [format_seconds(peak) for peak in peaks_s(evaluation)]
        note += f"; {' + '.join(f'{peak} {name}' for peak, name in zip(peaks, names, strict=True))}"
    return [
        ("time per sample" if result.plan.copies else "max-load", format_seconds(result.value_s), note),
        (
            "one sample alone",
            format_seconds(evaluation.schedule.makespan_s),
            f"through {'its first copy' if result.plan.copies else 'the empty pipeline'}",
        ),
    ]


@dataclass(frozen=True, slots=True)
class _Axis:
    """What all bars are drawn against: the largest load of each pass, the value, the bound; seconds."""

    names: tuple[str, ...]
    peaks_s: tuple[float, ...]
    value_s: float
    bound_s: float

    @property
    def end_s(self) -> float:
        return max(self.value_s, self.bound_s)

    @property
    def starts_s(self) -> list[float]:
        """Where the bars of each pass start: at the end of the longest of the pass before."""
        return [sum(self.peaks_s[:k]) for k in range(len(self.peaks_s))]

    def at(self, seconds: float) -> str:
        """Share of the width."""
        return f"{100 * seconds / self.end_s:.3f}%"

    def lines(self) -> str:
        marks = [("bound", self.bound_s)] if self.bound_s > 0 else []
        marks += [("passes", start) for start in self.starts_s[1:]]
        return "".join(f'<span class="{css}" style="left:{self.at(seconds)}"></span>' for css, seconds in marks)

    def tag(self, loads_s: Sequence[float]) -> str:
        """Say of which passes this is a bottleneck."""
        slow = [self.names[k] for k in slowest(loads_s, self.peaks_s)]
        words = " ".join(["bottleneck", *([f"({', '.join(slow)})"] if any(slow) else [])])
        return f' <span class="tag">{words}</span>' if slow else ""


def load_chart(problem: Problem, result: Result, evaluation: Evaluation, stages: Sequence[StageUse]) -> str:
    """Draw a bar for each stage and channel, all on one scale that ends at the value, with a line at the lower bound.

    Passes that count apart stand one after the other: the backward part of every bar starts where the longest forward
    part ends, so that the right edge is the value. Parts that overlap lie below each other.
    """
    axis = _Axis(pass_names(evaluation), peaks_s(evaluation), evaluation.value_s, result.lower_bound_s)
    if not 0 < axis.end_s < math.inf:
        return "<p>There is no load to draw.</p>"
    bars = []
    for stage in stages[:SHOWN_DEVICES]:
        loads = stage.use.loads
        blocks = [b for load, start in zip(loads, axis.starts_s, strict=True) for b in _blocks(problem, load, start)]
        bars.append(_bar(stage.name, [load.load_s for load in loads], blocks, _said(loads), axis, stage.devices[0]))
    if len(stages) > SHOWN_DEVICES:
        bars.append(f"<p>and {counted(len(stages) - SHOWN_DEVICES, 'stage')} more</p>")
    for channel in loaded_channels(evaluation)[:SHOWN_DEVICES]:
        pairs = zip(axis.starts_s, channel.load_s, strict=True)
        blocks = [("q4", "transfers", start, load_s, 0, 1) for start, load_s in pairs if load_s > 0]
        bars.append(_bar(channel_label(channel.name), channel.load_s, blocks, "transfers over it", axis))
    return f'<div class="loads">\n{"".join(bars)}</div>\n{_key(problem, result, evaluation)}'


def _blocks(problem: Problem, load: Load, start: float) -> list[Block]:
    rows = load_rows(load_objective(problem))
    made: list[Block] = []
    for lane, factors in enumerate(rows):
        end = start
        for factor, (css, name), size in zip(factors, PARTS, (load.compute_s, load.in_s, load.out_s), strict=False):
            if factor:
                made.append((css, name, end, factor * size, lane, len(rows)))
                end += factor * size
    made.append((*PARTS[3], start + load.load_s - load.sync_s, load.sync_s, 0, 1))
    return [block for block in made if block[3] > 0]


def _bar(
    name: str, loads_s: Sequence[float], blocks: Sequence[Block], said: str, axis: _Axis, device: int | None = None
) -> str:
    fills = "".join(
        f'<span class="block {css}" style="left:{axis.at(start)};width:{axis.at(size)};'
        f'top:{100 * lane / lanes:.4g}%;height:{100 / lanes:.4g}%" title="{part} {format_seconds(size)}"></span>'
        for css, part, start, size, lane, lanes in blocks
    )
    deep = max((block[5] for block in blocks), default=1)
    mark, css = ("", "") if device is None else (dot(device), f" d{device % COLOURS}")
    share = f" ({percent(sum(loads_s) / axis.value_s)})" if axis.value_s > 0 else ""
    return (
        f'<div class="memory"><div class="who">{mark}{escape(name)}{axis.tag(loads_s)}</div>'
        f'<div class="track lanes{deep}{css}">{fills}{axis.lines()}</div>'
        f'<div class="what"><b>{format_seconds(sum(loads_s))}{share}</b> <span>{said}</span></div></div>\n'
    )


def _said(loads: Sequence[Load]) -> str:
    parts = []
    for (_, name), sizes in zip(
        PARTS, zip(*((x.compute_s, x.in_s, x.out_s, x.sync_s) for x in loads), strict=True), strict=True
    ):
        if any(sizes):
            parts.append(f"{name} {' + '.join(format_seconds(size) for size in sizes)}".replace(" ", "&nbsp;"))
    return ", ".join(parts) or "no load"


def _key(problem: Problem, result: Result, evaluation: Evaluation) -> str:
    loads = [load for use in evaluation.devices for load in use.loads]
    there = [True, any(x.in_s for x in loads), any(x.out_s for x in loads), any(x.sync_s for x in loads)]
    chips = [
        f'<span class="chip"><span class="swatch {css}"></span>{name}</span>'
        for (css, name), t in zip(PARTS, there, strict=True)
        if t
    ]
    if any(any(channel.load_s) for channel in evaluation.channels):
        chips.append('<span class="chip"><span class="swatch q4"></span>transfers over a channel</span>')
    if result.lower_bound_s > 0:
        bound = f"lower bound {format_seconds(result.lower_bound_s)}"
        chips.append(f'<span class="chip"><span class="swatch mark"></span>{bound}</span>')
    if len(pass_names(evaluation)) > 1:
        chips.append('<span class="chip"><span class="swatch gap"></span>end of the longest forward part</span>')
    order = ", forward and then backward" if len(pass_names(evaluation)) > 1 else ""
    edge = "value" if evaluation.value_s >= result.lower_bound_s else "lower bound"
    chips.append(
        f'<span class="chip">load = {load_formula(problem, evaluation)}{order}; the right edge is the {edge}</span>'
    )
    return f'<p class="key">{"".join(chips)}</p>'


def stage_table(
    problem: Problem, evaluation: Evaluation, stages: Sequence[StageUse], reasons: Mapping[int, str], *, chain: bool
) -> str:
    """Tabulate each stage with its operators, then the unused devices with the reason why.

    ``chain``: the stages stand in the order of the pipeline, and are numbered.
    """
    rows = []
    for k, stage in enumerate(stages[:SHOWN_DEVICES], start=1):
        device = problem.cluster.devices[stage.devices[0]]
        about = " ".join(x for x in (device.kind, device.model) if x)
        counts = operators_text(stage).removesuffix(" operators").removesuffix(" operator")
        ends = [("first", escape(stage.first)), ("last", escape(stage.last))]
        cells = [
            ("kind", escape(about)),
            ("operators", counts),
            *(ends if chain else []),
            ("sent", format_bytes(stage.use.sent_bytes)),
            ("received", format_bytes(stage.use.received_bytes)),
        ]
        number = f'<span class="stage">{k}</span>' if chain else ""
        rows.append(row(number + dot(stage.devices[0]) + escape(stage.name), cells))
    rows += closing_rows(problem, reasons, len(stages) - SHOWN_DEVICES, "stage", 6 if chain else 4)
    ends_shown = ("first", "last") if chain else ()
    return table(("device", "kind", "operators", *ends_shown, "sent", "received"), rows)
