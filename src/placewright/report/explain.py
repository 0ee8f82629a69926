"""Why a plan is as it is, in sentences whose every number is computed from the problem, the plan and the judge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from placewright.arrays import arrays_of
from placewright.evaluate import Evaluation, evaluate
from placewright.objective import Makespan, MaxLoad, Offload, Throughput
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.report.alternatives import ONLY
from placewright.report.copies import explain_copies
from placewright.report.explain_calls import best_call_move, explain_chain, explain_offloading
from placewright.report.explain_loads import (
    best_move,
    explain_bottleneck,
    explain_contiguity,
    explain_load_gap,
    explain_throughput,
)
from placewright.report.listing import counted, listed, percent
from placewright.result import OPTIMALITY_TOLERANCE, Result, Status
from placewright.units import format_bytes, format_seconds

__all__ = [
    "explain",
    "explain_devices",
    "explain_gap",
    "explain_single_best",
    "explain_value",
    "reasons_unused",
    "single_device_values",
]

JUDGED_MOVES = 8
"""At most so many kinds of unused devices get a move judged for them: each costs one pass over all tensors."""

JUDGED_DEVICES = 16
"""At most so many devices are judged as the only one."""


def explain(problem: Problem, result: Result, evaluation: Evaluation | None) -> list[str]:
    """All that is known of why the result is what it is: one device or several, unused devices, the gap."""
    if result.plan is None or evaluation is None:
        return explain_gap(result)
    value, gap = explain_value(problem, result, evaluation)
    return [*value, *explain_devices(problem, result.plan, evaluation, result.alternatives), *gap]


def explain_value(problem: Problem, result: Result, evaluation: Evaluation | None) -> tuple[list[str], list[str]]:
    """Sentences about the plan's value, and those about its gap; only the latter without a plan."""
    if result.plan is None or evaluation is None:
        return [], explain_gap(result)
    if isinstance(problem.objective, Offload):
        chain = explain_chain(problem, result.plan, evaluation)
        return [*chain, *explain_offloading(problem, result, _singles(problem, result))], explain_gap(result)
    if isinstance(problem.objective, Throughput):
        pace = explain_throughput(result, _singles(problem, result), len(problem.cluster), cached=_cached(problem))
        return [*pace, *explain_copies(problem, result, evaluation)], explain_gap(result)
    if not isinstance(problem.objective, MaxLoad):
        return explain_single_best(problem, result), explain_gap(result)
    value = [
        *explain_bottleneck(problem, result.plan, evaluation),
        *explain_throughput(result, _singles(problem, result), len(problem.cluster), cached=_cached(problem)),
        *explain_contiguity(problem, result),
    ]
    return value, explain_load_gap(result)


def explain_gap(result: Result) -> list[str]:
    """State what is proved of the plan's distance from the best one.

    Examples
    --------
    >>> explain_gap(Result(infeasible="operator 'a' needs 2 GiB on 'gpu0', which has 1 GiB"))
    ["There is no plan: operator 'a' needs 2 GiB on 'gpu0', which has 1 GiB."]
    """
    if result.plan is None:
        if result.status is Status.INFEASIBLE:
            return [f"There is no plan: {result.infeasible.rstrip('.')}."]
        return ["No plan was found before the budget was spent, and none was proved impossible."]
    if result.status is Status.OPTIMAL:
        return ["The plan is proved optimal: no placement of this problem can be faster."]
    if result.lower_bound_s <= 0:
        return ["Nothing is proved about the gap: no lower bound was computed."]
    names = [
        name for name, bound in result.bounds.items() if bound >= result.lower_bound_s * (1 - OPTIMALITY_TOLERANCE)
    ]
    by = f" ({listed(names)})" if names else ""
    return [
        f"No plan can be below {format_seconds(result.lower_bound_s)}{by}, so this plan takes at most "
        f"{percent(result.value_s / result.lower_bound_s - 1)} longer than the best one; "
        f"the gap is {percent(result.gap)}."
    ]


def single_device_values(problem: Problem, devices: Iterable[int] | None = None) -> dict[str, float]:
    """Value in seconds of the whole network on each device alone, as the judge gives it; ``inf`` where infeasible.

    Parameters
    ----------
    problem : Problem
    devices : iterable of int, optional
        Indices; by default the first 16 devices that may run every operator.
    """
    possible = np.flatnonzero(problem.allowed.all(axis=0)).tolist()
    chosen = list(possible[:JUDGED_DEVICES] if devices is None else devices)
    values: dict[str, float] = {}
    held = int(problem.resident_bytes.sum())
    for i in chosen:
        if isinstance(problem.objective, Makespan) and held > problem.cluster.devices[i].capacity_bytes:
            values[problem.cluster.devices[i].name] = float("inf")
            continue
        judged = evaluate(problem, np.full(len(problem.graph), i, dtype=np.int32))
        values[problem.cluster.devices[i].name] = judged.value_s if judged.feasible else float("inf")
    return values


