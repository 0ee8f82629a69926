"""The parts of the page that need no script: headline, tables and bars, as escaped HTML."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from placewright.coarsen import transfers_of
from placewright.evaluate import DeviceUse, Evaluation
from placewright.graph import RESIDENT_PARTS
from placewright.measurement import Measurement
from placewright.objective import Offload, described
from placewright.problem import Problem
from placewright.report.alternatives import PLAN, alternatives_of
from placewright.report.listing import counted, listed, percent
from placewright.result import Result, Status
from placewright.units import format_bytes, format_seconds

__all__ = [
    "COLOURS",
    "SHOWN_DEVICES",
    "alternatives_table",
    "barred",
    "bounds_table",
    "closing_rows",
    "device_table",
    "dot",
    "facts",
    "headline",
    "memory_bars",
    "questions",
    "row",
    "sentences",
    "table",
    "text_table",
]

KEY = {"activations": "activations (peak)", "saved": "saved for the backward pass"}
"""Parts of the memory that say more in the key than their name."""

LONGEST_BAR = 4.0
"""Bars of alternatives end at so many times the plan's value."""

SHOWN_DEVICES = 64
"""Tables have a row for so many devices in use; the rest is counted."""

_TEXT = ' class="text"'

_IN_WORDS = ("kind", "first", "last", "device", "what")
"""Columns that hold no numbers."""

COLOURS = 8
"""As many device colours as the style sheet defines; more devices than that share them in turn."""


def headline(
    problem: Problem,
    result: Result,
    measurements: Sequence[Measurement] = (),
    about_value: Sequence[tuple[str, str, str]] = (),
    most: str = "",
) -> str:
    """Cards with the numbers that a reader looks for first: name, number, note.

    Those about the value may be given, and what the lower bound means, so that there is at most so much of something.
    """
    plan = result.plan
    cards = list(about_value)
    if plan is not None and not cards:
        cards.append((problem.objective.name, _seconds(result.value_s), "predicted by the judge"))
    bound = _seconds(result.lower_bound_s) if result.lower_bound_s > 0 else "none"
    proved = f"proved: {most}" if most else "proved: no plan can be below"
    cards.append(("lower bound", bound, proved if result.lower_bound_s > 0 else "not computed"))
    if plan is not None and result.lower_bound_s > 0:
        cards.append(("gap", percent(result.gap), "(value - bound) / value"))
    meaning = {
        Status.OPTIMAL: "nothing can be faster",
        Status.FEASIBLE: "a plan; maybe not the best",
        Status.INFEASIBLE: "proved: there is no plan",
        Status.UNKNOWN: "no plan within the budget",
    }[result.status]
    cards.append(("status", result.status.value, meaning))
    for m in measurements:
        if m.name == PLAN:
            error = f"prediction error {_signed_percent(m.prediction_error)}, {counted(len(m.runs_s), 'run')}"
            cards.append(("measured", _seconds(m.median_s), error))
    seed = "" if plan is None or plan.provenance.seed is None else f", seed {plan.provenance.seed}"
    interrupted = ", interrupted" if result.interrupted else ""
    cards.append(("solver", result.solver or "none", f"{format_seconds(result.runtime_s)}{seed}{interrupted}"))
    return "\n".join(
        f'<div class="card"><dt>{escape(label)}</dt>'
        f'<dd class="value{" words" if len(value) > 12 else ""}">{escape(value)}</dd>'
        f'<dd class="note">{escape(note)}</dd></div>'
        for label, value, note in cards
    )


def sentences(texts: Iterable[str]) -> str:
    """Paragraphs as list items."""
    return "\n".join(f"<li>{escape(text)}</li>" for text in texts)


def questions(asked: Mapping[str, Sequence[str]]) -> str:
    """Each question above its answer."""
    return "\n".join(
        f'<div class="asked"><h3>{escape(question)}</h3>\n<ul class="sentences">\n{sentences(answer)}\n</ul></div>'
        for question, answer in asked.items()
    )


def device_table(problem: Problem, evaluation: Evaluation, reasons: Mapping[int, str]) -> str:
    """Each used device, then the unused ones with the reason why; devices with one reason share a row."""
    rows = []
    uses = [(i, use) for i, use in enumerate(evaluation.devices) if use.operators]
    for i, use in uses[:SHOWN_DEVICES]:
        device = problem.cluster.devices[i]
        share = use.busy_s / evaluation.value_s if 0 < evaluation.value_s < math.inf else 0.0
        about = " ".join(x for x in (device.kind, device.model) if x)
        cells = [
            ("kind", escape(about)),
            ("operators", f"{use.operators:,}"),
            ("busy", _seconds(use.busy_s)),
            ("share", barred(share, percent(share), i)),
            ("sent", format_bytes(use.sent_bytes)),
            ("received", format_bytes(use.received_bytes)),
        ]
        rows.append(row(dot(i) + escape(use.name), cells))
    rows += closing_rows(problem, reasons, len(uses) - SHOWN_DEVICES, "device", 6)
    return table(
        ("device", "kind", "operators", "busy", f"share of {problem.objective.name}", "sent", "received"), rows
    )


