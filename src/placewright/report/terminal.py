"""Reports for a terminal: renderables that fit 80 columns and stay plain text when they are piped. Nothing prints."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from rich.console import Group, RenderableType
from rich.text import Text

from placewright.cluster import Cluster, Link
from placewright.coarsen import transfers_of
from placewright.costs import ProfileReport
from placewright.evaluate import DeviceUse, Evaluation
from placewright.graph import OperatorGraph
from placewright.measurement import Measurement
from placewright.objective import Makespan, MaxLoad, Offload, Throughput, described
from placewright.plan import Plan
from placewright.prediction_errors import prediction_errors
from placewright.problem import Problem
from placewright.report.alternatives import PLAN, Alternative, alternatives_of
from placewright.report.explain import explain
from placewright.report.listing import counted, percent
from placewright.report.loads import per_second
from placewright.report.prediction_errors import prediction_errors_report
from placewright.report.terminal_calls import call_tables
from placewright.report.terminal_copies import copy_tables
from placewright.report.terminal_loads import load_facts, load_tables
from placewright.report.terminal_parts import (
    ABSENT,
    SHOWN_DEVICES,
    SHOWN_IDLE,
    WIDEST_PARTS,
    facts_of,
    plain_table,
    rest_of,
    seconds_of,
    sentences_of,
    spaced,
    table_of,
    text_of,
)
from placewright.result import Result, Status
from placewright.units import format_bytes, format_seconds

__all__ = [
    "answers_report",
    "cluster_report",
    "comparison_table",
    "demo_table",
    "doctor_table",
    "evaluation_report",
    "plan_report",
    "profile_report",
    "solvers_table",
    "verify_report",
]

LARGE_BYTES = 64 << 20
"""A tensor that a link with points is judged by: the largest that 'probe' sends."""

USUAL_PARTS = ("weights", "KV cache", "activations")
"""Of the memory of a device, what always has a column."""

SHOWN_OPERATORS = 10
"""Of a profile's operators, the slowest."""

SHOWN_COLUMNS = 4
"""A profile's table has columns for so many devices."""

_NONE: Mapping[str, str] = MappingProxyType({})


def answers_report(answers: Iterable[str]) -> RenderableType:
    """List what was asked of a plan beside its value, as sentences."""
    return sentences_of(answers)


def plan_report(
    problem: Problem, result: Result, evaluation: Evaluation | None, measurements: Sequence[Measurement] = ()
) -> RenderableType:
    """Everything a reader needs to judge a plan: its value and gap, who does what, what else was met, and why.

    Parameters
    ----------
    problem : Problem
    result : Result
    evaluation : Evaluation or None
        Of the result's plan; ``None`` without a plan.
    measurements : sequence of Measurement
    """
    parts: list[RenderableType] = [_headline(problem, result, evaluation, measurements)]
    if result.plan is not None and evaluation is not None:
        parts += _tables(problem, evaluation, result.plan)
    if len(alternatives_of(result, measurements)) > 1 or measurements:
        parts.append(demo_table(result, measurements, grouped=not isinstance(problem.objective, Makespan)))
    if result.bounds:
        parts.append(_bounds_table(result))
    if result.plan is not None and measurements:
        off = prediction_errors(problem, result.plan, measurements[0])
        parts += [prediction_errors_report(off)] if off is not None else []
    parts.append(sentences_of(explain(problem, result, evaluation)))
    return spaced(parts)


