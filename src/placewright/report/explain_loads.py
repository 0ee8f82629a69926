"""Why the loads of a plan are what they are: sentences for the objective max-load, every number computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from placewright.evaluate import Evaluation, Load, evaluate
from placewright.loads import loads_of, objective_of
from placewright.objective import busy_share_of
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.report.listing import counted, listed, percent
from placewright.report.loads import (
    StageUse,
    bottlenecks,
    pass_names,
    peaks_s,
    per_second,
    pipeline_order,
    slowest,
    stages_of,
)
from placewright.result import OPTIMALITY_TOLERANCE, Result, Status
from placewright.units import format_seconds

__all__ = ["best_move", "explain_bottleneck", "explain_contiguity", "explain_load_gap", "explain_throughput"]

JUDGED = 3
"""Of the moves to an unused device, the most promising are judged, each in one pass over all tensors."""


def explain_throughput(
    result: Result, singles: Mapping[str, float], devices: int, *, cached: bool = False
) -> list[str]:
    """Tell what several devices gain over the best single one, or that one device alone is the answer.

    Parameters
    ----------
    result : Result
        With a plan.
    singles : mapping of str to float
        Seconds per sample by name of each device alone; ``inf`` where it can't be.
    devices : int
        In the cluster.
    cached : bool
        Whether operators hold KV caches, of as many queries as are under way: a device alone might do with fewer.
    """
    plan = result.require_plan()
    feasible = {name: value for name, value in singles.items() if value < float("inf")}
    used = len(plan.devices_used)
    if used == 1:
        if devices == 1:
            return ["The cluster has one device, so there is nothing to choose."]
        proved = "the best answer" if result.status is Status.OPTIMAL else "the best answer found"
        return [f"One device alone is {proved}: {format_seconds(plan.value_s)} a sample."]
    if not feasible:
        return [
            f"No device alone can run the network{' with all its KV caches' if cached else ''}, so several are needed."
        ]
    name = min(feasible, key=lambda n: feasible[n])
    alone = feasible[name]
    if plan.value_s >= alone:
        return [
            f"This plan is no faster than {name!r} alone, which takes {format_seconds(alone)} a sample; "
            "a longer budget should find at least that."
        ]
    gain = f"{alone / plan.value_s:.3g} times" if plan.value_s > 0 else "without end more than"
    return [
        f"{counted(used, 'device')} together make {per_second(plan.value_s)}, {gain} the {per_second(alone)} of "
        f"{name!r} alone, the best single device{' with room for all KV caches' if cached else ''} "
        f"({format_seconds(alone)} a sample)."
    ]


def explain_bottleneck(problem: Problem, plan: Plan, evaluation: Evaluation) -> list[str]:
    """Which device or channel sets the pace, what its load consists of, and how busy the others are."""
    stages, peaks, names = stages_of(problem, evaluation, plan), peaks_s(evaluation), pass_names(evaluation)
    said = [_paced(problem, plan, stages, evaluation, k, name) for k, name in enumerate(names)]
    slowest = dict.fromkeys(s for k in range(len(peaks)) for s in bottlenecks(stages, evaluation, k))
    single = _indivisible(problem, plan, [s for s in slowest if isinstance(s, StageUse)])
    if single and len(stages) > 1:
        way = "only more copies could divide" if objective_of(problem).replicate else "no placement divides"
        said.append(f"{listed(single)}, which {way}.")
    used = sum(len(stage.devices) for stage in stages)
    if used > 1 and 0 < evaluation.value_s < float("inf"):
        busy = sum(len(stage.devices) * stage.use.load_s for stage in stages) / (used * evaluation.value_s)
        said.append(f"The {used} devices in use are busy {percent(busy)} of the time on average.")
    return said


def _paced(
    problem: Problem, plan: Plan, stages: Sequence[StageUse], evaluation: Evaluation, which: int, name: str
) -> str:
    found = list(bottlenecks(stages, evaluation, which))
    peak = format_seconds(peaks_s(evaluation)[which])
    where = f"In the {name} pass" if name else ""
    slow = [stage for stage in found if not isinstance(stage, str)]
    if not slow:
        channels = listed([repr(c) for c in found if isinstance(c, str)])
        busiest = max(stages, key=lambda stage: stage.use.loads[which].load_s)
        least = format_seconds(busiest.use.loads[which].load_s)
        count = _crossings(problem, plan, str(found[0]), which if name else -1)
        begin = f"{where} the bottleneck is" if name else "The bottleneck is"
        return (
            f"{begin} channel {channels}: {counted(count, 'transfer')} over it take {peak} a sample; "
            f"the busiest device, {busiest.name!r}, has {least}."
        )
    first = slow[0]
    about = _parts(problem, plan, first, first.use.loads[which], which if name else -1)
    if len(found) == 1:
        begin = f"{where} the bottleneck is" if name else "The bottleneck is"
        return f"{begin} {first.name!r} with {peak} a sample: {about}."
    every = listed([repr(s.name) if isinstance(s, StageUse) else f"channel {s!r}" for s in found])
    begin = f"{where} the bottlenecks are" if name else "The bottlenecks are"
    return f"{begin} {every} with {peak} a sample each; of {first.name!r}: {about}."


def _parts(problem: Problem, plan: Plan, stage: StageUse, load: Load, which: int) -> str:
    """Words for the parts of a load; ``which`` is a pass, or -1 for both together."""
    home = stage.devices[0]
    entering, leaving = set(), set()
    for x in plan.schedule.transfers:
        producer = problem.graph.tensors[x.tensor].producer
        if which >= 0 and problem.graph.operators[producer].backward != bool(which):
            continue
        if x.target == home:
            entering.add(x.tensor)
        if x.source == home:
            leaving.add(x.tensor)
    number = stage.operators if which < 0 else stage.number(which, 2)
    parts = [f"{format_seconds(load.compute_s)} of computing ({counted(number, 'operator')})"]
    if load.in_s > 0:
        parts.append(f"{format_seconds(load.in_s)} for {counted(len(entering), 'tensor')} in")
    if load.out_s > 0:
        parts.append(f"{format_seconds(load.out_s)} for {counted(len(leaving), 'tensor')} out")
    if load.sync_s > 0:
        parts.append(f"{format_seconds(load.sync_s)} of synchronising weights")
    joined = listed(parts)
    share = busy_share_of(objective_of(problem))
    if share < 1 and load.in_s + load.out_s > 0:
        busy = f", but for {percent(share)} of the transfers" if share else ""
        joined += f"; these overlap{busy}, and {_longest(problem, load)}"
    if len(stage.devices) > 1:
        joined += f", all divided by its {len(stage.devices)} copies" + (" but the synchronising" * (load.sync_s > 0))
    return joined


def _longest(problem: Problem, load: Load) -> str:
    share = busy_share_of(objective_of(problem))
    busy_s, busy = load.compute_s + share * (load.in_s + load.out_s), "computing with what is busy for them"
    busy = f"{busy} takes" if share else "computing takes"
    if objective_of(problem).overlap == "transfers":
        return f"{busy} longest" if busy_s >= load.in_s + load.out_s else "the transfers take longest"
    parts = [(busy_s, busy), (load.in_s, "transfers in take"), (load.out_s, "transfers out take")]
    return f"{max(parts, key=lambda part: part[0])[1]} longest"


def _indivisible(problem: Problem, plan: Plan, stages: Sequence[StageUse]) -> list[str]:
    """Words for those stages that run nothing but what must share a device."""
    groups: dict[int, list[npt.NDArray[np.int32]]] = {}
    for members in _groups(problem):
        groups.setdefault(int(plan.device_of[members[0]]), []).append(members)
    alone = [(stage, groups[stage.devices[0]][0]) for stage in stages if len(groups[stage.devices[0]]) == 1]
    return [f"{stage.name!r} runs nothing but {_who(problem, members)}" for stage, members in alone]


def _crossings(problem: Problem, plan: Plan, channel: str, which: int) -> int:
    number = problem.cluster.channels.index(channel)
    count = 0
    for x in plan.schedule.transfers:
        producer = problem.graph.operators[problem.graph.tensors[x.tensor].producer]
        over = number in problem.cluster.channels_of[x.source, x.target].tolist()
        count += over and (which < 0 or producer.backward == bool(which))
    return count


def explain_contiguity(problem: Problem, result: Result) -> list[str]:
    """Say so where a plan that need not be contiguous is: then contiguity costs nothing against it."""
    plan = result.require_plan()
    if objective_of(problem).contiguity == "contiguous" or len(plan.devices_used) == 1:
        return []
    if not pipeline_order(problem, plan.device_of):
        return []
    proved = ", so contiguity costs nothing here" if result.status is Status.OPTIMAL else ""
    return [f"The plan is contiguous, though it need not be{proved}."]


def explain_load_gap(result: Result) -> list[str]:
    """State what is proved of the plan's distance from the best one."""
    value, bound = result.value_s, result.lower_bound_s
    if result.status is Status.OPTIMAL:
        return ["The plan is proved optimal: no placement of this problem can take less time per sample."]
    if bound <= 0:
        return ["Nothing is proved about the gap: no lower bound was computed."]
    names = [name for name, b in result.bounds.items() if b >= bound * (1 - OPTIMALITY_TOLERANCE)]
    by = f" ({listed(names)})" if names else ""
    return [
        f"No plan can be below {format_seconds(bound)} a sample{by}, so this plan takes at most "
        f"{percent(value / bound - 1)} longer than the best one; the gap is {percent(result.gap)}."
    ]