def memory_bars(evaluation: Evaluation, named: Mapping[int, str] | None = None) -> str:
    """Bars by part for every used device, or for those named, each against its own limit."""
    names = named or {i: use.name for i, use in enumerate(evaluation.devices) if use.operators}
    uses = [(i, evaluation.devices[i]) for i in names]
    widest = max((use.memory_bytes for _, use in uses), default=0)
    bars = []
    for i, use in uses[:SHOWN_DEVICES]:
        limit = use.limit_bytes
        scale = max(limit if limit is not None else widest, use.memory_bytes, 1)
        parts = list(use.memory_parts.items())
        fills = "".join(
            f'<span class="part p{k}" style="width:{100 * size / scale:.3f}%" '
            f'title="{name} {format_bytes(size)}"></span>'
            for k, (name, size) in enumerate(parts)
            if size
        )
        mark = "" if limit is None else f'<span class="limit" style="left:{100 * limit / scale:.3f}%"></span>'
        bars.append(
            f'<div class="memory"><div class="who">{dot(i)}{escape(names[i])}</div>'
            f'<div class="track d{i % COLOURS}{"" if limit is not None else " unlimited"}">{fills}{mark}</div>'
            f'<div class="what"><b>{_of_limit(use)}</b> <span>{use.memory_listing}</span></div></div>'
        )
    if len(uses) > SHOWN_DEVICES:
        bars.append(f"<p>and {counted(len(uses) - SHOWN_DEVICES, 'device')} more</p>")
    names_of_parts = list(uses[0][1].memory_parts) if uses else []
    there = [k for k, name in enumerate(names_of_parts) if not k or any(use.memory_parts[name] for _, use in uses)]
    key = "".join(
        f'<span class="chip"><span class="swatch p{k}"></span>{KEY.get(names_of_parts[k], names_of_parts[k])}</span>'
        for k in there
    )
    if any(use.limit_bytes is not None for _, use in uses):
        key += '<span class="chip"><span class="swatch mark"></span>limit</span>'
    return "\n".join([*bars, f'<p class="key">{key}</p>'])


def alternatives_table(result: Result, measurements: Sequence[Measurement] = (), *, grouped: bool = False) -> str:
    """List the plan and every other plan that was met, with bars, and measured values where there are any."""
    rows = alternatives_of(result, measurements, grouped=grouped)
    measured = any(r.measured for r in rows)
    finite = [r.predicted_s for r in rows if r.predicted_s < math.inf]
    # One alternative a hundred times slower must not make all other bars vanish: it is cut off.
    longest = min(max(finite, default=0.0), LONGEST_BAR * result.value_s)
    made = []
    for r in sorted(rows, key=lambda r: (r.predicted_s, r.name != PLAN)):
        width = r.predicted_s / longest if longest > 0 and r.predicted_s < math.inf else 0.0
        relative = f"{r.relative_to(result.value_s):.3f}" if result.plan and r.predicted_s < math.inf else "-"
        cells = [("predicted", barred(width, _seconds(r.predicted_s))), ("relative", relative)]
        if measured and r.measured is not None:
            q1, q3 = r.measured.quartiles_s
            cells += [
                ("measured", _seconds(r.measured.median_s)),
                ("quartiles", f"{_seconds(q1)} to {_seconds(q3)}"),
                ("error", _signed_percent(r.measured.prediction_error)),
            ]
        elif measured:
            cells += [("measured", "-"), ("quartiles", "-"), ("error", "-")]
        made.append(row(escape(r.name), cells, "chosen" if r.name == PLAN else ""))
    headings = ["placement", "predicted", "relative to the plan"]
    return table([*headings, *(("measured (median)", "quartiles", "prediction error") if measured else ())], made)


def bounds_table(result: Result) -> str:
    """Every bound that was computed, the highest first."""
    rows = []
    for name, bound in sorted(result.bounds.items(), key=lambda item: (-item[1], item[0])):
        share = bound / result.value_s if 0 < result.value_s < math.inf else 0.0
        cells = [("value", _seconds(bound)), ("of the plan", barred(share, percent(share)))]
        rows.append(row(escape(name), cells))
    return table(("bound", "value", "of the plan's value"), rows)