def demo_table(result: Result, measurements: Sequence[Measurement] = (), *, grouped: bool = False) -> RenderableType:
    """Each alternative and the plan: predicted, relative to the plan, measured with its spread, prediction error.

    With ``grouped``, single devices with equal values share a row.
    """
    rows = alternatives_of(result, measurements, grouped=grouped)
    measured = any(r.measured for r in rows)
    table = table_of("alternatives")
    table.add_column("placement", overflow="fold")
    for heading in ("predicted", "relative", *(("measured", "quartiles", "error") if measured else ())):
        table.add_column(heading, justify="right", no_wrap=True)
    for r in rows:
        cells = [text_of(r.name), Text(seconds_of(r.predicted_s)), Text(_ratio(r, result))]
        if measured and r.measured is not None:
            q1, q3 = r.measured.quartiles_s
            cells += [
                Text(seconds_of(r.measured.median_s)),
                Text(_interval(q1, q3)),
                Text(_signed_percent(r.measured.prediction_error)),
            ]
        elif measured:
            cells += [Text(ABSENT)] * 3
        table.add_row(*cells, style="bold" if r.name == PLAN else "")
    if result.lower_bound_s > 0:
        table.add_section()
        bound = [text_of("lower bound"), Text(seconds_of(result.lower_bound_s))]
        relative = Text(f"{result.lower_bound_s / result.value_s:.3f}" if 0 < result.value_s < math.inf else ABSENT)
        table.add_row(*bound, relative, *([Text("")] * 3 if measured else []))
    lines: list[RenderableType] = [table]
    if result.plan is not None:
        proof = "proved optimal" if result.status is Status.OPTIMAL else result.status.value
        lines.append(Text(f" gap of the plan: {percent(result.gap)} ({proof})"))
    return Group(*lines)


def comparison_table(rows: Sequence[tuple[str, Result]], left_out: Mapping[str, str] = _NONE) -> RenderableType:
    """One row a solver: value, value / best value, gap, status and time, and the best bound; the best value is bold.

    A placement that breaks a rule, as published algorithms that know no memory limits may end with, is no plan: its
    value has a mark, and a line below the table tells what it breaks. So does one for each solver that was left out,
    with the reason.
    """
    table = table_of("comparison")
    table.add_column("solver", overflow="fold")
    for heading in ("value", "relative", "gap", "status", "time"):
        table.add_column(heading, justify="left" if heading == "status" else "right", no_wrap=True)
    best = min((r.value_s for _, r in rows), default=math.inf)
    bound = max((r.lower_bound_s for _, r in rows), default=0.0)
    measurable = 0 < best < math.inf
    broken: dict[str, list[str]] = {}
    for name, r in rows:
        rejected = r.rejected_s < math.inf
        if rejected:
            broken.setdefault(r.rejected or "a rule is broken", []).append(name)
        value = seconds_of(r.value_s) if r.plan is not None else ABSENT
        if rejected:
            value = f"{seconds_of(r.rejected_s)} !" if r.plan is None else f"{value} (!)"
        table.add_row(
            text_of(name),
            Text(value),
            Text(f"{r.value_s / best:.4f}" if r.plan is not None and measurable else ABSENT),
            Text(percent(r.gap) if r.plan is not None and r.lower_bound_s > 0 else ABSENT),
            Text(_state(r)),
            Text(seconds_of(r.runtime_s)),
            style="bold" if r.plan is not None and r.value_s == best else "",
        )
    if bound > 0:
        table.add_section()
        relative = f"{bound / best:.4f}" if measurable else ABSENT
        table.add_row(text_of("lower bound"), Text(seconds_of(bound)), Text(relative))
    parts: list[RenderableType] = [table]
    values = {name: r for name, r in rows if r.plan is not None and r.rejected_s < math.inf}
    notes = [_note(names, reason, values) for reason, names in broken.items()]
    if notes:
        parts.append(sentences_of(notes, mark="!"))
    if left_out:
        parts.append(sentences_of(f"{name} was not run: {reason}" for name, reason in left_out.items()))
    return spaced(parts)


def _state(result: Result) -> str:
    rejected = result.plan is None and not result.infeasible and result.rejected_s < math.inf
    return ("breaks a rule" if rejected else result.status.value) + (" (interrupted)" if result.interrupted else "")


def _note(names: Sequence[str], reason: str, kept: dict[str, Result]) -> str:
    """One rule and the solvers whose placements break it; of those that have a plan too, what the other would take."""
    who = [f"{n} (its own placement: {seconds_of(kept[n].rejected_s)})" if n in kept else n for n in names]
    return f"{', '.join(who)}: {reason}"