def best_move(problem: Problem, plan: Plan, evaluation: Evaluation, i: int) -> list[str]:
    """Judge the moves to an unused device that promise the smallest largest load, and tell the best of them.

    What can move is a unit (or a block of units, where contiguity ties them), from a bottleneck if one has any that is
    free to go. A move promises the largest of three: the load of the new device, what remains on the old one (without
    the computing that left, with the new transfers), and the largest other load.
    """
    at = plan.device_of
    peaks = peaks_s(evaluation)
    slow = {i for i, use in enumerate(evaluation.devices) if slowest([load.load_s for load in use.loads], peaks)}
    loads = [use.load_s for use in evaluation.devices]
    order = sorted(range(len(loads)), key=lambda j: -loads[j])
    pays = [d.kind != "cpu" for d in problem.cluster.devices]
    capacity = problem.cluster.devices[i].capacity_bytes
    promising: list[tuple[float, int, float, float, npt.NDArray[np.int32]]] = []
    movable, p = list(_movable(problem, at)), problem.times.processing_s
    # Nothing is gained by what another device gives away, or by what takes no time.
    relief = [m for m in movable if int(at[m[0]]) in slow and p[m, at[m[0]]].sum() > 0]
    for members in relief or movable:
        home = int(at[members[0]])
        there = float(p[members, i].sum())
        if not problem.allowed[members, i].all() or problem.resident_bytes[members].sum() > capacity:
            continue
        travel, to_home = _travel(problem, at, i, members)
        travel = travel if pays[i] else 0.0
        other = next((loads[j] for j in order if j != home), 0.0)
        remains = loads[home] - float(p[members, home].sum()) + (to_home if pays[home] else 0.0)
        promising.append((max(there + travel, remains, other), int(members[0]), there, travel, members))
    promising.sort(key=lambda x: x[:2])
    if not promising:
        return ["no operator could move there alone without breaking a rule"]
    judged = []
    for _, _, there, travel, members in promising[:JUDGED]:
        moved = np.array(at)
        moved[members] = i
        judged.append((evaluate(problem, moved, replicas=plan.replicas), there, travel, members))
    found, there, travel, members = min(judged, key=lambda x: (not x[0].feasible, x[0].value_s))
    parts = [f"{format_seconds(there)} of computing", *([f"{format_seconds(travel)} of transfers"] if travel else [])]
    move = f"moving {_who(problem, members)} there ({', '.join(parts)})"
    if not found.feasible:
        return [f"{move} breaks a rule ({found.violations[0]})"]
    whole = f"makes the whole {format_seconds(found.value_s)} a sample"
    change = found.value_s / evaluation.value_s - 1 if evaluation.value_s > 0 else float("inf")
    if change < -OPTIMALITY_TOLERANCE:
        return [f"{move} {whole}, {percent(-change)} less: a longer budget should find a better plan"]
    outcome = "no less than now" if change <= OPTIMALITY_TOLERANCE else f"{percent(change)} more than now"
    return [f"the most promising move, {move.removeprefix('moving ')}, {whole}, {outcome}"]