def facts(problem: Problem, result: Result, evaluation: Evaluation | None) -> str:
    """Describe what was planned, as a description list."""
    graph, cluster, operators = problem.graph, problem.cluster, problem.graph.operators
    flops = sum(v.flops for v in operators)
    hosts = len({d.host for d in cluster.devices})
    wishes = [f"{'forbid' if w.forbid else 'pin'} {w.pattern}={w.device}" for w in problem.wishes]
    listing = [
        ("operators", f"{len(graph):,}"),
        ("tensors", f"{len(graph.tensors):,}"),
        *(
            (name, format_bytes(size))
            for name, size in zip(RESIDENT_PARTS.values(), problem.resident_parts.sum(axis=1).tolist(), strict=True)
            if size or name in ("weights", "KV cache")
        ),
        ("FLOPs", f"{flops:.3g}" if flops else "not known"),
        ("colocation classes", f"{len(graph.colocation):,}"),
        ("devices", f"{len(cluster):,} on {counted(hosts, 'host')}"),
        ("objective", ", ".join((problem.objective.name, *described(problem.objective)))),
        ("processing times", problem.times.source),
        (
            "transfer times",
            "given by a table"
            if problem.times.transfer_s is not None
            else "latency + bytes / bandwidth" + (", or piece by piece" if problem.cluster.bends else ""),
        ),
        ("transfers", "one for each edge" if transfers_of(problem) == "per-edge" else "one to each device that reads"),
        ("wishes", "; ".join(wishes) or "none"),
    ]
    if evaluation is not None:
        if isinstance(problem.objective, Offload):
            listing.append(("calls", f"{sum(len(use.loads) for use in evaluation.devices):,}"))
        else:
            listing.append(("tensors sent", f"{len(evaluation.schedule.transfers):,}"))
        listing.append(("broken rules", "; ".join(evaluation.violations) or "none"))
    if result.plan is not None and result.plan.provenance.version:
        listing.append(("placewright", result.plan.provenance.version))
    items = "\n".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in listing)
    return f'<dl class="facts">\n{items}\n</dl>'


def _of_limit(use: DeviceUse) -> str:
    peak = format_bytes(use.memory_bytes)
    if use.limit_bytes is None:
        return f"{peak}, no limit known"
    share = f" ({percent(use.memory_bytes / use.limit_bytes)})" if use.limit_bytes else ""
    return f"{peak} of {format_bytes(use.limit_bytes)}{share}"


def table(headings: Sequence[str], rows: Sequence[str]) -> str:
    """Join rows under their headings."""
    head = "".join(f'<th scope="col"{_TEXT if h in _IN_WORDS else ""}>{escape(h)}</th>' for h in headings)
    body = "\n".join(rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'


def text_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Join rows of plain text under their headings."""
    labels = headings[1:]
    return table(
        headings,
        [
            row(escape(first), [(label, escape(cell)) for label, cell in zip(labels, cells, strict=True)])
            for first, *cells in rows
        ],
    )


def row(first: str, cells: Sequence[tuple[str, str]], css: str = "") -> str:
    """Join one row's cells, whose HTML is escaped already; the labels are shown where the page is narrow."""
    css_of = {"-": ' class="absent"', **dict.fromkeys(_IN_WORDS, _TEXT)}
    rest = "".join(
        f'<td data-label="{escape(label)}"{css_of.get(cell, css_of.get(label, ""))}>{cell}</td>'
        for label, cell in cells
    )
    return (
        f'<tr class="{css}"><th scope="row">{first}</th>{rest}</tr>'
        if css
        else f'<tr><th scope="row">{first}</th>{rest}</tr>'
    )


def closing_rows(problem: Problem, reasons: Mapping[int, str], more: int, noun: str, columns: int) -> list[str]:
    """Rows at the end of a table of devices: how many are not shown, and the unused ones, those of one reason together.

    ``columns`` counts those beside the name.
    """
    rows = [f'<tr><th scope="row">and {counted(more, noun)} more</th></tr>'] if more > 0 else []
    grouped: dict[str, list[int]] = {}
    for i, reason in reasons.items():
        grouped.setdefault(reason, []).append(i)
    for reason, members in grouped.items():
        names = listed([problem.cluster.devices[i].name for i in members])
        rows.append(
            f'<tr class="unused"><th scope="row"><span class="dot unused"></span>{escape(names)}</th>'
            f'<td colspan="{columns}" class="reason"><b>unused</b>: {escape(reason)}.</td></tr>'
        )
    return rows


def barred(share: float, text: str, device: int | None = None) -> str:
    """Draw a bar of ``share`` of the full width and the number after it."""
    css = "" if device is None else f" d{device % COLOURS}"
    width = 100 * min(max(share, 0.0), 1.0)
    css += " cut" if share > 1 + 1e-9 else ""
    return (
        f'<span class="bar{css}"><span style="width:{width:.2f}%"></span></span>'
        f'<span class="number">{escape(text)}</span>'
    )


def dot(device: int) -> str:
    """Coloured dot of a device."""
    return f'<span class="dot d{device % COLOURS}"></span>'


def _seconds(value: float) -> str:
    return "infeasible" if value == math.inf else format_seconds(value)


def _signed_percent(share: float) -> str:
    return ("+" if share > 0 else "") + percent(share)