def evaluation_report(problem: Problem, evaluation: Evaluation, plan: Plan | None = None) -> RenderableType:
    """Show what the judge says of a placement: its value, who does what, and every rule that it breaks.

    With the plan, loads are listed by stage and copies of a stage together.
    """
    verdict = "feasible" if evaluation.feasible else f"breaks {counted(len(evaluation.violations), 'rule')}"
    facts = [("network", _network(problem)), ("objective", _objective(problem))]
    if isinstance(problem.objective, MaxLoad | Throughput):
        facts += load_facts(evaluation)
    else:
        facts.append(("value", seconds_of(evaluation.value_s)))
    facts.append(("verdict", verdict))
    parts: list[RenderableType] = [facts_of(facts), *_tables(problem, evaluation, plan)]
    if not evaluation.feasible:
        parts.append(sentences_of(evaluation.violations))
    return spaced(parts)


def verify_report(violations: Sequence[str]) -> RenderableType:
    """Show what the independent checker found."""
    if not violations:
        return Text("verified: the plan keeps every rule, and its value is what it claims")
    return Group(Text(f"{counted(len(violations), 'violation')} found"), sentences_of(violations))


def cluster_report(cluster: Cluster) -> RenderableType:
    """Devices with their figures, and the link rules between them."""
    devices = table_of("devices")
    for heading in ("device", "kind", "host", "model"):
        devices.add_column(heading, overflow="fold")
    for heading in ("memory", "peak"):
        devices.add_column(heading, justify="right", no_wrap=True)
    for d in cluster.devices[:SHOWN_DEVICES]:
        peak = max(d.flops_per_s.items(), key=lambda item: item[1], default=None)
        devices.add_row(
            *(text_of(x) for x in (d.name, d.kind, d.host, d.model or ABSENT)),
            Text(ABSENT if d.memory_bytes is None else format_bytes(d.memory_bytes)),
            Text(ABSENT if peak is None else f"{peak[1] / 1e12:.3g} TFLOP/s {peak[0]}"),
        )
    links = table_of("links")
    links.add_column("between", overflow="fold")
    for heading in ("bandwidth", "latency"):
        links.add_column(heading, justify="right", no_wrap=True)
    links.add_column("channel", overflow="fold")
    for link in cluster.links[:SHOWN_DEVICES]:
        arrow = " -> " if link.one_way else " - "
        links.add_row(
            text_of(link.link_class or arrow.join(link.between)),
            Text(_rate(link)),
            Text(seconds_of(link.latency_s)),
            text_of(link.channel or ABSENT),
        )
    more_devices = rest_of(len(cluster) - SHOWN_DEVICES, "device")
    more_links = rest_of(len(cluster.links) - SHOWN_DEVICES, "link rule")
    return spaced([Group(devices, *more_devices), Group(links, *more_links)])


def _rate(link: Link) -> str:
    """Bandwidth; of a link with points, whose last line says little by itself, what large tensors get in all."""
    if not link.points:
        return "no limit" if math.isinf(link.bandwidth_bytes_per_s) else _gigabytes(link.bandwidth_bytes_per_s)
    size = max(LARGE_BYTES, link.points[-1][0])
    taken = float(link.seconds(size))
    return f"{_gigabytes(size / taken)} at {format_bytes(size)}" if taken > 0 else "no limit"


def _gigabytes(bytes_per_s: float) -> str:
    rate = bytes_per_s / 1e9
    return f"{rate:,.0f} GB/s" if rate >= 999.5 else f"{rate:.3g} GB/s"


