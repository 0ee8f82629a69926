"""The checker of plans for the max-load: loads, order of devices, replicas, memory."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from placewright.objective import MaxLoad
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.verify.case import SMALLEST_SCALE_S, Case, placement, wrong_shapes
from placewright.verify.device_order import device_order
from placewright.verify.one_sample import arrivals, durations, order_on_devices

__all__ = ["verify_max_load"]


def verify_max_load(problem: Problem, plan: Plan, *, tolerance: float = 1e-9) -> tuple[str, ...]:
    """Check a plan; see :func:`placewright.verify.verify`."""
    objective = problem.objective
    if not isinstance(objective, MaxLoad):
        raise TypeError(f"the objective is {objective.name}, not max-load")
    shape = [*wrong_shapes(problem, plan), *_wrong_stages(problem, plan)]
    if shape:
        return tuple(shape)
    case = Case(problem, plan, tolerance)
    return (
        *placement(case),
        *durations(case),
        *order_on_devices(case),
        *arrivals(case),
        *_replicas(case, objective),
        *device_order(case, objective),
        *_memory(case),
        *_value(case, objective),
    )


def _wrong_stages(problem: Problem, plan: Plan) -> Iterator[str]:
    """Stages of replicas that leave nothing else to be checked."""
    D, taken = len(problem.cluster), set[int]()
    for stage in plan.replicas:
        if not all(0 <= i < D for i in stage):
            yield f"the stage {stage} is on a device outside 0..{D - 1}"
        elif len(stage) < 2 or any(a >= b for a, b in pairwise(stage)):
            yield f"the stage {stage} does not name two or more devices, ascending"
        elif taken & set(stage):
            yield f"the stage {stage} has a device that another stage has too"
        taken |= set(stage)


def _replicas(case: Case, objective: MaxLoad) -> Iterator[str]:
    """Stages are replicated where that is allowed, on alike devices, and operators are on the first of them."""
    if case.plan.replicas and not objective.replicate:
        yield "the plan replicates stages, but the objective does not allow replicas"
    for stage in case.plan.replicas:
        for j in stage[1:]:
            if not _alike(case, objective, stage[0], j):
                yield f"a stage is replicated on {case.device(stage[0])} and {case.device(j)}, which are unlike"
        for v, i in enumerate(case.device_of):
            if i in stage[1:]:
                yield f"{case.operator(v)} is on {case.device(i)}, a replica of {case.device(stage[0])}; name that one"


def _alike(case: Case, objective: MaxLoad, i: int, j: int) -> bool:
    """Whether two devices can be exchanged: kind, memory, times of every unit in every pass, transfers, channels."""
    problem = case.problem
    devices = problem.cluster.devices
    a, b = devices[i], devices[j]
    if (a.kind == "cpu") != (b.kind == "cpu") or a.capacity_bytes != b.capacity_bytes:
        return False
    if any(times[i] != times[j] for times in _unit_times(case, objective)):
        return False
    swap = {i: j, j: i}
    for x in range(len(devices)):
        for y in {i, j} if x not in swap else range(len(devices)):
            if x != y and not _same_link(case, objective, (x, y), (swap.get(x, x), swap.get(y, y))):
                return False
    return True


def _unit_times(case: Case, objective: MaxLoad) -> Iterator[list[float]]:
    """For every unit and pass the seconds on each device, ``inf`` where it may not run."""
    problem, D = case.problem, len(case.problem.cluster)
    units = [*problem.graph.colocation]
    units += [(v,) for v in set(range(len(problem.graph))).difference(*units)]
    for members in units:
        may = [all(case.may_run(v, i) for v in members) for i in range(D)]
        for backward in (False, True) if objective.training == "separate" else (None,):
            in_pass = [v for v in members if backward in (None, problem.graph.operators[v].backward)]
            yield [
                sum(float(problem.times.processing_s[v, i]) for v in in_pass) if may[i] else math.inf for i in range(D)
            ]


def _same_link(case: Case, objective: MaxLoad, one: tuple[int, int], other: tuple[int, int]) -> bool:
    problem, links = case.problem, case.links
    if links.channels(*one) != links.channels(*other):
        return False
    synced = objective.replicate and objective.sync_bandwidth_bytes_per_s is None and _trains(case)
    first, second = links.between(*one), links.between(*other)
    rates = [link.bandwidth_bytes_per_s if link else math.inf for link in (first, second)]
    if problem.times.transfer_s is not None:
        tables = (problem.times.transfer_s[u] for u in range(len(problem.graph.tensors)))
        return all(table[one] == table[other] for table in tables) and (not synced or rates[0] == rates[1])
    if any(link and link.points for link in (first, second)):
        sizes = range(len(problem.graph.tensors))
        times = ([links.seconds(problem, u, *pair) for u in sizes] for pair in (one, other))
        return next(times) == next(times) and (not synced or rates[0] == rates[1])
    delays = [link.latency_s if link else math.inf for link in (first, second)]
    return delays[0] == delays[1] and rates[0] == rates[1]


def _trains(case: Case) -> bool:
    return any(v.backward for v in case.problem.graph.operators)


def _memory(case: Case) -> Iterator[str]:
    """Memory less reserve holds what operators keep there, also that of copies."""
    devices = case.problem.cluster.devices
    held = list(case.resident)
    for stage in case.plan.replicas:
        for i in stage[1:]:
            held[i] += held[stage[0]]
    for device, resident in zip(devices, held, strict=True):
        if device.memory_bytes is not None and resident > device.memory_bytes - device.reserve_bytes:
            limit = device.memory_bytes - device.reserve_bytes
            yield f"device {device.name!r} holds {resident} B of {case.held_what}, but may hold {limit} B"


def _value(case: Case, objective: MaxLoad) -> Iterator[str]:
    passes = (False, True) if objective.training == "separate" else (None,)
    value = sum(_largest_load(case, objective, backward) for backward in passes)
    if not abs(case.plan.value_s - value) <= case.tolerance * max(SMALLEST_SCALE_S, value):
        yield f"the plan states a value of {case.plan.value_s} s, but its largest load is {value} s"


def _largest_load(case: Case, objective: MaxLoad, backward: bool | None) -> float:
    """Seconds of the busiest device or channel in one pass, or (``None``) in both together."""
    graph, devices = case.problem.graph, case.problem.cluster.devices
    computing: dict[int, float] = defaultdict(float)
    entering: dict[int, float] = defaultdict(float)
    leaving: dict[int, float] = defaultdict(float)
    channels: dict[str, float] = defaultdict(float)
    for v, i in enumerate(case.device_of):
        if backward in (None, graph.operators[v].backward):
            computing[i] += float(case.problem.times.processing_s[v, i])
    for u, tensor in enumerate(graph.tensors):
        if backward not in (None, graph.operators[tensor.producer].backward):
            continue
        home, slowest = case.home(u), 0.0
        for j in case.readers_on[u]:
            if j == home:
                continue
            seconds = case.links.seconds(case.problem, u, home, j)
            entering[j] += seconds
            slowest = max(slowest, seconds)
            for channel in case.links.channels(home, j):
                channels[channel] += seconds
        leaving[home] += slowest
    loads = list(channels.values())
    copies = {stage[0]: stage for stage in case.plan.replicas}
    for i in set(case.device_of):
        pays = devices[i].kind != "cpu"
        busy, enter, leave = computing[i], entering[i] if pays else 0.0, leaving[i] if pays else 0.0
        if objective.overlap == "none":
            load = busy + enter + leave
        else:
            if objective.busy_share > 0.0:
                busy += objective.busy_share * (enter + leave)
            load = max(busy, enter + leave) if objective.overlap == "transfers" else max(busy, enter, leave)
        stage = copies.get(i, (i,))
        load /= len(stage)
        if backward is not False and len(stage) > 1:
            load += _sync_s(case, objective, stage)
        loads.append(load)
    return max(loads)


def _sync_s(case: Case, objective: MaxLoad, stage: tuple[int, ...]) -> float:
    """Seconds a sample that the copies of a stage synchronise their weights for: 2 (r - 1) / r of them each time."""
    if not _trains(case):
        return 0.0
    operators = case.problem.graph.operators
    weights = sum(operators[v].weight_bytes for v, i in enumerate(case.device_of) if i == stage[0])
    rate = objective.sync_bandwidth_bytes_per_s
    if rate is None:
        links = [case.links.between(stage[0], j) for j in stage[1:]]
        rate = min((link.bandwidth_bytes_per_s for link in links if link), default=math.inf)
    return 2 * (len(stage) - 1) * weights / (len(stage) * rate * objective.sync_period)
