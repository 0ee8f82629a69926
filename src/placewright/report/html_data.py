"""The data that the page's script draws: rows, bars and names of the timeline, compact enough for 10,000 operators."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from placewright.evaluate import Evaluation, calls_of
from placewright.measurement import Measurement
from placewright.objective import MaxLoad, Throughput
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.report.alternatives import PLAN
from placewright.report.calls import drawn_times, parts_of
from placewright.report.lanes import lanes_of
from placewright.report.listing import counted
from placewright.report.loads import stages_of
from placewright.result import Result

__all__ = ["front_coded", "module_groups", "ranked", "time_unit", "timeline"]

GROUPS = 8
"""Colours of the page: the groups with most computing get one each, the rest shares the last."""

MODULE_GROUPS = 40
"""The module depth is the deepest that makes no more groups than this."""

LINK_ROWS = 40
"""More links than this are drawn as one row for each sender."""

_SEPARATOR = re.compile(r"[./]+")


def time_unit(span_s: float) -> tuple[str, float]:
    """Choose the unit in which a timeline of ``span_s`` seconds is drawn, and give its seconds.

    Examples
    --------
    >>> time_unit(0.02), time_unit(3.0)
    (('ms', 0.001), ('s', 1.0))
    """
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if span_s >= factor:
            return unit, factor
    return "ns", 1e-9


def module_groups(names: Sequence[str]) -> list[str]:
    """Name each operator's module: the deepest prefix that makes at most 40 groups; empty texts when there is none.

    Examples
    --------
    >>> module_groups(["net.a.conv", "net.a.relu", "net.b.conv"])
    ['net.a', 'net.a', 'net.b']
    >>> module_groups(["conv1", "conv2"])
    ['', '']
    """
    paths = [[part for part in _SEPARATOR.split(name) if part] for name in names]
    chosen: list[tuple[str, ...]] = [()] * len(names)
    for depth in range(1, max(map(len, paths), default=0)):
        # The last part of a name is the operator itself, never a module.
        prefixes = [tuple(path[: min(depth, len(path) - 1)]) for path in paths]
        if len(set(prefixes)) > MODULE_GROUPS:
            break
        chosen = prefixes
    return [".".join(prefix) for prefix in chosen]


def ranked(groups: Sequence[str], durations_s: Sequence[float]) -> tuple[list[str], list[int]]:
    """Names of the groups with most time (at most 8, the last one ``other``), and each member's index among them.

    Examples
    --------
    >>> ranked(["relu", "conv", "relu"], [1.0, 5.0, 1.0])
    (['conv', 'relu'], [1, 0, 1])
    """
    total: dict[str, float] = {}
    for group, duration in zip(groups, durations_s, strict=True):
        total[group] = total.get(group, 0.0) + duration
    order = sorted(total, key=lambda g: (-total[g], g))
    if len(order) > GROUPS:
        order = order[: GROUPS - 1]
    index = {group: k for k, group in enumerate(order)}
    indices = [index.get(group, len(order)) for group in groups]
    return (order if len(order) == len(total) else [*order, "other"]), indices


def timeline(
    problem: Problem, result: Result, evaluation: Evaluation, measurements: Sequence[Measurement] = ()
) -> dict[str, Any]:
    """Everything that the page draws, in one JSON-ready dict; times in the unit that it names.

    Keys of ``operators``, ``transfers`` and ``spans`` are columns of equal length: ``p`` and ``n`` the name (see
    :func:`front_coded`), ``s`` start, ``d`` duration, ``r`` row, ``l`` lane, ``z`` bytes, ``k`` kind, ``m`` module,
    ``w`` words on a bar, ``i`` device, ``c`` 0 computes, 1 transfers, 2 waits, ``v`` operator or -1, ``to`` the
    receiver;
    a span is named only where it is no operator.
    """
    plan = result.plan
    assert plan is not None  # the page asks for a timeline only when there is a plan
    operators, devices = problem.graph.operators, problem.cluster.devices
    offload = plan.call_of is not None
    start, finish = plan.schedule.start_s, plan.schedule.finish_s
    if offload:
        start, finish = drawn_times(problem, plan, evaluation)
    span = max([evaluation.schedule.makespan_s, *(s.finish_s for m in measurements for s in m.spans)])
    unit, factor = time_unit(span)

    def scaled(seconds: float, digits: int = 7) -> float:
        value = float(f"{seconds / factor:.{digits}g}")
        return int(value) if value == int(value) else value

    durations = (finish - start).tolist()
    kinds, kind_of = ranked([v.kind or "operator" for v in operators], durations)
    modules = _table(module or "(top)" for module in module_groups([v.name for v in operators]))
    names = [d.name for d in devices]
    used = list(plan.devices_used)
    steady = isinstance(problem.objective, MaxLoad | Throughput)
    if plan.copies:
        used = sorted(set(plan.device_of.tolist()))
    elif steady:  # in the order of the pipeline; a sample passes one of the copies of a stage
        stages = stages_of(problem, evaluation, plan)
        used = [stage.devices[0] for stage in stages]
        for stage in stages:
            names[stage.devices[0]] = stage.name
    rows: list[dict[str, Any]] = []
    transfers = [x for x in plan.schedule.transfers if math.isfinite(x.finish_s)]
    by_link = len({(x.source, x.target) for x in transfers}) <= LINK_ROWS
    sent: dict[tuple[int, int], list[int]] = {}
    for k, x in enumerate(transfers):
        sent.setdefault((x.source, x.target if by_link else -1), []).append(k)
    lane, row = [0] * len(transfers), [0] * len(transfers)
    for i in used:
        rows.append({"label": names[i], "device": i, "type": "compute", "lanes": 1})
        for source, target in sorted(key for key in sent if key[0] == i):
            members = sent[source, target]
            lanes = lanes_of([(transfers[k].start_s, transfers[k].finish_s) for k in members])
            for k, where in zip(members, lanes, strict=True):
                lane[k], row[k] = where, len(rows)
            label = f"{names[source]} \u2192 {names[target] if by_link else 'others'}"
            rows.append({"label": label, "device": i, "type": "link", "lanes": 1 + max(lanes)})
    if offload:
        rows, operator_lane = _pool_rows(problem, plan, evaluation, names)
    tensors = problem.graph.tensors
    made: dict[str, Any] = {
        "unit": unit,
        "unit_s": factor,
        "makespan": scaled(evaluation.schedule.makespan_s),
        # A bound on the load says nothing about one sample alone.
        "bound": 0 if steady else scaled(result.lower_bound_s),
        "end": "one sample alone" if steady else "plan",
        "devices": names,
        "used": used,
        "kinds": kinds,
        "modules": modules["names"],
        "rows": rows,
        "operators": {
            **front_coded([v.name for v in operators]),
            "s": [scaled(t) for t in start.tolist()],
            "d": [scaled(t, 5) for t in durations],
            "i": plan.device_of.tolist(),
            "k": kind_of,
            "kind": _table(v.kind for v in operators),
            "m": modules["rows"],
            "z": [v.resident_bytes for v in operators],
        },
        "transfers": {
            **front_coded([tensors[x.tensor].name for x in transfers]),
            "s": [scaled(x.start_s) for x in transfers],
            "d": [scaled(x.finish_s - x.start_s, 5) for x in transfers],
            "r": row,
            "to": [x.target for x in transfers],
            "l": lane,
            "z": [tensors[x.tensor].size_bytes for x in transfers],
        },
    }
    if offload:
        made["operators"]["l"] = operator_lane
        made["transfers"] = _call_parts(problem, plan, evaluation, used, scaled)
    shown = next((m for m in sorted(measurements, key=lambda m: m.name != PLAN) if m.spans), None)
    if shown is not None:
        made["measured"] = _measured(problem, shown, scaled)
    return made


def _pool_rows(
    problem: Problem, plan: Plan, evaluation: Evaluation, names: Sequence[str]
) -> tuple[list[dict[str, Any]], list[int]]:
    """Make a row for each device in use, CPUs with as many lanes as operators run there at once; and (n,) lanes."""
    start, finish, lane = evaluation.schedule.start_s, evaluation.schedule.finish_s, [0] * len(plan.device_of)
    rows: list[dict[str, Any]] = []
    for i in plan.devices_used:
        count = 1
        if problem.cluster.devices[i].kind == "cpu":
            members = [v for v, j in enumerate(plan.device_of.tolist()) if j == i]
            lanes = lanes_of([(float(start[v]), float(finish[v])) for v in members])
            count = 1 + max(lanes)
            for v, where in zip(members, lanes, strict=True):
                lane[v] = where
        rows.append({"label": names[i], "device": i, "type": "compute", "lanes": count})
    return rows, lane


def _call_parts(
    problem: Problem, plan: Plan, evaluation: Evaluation, used: Sequence[int], scaled: Callable[..., float]
) -> dict[str, Any]:
    """Make the bars of transfers into and out of calls, in the rows of their devices."""
    parts = parts_of(problem, calls_of(problem, plan, evaluation))
    verbs = [("leave" if part.out else "enter") + ("s" if part.tensors == 1 else "") for part in parts]
    return {
        **front_coded(
            [
                f"{counted(part.tensors, 'tensor')} {verb} call {part.call.number + 1}"
                for part, verb in zip(parts, verbs, strict=True)
            ]
        ),
        "s": [scaled(part.start_s) for part in parts],
        "d": [scaled(part.finish_s - part.start_s, 5) for part in parts],
        "r": [list(used).index(part.call.device) for part in parts],
        "to": [part.call.device for part in parts],
        "l": [0] * len(parts),
        "z": [part.size_bytes for part in parts],
        "w": ["out" if part.out else "in" for part in parts],
    }


def front_coded(names: Sequence[str]) -> dict[str, list[Any]]:
    """Code each name as ``p`` characters of the one before and the rest ``n``: names of a network share long prefixes.

    Examples
    --------
    >>> front_coded(["net.a", "net.b"])
    {'p': [0, 4], 'n': ['net.a', 'b']}
    """
    shared: list[int] = []
    before = ""
    for name in names:
        # Characters beyond the basic plane count as two in the page's script: they end the shared prefix.
        pairs = zip(before, name, strict=False)
        shared.append(
            next((k for k, (a, b) in enumerate(pairs) if a != b or ord(a) > 0xFFFF), min(len(before), len(name)))
        )
        before = name
    return {"p": shared, "n": [name[k:] for name, k in zip(names, shared, strict=True)]}


def _table(names: Iterable[str]) -> dict[str, list[Any]]:
    """Each distinct text once, and indices into them."""
    index: dict[str, int] = {}
    rows = [index.setdefault(name, len(index)) for name in names]
    return {"names": list(index), "rows": rows}


def _measured(problem: Problem, shown: Measurement, scaled: Callable[..., float]) -> dict[str, Any]:
    number = {d.name: i for i, d in enumerate(problem.cluster.devices)}
    order = sorted({s.device for s in shown.spans}, key=lambda name: (number.get(name, len(number)), name))
    rows: list[dict[str, Any]] = []
    columns: dict[str, list[Any]] = {key: [] for key in "nsdrlcv"}
    for device in order:
        labels = (device, f"{device} transfers", f"{device} waits")
        kinds = (("compute",), ("transfer", "handover"), ("wait",))
        for category, (kind, label) in enumerate(zip(kinds, labels, strict=True)):
            spans = [s for s in shown.spans if s.device == device and s.kind in kind]
            if not spans:
                continue
            lanes = lanes_of([(s.start_s, s.finish_s) for s in spans])
            row = {"label": label, "type": "link" if category else "compute", "lanes": 1 + max(lanes)}
            rows.append({**row, "device": number.get(device, -1)})
            for s, lane in zip(spans, lanes, strict=True):
                v = -1 if category else problem.graph.index.get(s.name, -1)
                cells = {"s": scaled(s.start_s), "d": scaled(s.finish_s - s.start_s, 5), "r": len(rows) - 1, "l": lane}
                for key, value in {**cells, "c": category, "v": v}.items():
                    columns[key].append(value)
                if v < 0:
                    columns["n"].append(s.name)
    columns.update(front_coded(columns["n"]))
    return {"name": shown.name, "median": scaled(shown.median_s), "rows": rows, "spans": columns}
