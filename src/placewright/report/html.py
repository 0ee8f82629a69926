"""The report as one HTML file that stands alone: no network, no fonts, no files beside it; same input, same bytes."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from types import MappingProxyType

from placewright.evaluate import Evaluation
from placewright.measurement import Measurement
from placewright.objective import Makespan, MaxLoad, Offload, Throughput
from placewright.plan import Plan
from placewright.prediction_errors import prediction_errors
from placewright.problem import Problem
from placewright.report.answer import answer, proof_bar
from placewright.report.explain import explain_value, reasons_unused
from placewright.report.html_calls import call_table, offload_device_table
from placewright.report.html_copies import copy_table
from placewright.report.html_data import timeline
from placewright.report.html_loads import load_cards, load_chart, stage_table
from placewright.report.html_parts import (
    alternatives_table,
    bounds_table,
    device_table,
    facts,
    headline,
    memory_bars,
    questions,
    sentences,
)
from placewright.report.loads import per_second, pipeline_order, stages_of
from placewright.report.prediction_errors import prediction_errors_html
from placewright.report.sensitivity import sensitivity_html
from placewright.result import Result
from placewright.sensitivity import Sensitivity
from placewright.units import format_seconds

__all__ = ["html_report"]

SCRIPTS = ("timeline.js", "map.js", "operators.js", "page.js")
"""In the order in which the page runs them."""

_NOTHING: Mapping[str, Sequence[str]] = MappingProxyType({})

TIMELINE, MAP = "timeline.html", "map.html"


def html_report(
    problem: Problem,
    result: Result,
    evaluation: Evaluation | None,
    measurements: Sequence[Measurement] = (),
    *,
    title: str | None = None,
    sensitivity: Sensitivity | None = None,
    asked: Mapping[str, Sequence[str]] = _NOTHING,
    said: Sequence[str] = (),
) -> str:
    """Page about one result: the answer, timeline, map of modules, devices and memory, alternatives, bounds, operators.

    Parameters
    ----------
    problem : Problem
    result : Result
    evaluation : Evaluation or None
        Of the result's plan; ``None`` without a plan.
    measurements : sequence of Measurement
        The first one that was run as the plan, and has spans, is drawn below the prediction.
    title : str, optional
        Name of the network, by default the problem's.
    sensitivity : Sensitivity, optional
        On which figures the plan depends.
    asked : mapping of str to sequence of str, optional
        Questions, and the sentences that answer them.
    said : sequence of str, optional
        What the plan means for what was asked of the network, as tokens a second: first of the sentences at its head.

    Notes
    -----
    Names come from files that nobody checked. They reach the page escaped, or inside a JSON block in which ``<`` is
    written as an escape; the script sets them as text, never as HTML. A content security policy in the page forbids
    every request, so that opening it tells nobody anything, and every script but the page's own.
    """
    name = title if title is not None else problem.name or "unnamed network"
    plan = result.plan
    steady = isinstance(problem.objective, MaxLoad | Throughput)
    wide: list[tuple[str, str]] = []
    data = ""
    if plan is not None and evaluation is not None:
        show = {Makespan: _schedule, MaxLoad: _pipeline, Throughput: _copies, Offload: _offload}
        wide += show[type(problem.objective)](problem, result, plan, evaluation)
        if math.isfinite(evaluation.schedule.makespan_s):
            data = _json_block({"network": name, **timeline(problem, result, evaluation, measurements)})
        else:  # a plan that can't be run, as a file may hold one
            wide = [part for part in wide if part[1] not in (_asset(TIMELINE), _asset(MAP))]
    grouped = not isinstance(problem.objective, Makespan)
    if result.alternatives or measurements:
        wide.append(("Alternatives", alternatives_table(result, measurements, grouped=grouped)))
    found = prediction_errors(problem, plan, measurements[0]) if plan is not None and measurements else None
    if found is not None:
        wide.append(("Where the prediction was off", prediction_errors_html(found)))
    if asked:
        wide.append(("What people ask", questions(asked)))
    if sensitivity is not None:
        wide.append(("What the plan depends on", sensitivity_html(sensitivity)))
    value, gap = explain_value(problem, result, evaluation)
    pair = [("Lower bounds", bounds_table(result))] if result.bounds else []
    pair.append(("The problem", facts(problem, result, evaluation)))
    sections = [_section(*part) for part in wide]
    sections.append(f'<div class="{"pair" if len(pair) > 1 else "alone"}">{"".join(_section(*p) for p in pair)}</div>')
    script = "".join(['"use strict";\n(() => {\n', *map(_asset, SCRIPTS), "})();\n"])
    about = load_cards(result, evaluation) if steady else []
    if plan is not None and isinstance(problem.objective, Offload):
        about = [("latency", format_seconds(result.value_s), "of one sample, predicted by the judge")]
    most = f"at most {per_second(result.lower_bound_s)}" if steady else ""
    return Template(_asset("page.html")).substitute(
        title=escape(answer(problem, result, name, measurements)),
        name=escape(name),
        style=_asset("page.css"),
        proof=proof_bar(result),
        headline=headline(problem, result, measurements, about, most),
        sentences=sentences([*said, *value, *gap]),
        contents="\n".join(
            f'<a href="#{_anchor(heading)}">{heading}</a>'
            for heading, _ in [*wide, *pair, *([("Placement", "")] if data else [])]
        ),
        sections="\n".join(sections) + (_asset("placement.html") if data else ""),
        data=data or "null",
        script=script,
        hash=f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}",
    )


def _schedule(problem: Problem, result: Result, plan: Plan, evaluation: Evaluation) -> list[tuple[str, str]]:
    reasons = reasons_unused(problem, plan, evaluation, result.alternatives)
    return [
        ("Timeline", _asset(TIMELINE)),
        ("Map of modules", _asset(MAP)),
        ("Devices", device_table(problem, evaluation, reasons)),
        ("Memory by part", memory_bars(evaluation)),
    ]


def _offload(problem: Problem, result: Result, plan: Plan, evaluation: Evaluation) -> list[tuple[str, str]]:
    reasons = reasons_unused(problem, plan, evaluation, result.alternatives)
    bound = {i: u.name for i, u in enumerate(evaluation.devices) if u.operators and u.limit_bytes is not None}
    parts = [
        ("Timeline", _asset(TIMELINE)),
        ("Map of modules", _asset(MAP)),
        ("Calls in the order of their starts", call_table(problem, plan, evaluation)),
        ("Devices", offload_device_table(problem, evaluation, reasons)),
    ]
    return [*parts, *([("Memory by part", memory_bars(evaluation, bound))] if bound else [])]


def _pipeline(problem: Problem, result: Result, plan: Plan, evaluation: Evaluation) -> list[tuple[str, str]]:
    reasons = reasons_unused(problem, plan, evaluation, result.alternatives)
    stages = stages_of(problem, evaluation, plan)
    chain = bool(pipeline_order(problem, plan.device_of))
    return [
        ("Load of a sample", load_chart(problem, result, evaluation, stages)),
        (
            "Stages in the order of the pipeline" if chain else "Devices",
            stage_table(problem, evaluation, stages, reasons, chain=chain),
        ),
        ("Memory by part", memory_bars(evaluation, {s.devices[0]: s.name for s in stages})),
        ("Map of modules", _asset(MAP)),
        ("One sample alone in the empty pipeline", _asset(TIMELINE)),
    ]


def _copies(problem: Problem, result: Result, plan: Plan, evaluation: Evaluation) -> list[tuple[str, str]]:
    devices = stages_of(problem, evaluation)
    return [
        ("Load of a sample over all copies", load_chart(problem, result, evaluation, devices)),
        ("Copies of the network", copy_table(problem, plan)),
        ("Memory by part", memory_bars(evaluation, {s.devices[0]: s.name for s in devices})),
        ("Map of modules", _asset(MAP)),
        ("One sample alone through the first copy", _asset(TIMELINE)),
    ]


def _section(heading: str, body: str) -> str:
    anchor = _anchor(heading)
    return f'<section aria-labelledby="{anchor}">\n<h2 id="{anchor}">{heading}</h2>\n{body}\n</section>'


def _anchor(heading: str) -> str:
    return re.sub("[^a-z]+", "-", heading.lower())


def _asset(name: str) -> str:
    return files("placewright.report").joinpath("assets", name).read_text(encoding="utf-8")


def _json_block(value: object) -> str:
    r"""JSON that can stand inside a ``script`` element.

    Examples
    --------
    >>> _json_block("</script>")
    '"\\u003c/script\\u003e"'
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