def _cached(problem: Problem) -> bool:
    return any(v.kv_cache_bytes for v in problem.graph.operators)


def _singles(problem: Problem, result: Result) -> dict[str, float]:
    """Value of each device alone as it was met on the way, or judged now."""
    known = {k.removeprefix(ONLY): v for k, v in result.alternatives.items() if k.startswith(ONLY)}
    missing = isinstance(problem.objective, Offload) and any(d.name not in known for d in problem.cluster.devices)
    return {**single_device_values(problem), **known} if missing or not known else known


def explain_single_best(problem: Problem, result: Result) -> list[str]:
    """Whether one device alone is the answer and why, or what several devices gain over the best single one.

    Notes
    -----
    The two limits on what a split could gain are the longest path (with unlimited copies of the device and free
    transfers the network still takes as long as its longest path) and the cheapest crossing (latency, the smallest
    tensor that is read, and what the cut costs at both ends).
    """
    plan = result.plan
    if plan is None:
        return []
    used = plan.devices_used
    if len(used) > 1:
        feasible = {name: value for name, value in _singles(problem, result).items() if value < float("inf")}
        if not feasible:
            return ["No device alone can run the network, so several are needed."]
        name = min(feasible, key=lambda n: feasible[n])
        if plan.value_s < feasible[name]:
            return [
                f"{counted(len(used), 'device')} together take {format_seconds(plan.value_s)}, "
                f"{percent(1 - plan.value_s / feasible[name])} less than {name!r} alone, "
                f"the best single device ({format_seconds(feasible[name])})."
            ]
        return [
            f"This plan is no faster than {name!r} alone, which takes {format_seconds(feasible[name])}; "
            "a longer budget should find at least that."
        ]
    if len(problem.cluster) == 1:
        return ["The cluster has one device, so there is nothing to choose."]
    i = used[0]
    name = problem.cluster.devices[i].name
    p = problem.times.processing_s[:, i]
    total, path = float(p.sum()), longest_path_s(problem, p)
    proved = "the best answer" if result.status is Status.OPTIMAL else "the best answer found"
    sentences = [f"One device alone, {name!r}, is {proved}: {format_seconds(plan.value_s)}."]
    if total > 0:
        if path >= total * (1 - OPTIMALITY_TOLERANCE):
            sentences.append("Its operators form a chain: no two of them could ever run at the same time.")
        else:
            sentences.append(
                f"On {name!r} the longest path is {format_seconds(path)} of {format_seconds(total)} of work "
                f"({percent(path / total)}): more copies of it could save {percent(1 - path / total)} at most, "
                "were transfers free."
            )
    crossing = cheapest_crossing_s(problem, i)
    if crossing == float("inf"):
        sentences.append(f"No tensor can travel from {name!r} to another device.")
    elif crossing > 0:
        sentences.append(
            f"The cheapest crossing from {name!r} costs {format_seconds(crossing)}; "
            f"its median operator takes {format_seconds(float(np.median(p)))}."
        )
    return sentences


def explain_devices(
    problem: Problem, plan: Plan, evaluation: Evaluation, alternatives: Mapping[str, float] | None = None
) -> list[str]:
    """Why each unused device is unused, devices with the same reason in one sentence.

    Parameters
    ----------
    problem : Problem
    plan : Plan
    evaluation : Evaluation
        Of the plan.
    alternatives : mapping of str to float, optional
        Values of other plans in seconds; that of ``only <device>`` is quoted for an unused device.
    """
    grouped: dict[str, list[str]] = {}
    for i, reason in reasons_unused(problem, plan, evaluation, alternatives).items():
        grouped.setdefault(reason, []).append(problem.cluster.devices[i].name)
    return [
        f"{listed([repr(n) for n in names])} {'is' if len(names) == 1 else 'are'} unused: {reason}."
        for reason, names in grouped.items()
    ]


def reasons_unused(
    problem: Problem, plan: Plan, evaluation: Evaluation, alternatives: Mapping[str, float] | None = None
) -> dict[int, str]:
    """Reason by index of each device that runs nothing; the text has no full stop at its end."""
    known: dict[tuple[object, ...], str] = {}
    reasons: dict[int, str] = {}
    for i in range(len(problem.cluster)):
        if evaluation.devices[i].operators:
            continue
        key = _likeness(problem, plan, i)
        if key not in known:
            known[key] = _reason(problem, plan, evaluation, i, judge_move=len(known) < JUDGED_MOVES)
        alone = (alternatives or {}).get(ONLY + problem.cluster.devices[i].name)
        quoted = "" if alone is None or alone == float("inf") else f"; alone it would take {format_seconds(alone)}"
        quoted += " a sample" if quoted and isinstance(problem.objective, MaxLoad | Throughput) else ""
        reasons[i] = known[key] + quoted
    return reasons