def profile_report(graph: OperatorGraph, cluster: Cluster, report: ProfileReport) -> RenderableType:
    """Show what was measured, how the operators' sum compares with the whole network, and the slowest operators."""
    facts = [
        ("network", f"{graph.name or ABSENT} ({len(graph):,} operators, {report.distinct:,} distinct)"),
        ("measured", f"{report.measured:,} now, {report.cache_hits:,} from the cache"),
    ]
    whole = table_of("devices")
    whole.add_column("device", overflow="fold")
    for heading in ("operators' sum", "whole", "sum / whole", "a cut, each side"):
        whole.add_column(heading, justify="right", no_wrap=True)
    for name in report.devices:
        known = name in report.whole_s
        whole.add_row(
            text_of(name),
            Text(seconds_of(report.operator_sum_s[name])),
            Text(seconds_of(report.whole_s[name]) if known else ABSENT),
            Text(f"{report.sum_over_whole[name]:.3f}" if name in report.sum_over_whole else ABSENT),
            Text(seconds_of(report.cut_overhead_s[name]) if name in report.cut_overhead_s else ABSENT),
        )
    slowest = table_of("slowest operators")
    slowest.add_column("operator", overflow="fold")
    slowest.add_column("kind", overflow="fold")
    for device in cluster.devices[:SHOWN_COLUMNS]:
        slowest.add_column(device.name, justify="right", no_wrap=True)
    seconds = report.times.processing_s
    totals = [sum(s for s in row if math.isfinite(s)) for row in seconds.tolist()]
    for v in sorted(range(len(graph)), key=lambda v: (-totals[v], v))[:SHOWN_OPERATORS]:
        operator = graph.operators[v]
        cells = (Text(seconds_of(s)) for s in seconds[v, :SHOWN_COLUMNS].tolist())
        slowest.add_row(text_of(operator.name), text_of(operator.kind), *cells)
    remarks = [f"not measured: {f.operator!r} on {f.device!r}: {f.reason}" for f in report.fallbacks] + [*report.notes]
    return spaced([facts_of(facts), whole, slowest, *([sentences_of(remarks)] if remarks else [])])


def solvers_table(rows: Sequence[tuple[str, str, str]]) -> RenderableType:
    """Name, kind and one sentence of each solver or bound."""
    return plain_table("solvers", ("name", "kind", "what it does"), rows)


def doctor_table(rows: Sequence[tuple[str, str, str]]) -> RenderableType:
    """Show what was looked at, what was found, and what to do about it."""
    return plain_table("doctor", ("what", "state", "detail"), rows)


def _tables(problem: Problem, evaluation: Evaluation, plan: Plan | None) -> list[RenderableType]:
    if isinstance(problem.objective, MaxLoad):
        return load_tables(problem, evaluation, plan)
    if isinstance(problem.objective, Throughput):
        return copy_tables(problem, evaluation, plan)
    if isinstance(problem.objective, Offload):
        return call_tables(problem, evaluation, plan)
    return [_device_table(evaluation), _memory_table(evaluation)]


def _headline(
    problem: Problem, result: Result, evaluation: Evaluation | None, measurements: Sequence[Measurement]
) -> RenderableType:
    steady = isinstance(problem.objective, MaxLoad | Throughput)
    facts = [("network", _network(problem)), ("objective", _objective(problem)), ("status", result.status.value)]
    if result.plan is not None and evaluation is not None and steady:
        facts += load_facts(evaluation)
    elif result.plan is not None:
        facts.append(("value", seconds_of(result.value_s)))
    if result.lower_bound_s > 0:
        gap = f", gap {percent(result.gap)}" if result.plan is not None else ""
        most = f" a sample (at most {per_second(result.lower_bound_s)})" if steady else ""
        facts.append(("lower bound", seconds_of(result.lower_bound_s) + most + gap))
    for m in measurements:
        if m.name == PLAN:
            q1, q3 = m.quartiles_s
            error = f"prediction error {_signed_percent(m.prediction_error)}"
            facts.append(("measured", f"{seconds_of(m.median_s)} (quartiles {_interval(q1, q3)}), {error}"))
    seed = None if result.plan is None else result.plan.provenance.seed
    how = [result.solver or ABSENT, f"{seconds_of(result.runtime_s)}", *([] if seed is None else [f"seed {seed}"])]
    facts.append(("solver", ", ".join(how) + (", interrupted" if result.interrupted else "")))
    return facts_of(facts)