def _travel(problem: Problem, at: npt.NDArray[np.int32], i: int, members: npt.NDArray[np.int32]) -> tuple[float, float]:
    """Seconds of tensors into and out of device i if ``members`` were moved there, and those to and from their home.

    Nothing else is on device i.
    """
    graph, travel, to_home, inside = problem.graph, 0.0, 0.0, set(members.tolist())
    home = int(at[members[0]])
    for u in sorted({u for v in inside for u in graph.inputs_of[v]}):
        producer = graph.tensors[u].producer
        if producer not in inside:
            seconds = problem.transfer_s(u, int(at[producer]), i)
            travel += seconds
            to_home += seconds if at[producer] == home else 0.0
    for u in sorted({u for v in inside for u in graph.outputs_of[v]}):
        targets = sorted({int(at[v]) for v in graph.tensors[u].readers if v not in inside})
        travel += max((problem.transfer_s(u, i, j) for j in targets), default=0.0)
        to_home += problem.transfer_s(u, i, home) if home in targets else 0.0
    return travel, to_home


def _groups(problem: Problem) -> list[npt.NDArray[np.int32]]:
    """Operators that always share a device: units, or blocks of units where contiguity ties them."""
    arrays = loads_of(problem)
    whole = objective_of(problem).contiguity == "contiguous" and objective_of(problem).contiguous_cpus
    label = arrays.block_of[arrays.unit_of] if whole else arrays.unit_of
    members: dict[int, list[int]] = {}
    for v, k in enumerate(label.tolist()):
        members.setdefault(k, []).append(v)
    return [np.array(m, dtype=np.int32) for m in members.values()]


def _movable(problem: Problem, at: npt.NDArray[np.int32]) -> Iterator[npt.NDArray[np.int32]]:
    """Yield the groups that can leave their device alone: under contiguity those at the edge of their stage."""
    groups = _groups(problem)
    if objective_of(problem).contiguity == "any":
        yield from groups
        return
    arrays = loads_of(problem)
    group_of = np.empty(len(at), dtype=np.int64)
    for k, members in enumerate(groups):
        group_of[members] = k
    first = arrays.member[arrays.member_ptr[:-1]]
    before, after = np.zeros(len(groups), dtype=np.bool_), np.zeros(len(groups), dtype=np.bool_)
    for a, b in zip(first[arrays.order_tail].tolist(), first[arrays.order_head].tolist(), strict=True):
        if group_of[a] != group_of[b] and at[a] == at[b]:
            after[group_of[a]] = before[group_of[b]] = True
    yield from (members for k, members in enumerate(groups) if not (before[k] and after[k]))


def _who(problem: Problem, members: npt.NDArray[np.int32]) -> str:
    name = repr(problem.graph.operators[int(members[0])].name)
    return name + (f" and {counted(len(members) - 1, 'operator')} tied to it" if len(members) > 1 else "")