def _likeness(problem: Problem, plan: Plan, i: int) -> tuple[object, ...]:
    """Devices with equal keys have equal reasons."""
    used = list(plan.devices_used)
    if problem.transfer_table is None:
        cluster = problem.cluster
        links = (cluster.latency_s, cluster.seconds_per_byte)
        ways = b"".join(part.tobytes() for m in links for part in (m[i, used], m[used, i]))
    else:
        c = problem.transfer_table
        ways = c[:, i, used].tobytes() + c[:, used, i].tobytes()
    device = problem.cluster.devices[i]
    return (
        device.capacity_bytes,
        problem.cut_s[:, i].tobytes(),
        problem.times.processing_s[:, i].tobytes(),
        problem.allowed[:, i].tobytes(),
        ways,
    )


def _reason(problem: Problem, plan: Plan, evaluation: Evaluation, i: int, *, judge_move: bool) -> str:
    n = len(problem.graph)
    p, allowed = problem.times.processing_s, problem.allowed[:, i]
    runnable = int(np.isfinite(p[:, i]).sum())
    if not runnable:
        return f"it can run none of the {counted(n, 'operator')}"
    if not allowed.any():
        if problem.wishes:
            return f"pins and forbids keep it from {_all_of(runnable)} that it could run"
        return f"each of the {counted(runnable, 'operator')} it could run must share a device with one it can't run"
    used = list(plan.devices_used)
    if not _reachable(problem, used, i):
        names = listed([repr(problem.cluster.devices[j].name) for j in used])
        return f"no link joins it to {names}, where the network runs"
    a, capacity = arrays_of(problem), problem.cluster.devices[i].capacity_bytes
    candidates = np.flatnonzero(a.allowed[:, i])
    fitting = candidates[a.resident[candidates] <= capacity]
    if not len(fitting):
        need = int(a.resident[candidates].min())
        return (
            f"its {format_bytes(capacity)} of memory hold nothing: the smallest operator that must be placed needs "
            f"{format_bytes(need)}"
        )
    steady = isinstance(problem.objective, MaxLoad | Throughput)
    calls = isinstance(problem.objective, Offload)
    equal = "" if steady or calls else ", so it would add transfers and save no computing"
    parts = [_speed(p[:, i], p[np.arange(n), plan.device_of], allowed, equal)]
    held = int(problem.resident_bytes.sum())
    if held > capacity:
        parts.append(f"the network holds {format_bytes(held)}, more than its {format_bytes(capacity)}")
    if judge_move and isinstance(problem.objective, MaxLoad):
        parts += best_move(problem, plan, evaluation, i)
    elif judge_move and calls:
        parts += best_call_move(problem, plan, evaluation, i)
    elif judge_move and not steady:
        parts += _best_move(problem, plan, evaluation, i, fitting)
    return "; ".join(parts)


def _all_of(count: int) -> str:
    return "the one operator" if count == 1 else f"all {count} operators"


def _reachable(problem: Problem, used: Sequence[int], i: int) -> bool:
    if problem.times.transfer_s is None:
        rules = problem.cluster.rule_of
        return bool((rules[i, used] >= 0).any() or (rules[used, i] >= 0).any())
    c = problem.times.transfer_s
    return not c.size or bool(np.isfinite(c[:, i, used]).any() or np.isfinite(c[:, used, i]).any())


def _speed(
    there: npt.NDArray[np.float64], now: npt.NDArray[np.float64], allowed: npt.NDArray[np.bool_], equal: str
) -> str:
    there, now = there[allowed], now[allowed]
    positive = (now > 0) & (there > 0)
    slower = int((there > now).sum())
    if slower == 0 and np.array_equal(there, now):
        return f"it is exactly as fast as what the plan uses{equal}"
    if slower == len(there) and positive.all():
        ratio = there / now
        low, high = f"{ratio.min():.3g}", f"{ratio.max():.3g}"
        span = f"{low} times" if low == high else f"{low} to {high} times"
        return f"it is slower at every operator, taking {span} as long as the device in use"
    faster = int((there < now).sum())
    if faster == 0:
        return f"it is faster at no operator and slower at {slower} of {len(there)}"
    gain = float((now - there)[there < now].sum())
    return (
        f"it is faster at {faster} of {counted(len(there), 'operator')}, "
        f"where it could save {format_seconds(gain)} of computing"
    )