def _device_table(evaluation: Evaluation) -> RenderableType:
    table = table_of("devices")
    table.add_column("device", overflow="fold")
    for heading in ("operators", "busy", "share", "sent", "received"):
        table.add_column(heading, justify="right", no_wrap=True)
    shown = _shown(evaluation.devices)
    for use in shown:
        share = use.busy_s / evaluation.value_s if 0 < evaluation.value_s < math.inf else 0.0
        table.add_row(
            text_of(use.name),
            Text(f"{use.operators:,}"),
            Text(seconds_of(use.busy_s)),
            Text(percent(share)),
            Text(format_bytes(use.sent_bytes)),
            Text(format_bytes(use.received_bytes)),
            style="" if use.operators else "dim",
        )
    return Group(table, *rest_of(len(evaluation.devices) - len(shown), "device"))


def _memory_table(evaluation: Evaluation) -> RenderableType:
    table = table_of("memory")
    table.add_column("device", overflow="fold")
    shown = _shown(evaluation.devices)
    parts = [
        name
        for name in evaluation.devices[0].memory_parts
        if name in USUAL_PARTS or any(use.memory_parts[name] for use in evaluation.devices)
    ]
    used = len(parts) <= WIDEST_PARTS
    for heading in (*parts, "peak", "limit", *(["used"] if used else [])):
        table.add_column(heading, justify="right", no_wrap=True)
    for use in shown:
        limit = use.limit_bytes
        sizes = (*(use.memory_parts[name] for name in parts), use.memory_bytes)
        over = limit is not None and use.memory_bytes > limit
        table.add_row(
            text_of(use.name),
            *(Text(format_bytes(size)) for size in sizes),
            Text("none" if limit is None else format_bytes(limit)),
            *([Text(percent(use.memory_bytes / limit) if limit else ABSENT)] if used else []),
            style="bold red" if over else "" if use.operators else "dim",
        )
    return Group(table, *rest_of(len(evaluation.devices) - len(shown), "device"))


def _bounds_table(result: Result) -> RenderableType:
    table = table_of("lower bounds")
    table.add_column("bound", overflow="fold")
    for heading in ("value", "of the plan"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, bound in sorted(result.bounds.items(), key=lambda item: (-item[1], item[0])):
        share = percent(bound / result.value_s) if 0 < result.value_s < math.inf else ABSENT
        table.add_row(text_of(name), Text(seconds_of(bound)), Text(share))
    return table


def _shown(devices: Iterable[DeviceUse]) -> list[DeviceUse]:
    """Return the first rows worth a line, in the cluster's order."""
    every = list(enumerate(devices))
    used = [item for item in every if item[1].operators][:SHOWN_DEVICES]
    idle = [item for item in every if not item[1].operators][:SHOWN_IDLE]
    return [use for _, use in sorted([*used, *idle], key=lambda item: item[0])]


def _network(problem: Problem) -> str:
    name = problem.name or "unnamed"
    sizes = f"{counted(len(problem.graph), 'operator')}, {counted(len(problem.graph.tensors), 'tensor')}"
    return f"{name} ({sizes}) on {counted(len(problem.cluster), 'device')}"


def _objective(problem: Problem) -> str:
    transfers = ["one transfer for each edge"] if transfers_of(problem) == "per-edge" else []
    return ", ".join(
        (problem.objective.name, *described(problem.objective), *transfers, f"times {problem.times.source}")
    )


def _interval(low: float, high: float) -> str:
    """Write both ends in the unit of the higher one."""
    upper, unit = format_seconds(high).split(" ")
    scale = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[unit]
    return f"{low / scale:.3g}-{upper} {unit}"


def _ratio(row: Alternative, result: Result) -> str:
    if result.plan is None or row.predicted_s == math.inf:
        return ABSENT
    return f"{row.relative_to(result.value_s):.3f}"


def _signed_percent(share: float) -> str:
    return ("+" if share > 0 else "") + percent(share)