def _best_move(problem: Problem, plan: Plan, evaluation: Evaluation, i: int, units: npt.NDArray[np.intp]) -> list[str]:
    """Judge the move to device i that loses least by computing and by its longest transfers in and out."""
    p, at, a = problem.times.processing_s, plan.device_of, arrays_of(problem)
    g = a.network
    tensor = np.repeat(np.arange(len(g.producer)), np.diff(g.reader_ptr))
    maker = g.producer[tensor]
    crossing = a.unit_of[maker] != a.unit_of[g.reader]
    tensor, maker, reader = tensor[crossing], maker[crossing], g.reader[crossing]
    into, out = np.zeros(len(a.resident)), np.zeros(len(a.resident))
    if len(g.transfer):
        ways = g.transfer[tensor, at[maker], i], g.transfer[tensor, i, at[reader]]
    else:
        sources, targets = (at[maker], i), (i, at[reader])
        ways = tuple(g.latency[way] + g.size[tensor] * g.per_byte[way] for way in (sources, targets))
    np.maximum.at(into, a.unit_of[reader], ways[0])
    np.maximum.at(out, a.unit_of[maker], ways[1])
    everything = np.arange(len(at))
    gain = np.where(problem.allowed[:, i], p[:, i], np.inf) - p[everything, at]
    costs = np.bincount(a.unit_of, weights=gain, minlength=len(a.resident)), into + out
    total = costs[0][units] + costs[1][units]
    if not len(total) or total.min() == float("inf"):
        return ["no operator's tensors can reach it and come back"]
    k = units[int(np.argmin(total))]
    computing, travel = float(costs[0][k]), float(costs[1][k])
    members = a.member[a.member_ptr[k] : a.member_ptr[k + 1]].tolist()
    moved = np.array(at)
    moved[members] = i
    in_plan_order = np.lexsort((np.arange(len(at)), plan.schedule.finish_s, plan.schedule.start_s))
    judged = min((evaluate(problem, moved), evaluate(problem, moved, order=in_plan_order)), key=lambda e: e.value_s)
    who = repr(problem.graph.operators[members[0]].name)
    who += f" and the {len(members) - 1} that must stay with it" if len(members) > 1 else ""
    trade = (
        f"saves {format_seconds(-computing)} of computing"
        if computing < 0
        else f"adds {format_seconds(computing)} of computing"
        if computing > 0
        else "saves no computing"
    )
    move = f"moving {who} there {trade} for transfers of {format_seconds(travel)}"
    if not judged.feasible:
        return [f"{move} and breaks a rule ({judged.violations[0]})"]
    change = judged.value_s / evaluation.value_s - 1 if evaluation.value_s > 0 else float("inf")
    whole = f"the whole takes {format_seconds(judged.value_s)}"
    if change < 0:
        return [f"{move}, and {whole}, {percent(-change)} less: a longer budget should find a better plan"]
    outcome = "no more than now" if change == 0 else f"{percent(change)} more than now" if change < float("inf") else ""
    return [f"the move that costs least, {move}: {whole}{', ' + outcome if outcome else ''}"]


def longest_path_s(problem: Problem, durations_s: npt.NDArray[np.float64]) -> float:
    """Length of the longest path when operator v takes ``durations_s[v]`` and transfers are free.

    Parameters
    ----------
    problem : Problem
    durations_s : (n,) array of seconds
    """
    finish = np.zeros(len(problem.graph))
    for v, before in enumerate(problem.graph.predecessors):
        finish[v] = max((float(finish[u]) for u in before), default=0.0) + float(durations_s[v])
    return float(finish.max(initial=0.0))


def cheapest_crossing_s(problem: Problem, i: int) -> float:
    """Least seconds that any tensor needs from device i to another, with what the cut costs at both ends."""
    read = [u for u, t in enumerate(problem.graph.tensors) if t.readers]
    if not read:
        return float("inf")
    if problem.transfer_table is None:
        smallest = min(problem.graph.tensors[u].size_bytes for u in read)
        way = problem.cluster.latency_s[i] + smallest * problem.cluster.seconds_per_byte[i]
    else:
        way = problem.transfer_table[read, i, :].min(axis=0)
    makers = [problem.graph.tensors[u].producer for u in read]
    readers = sorted({v for u in read for v in problem.graph.tensors[u].readers})
    costs = way + problem.cut_s[makers, i].min() + problem.cut_s[readers].min(axis=0)
    return float(np.delete(costs, i).min(initial=float("inf")))
