"""The checker of plans with several copies of the network: shares, each copy's places and order, loads, memory."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace

from placewright.objective import Throughput
from placewright.plan import Copy, Plan
from placewright.problem import Problem
from placewright.verify.case import SMALLEST_SCALE_S, Case, held_by, placement, wrong_shapes
from placewright.verify.device_order import device_order
from placewright.verify.one_sample import arrivals, durations, order_on_devices

__all__ = ["verify_throughput"]

SHARES_WITHIN = 1e-9
"""How far from 1 the sum of the shares may be."""


def verify_throughput(problem: Problem, plan: Plan, *, tolerance: float = 1e-9) -> tuple[str, ...]:
    """Check a plan; see :func:`placewright.verify.verify`."""
    objective = problem.objective
    if not isinstance(objective, Throughput):
        raise TypeError(f"the objective is {objective.name}, not throughput")
    copies = plan.copies or (Copy(plan.device_of, 1.0),)
    cases = [Case(problem, replace(plan, device_of=copy.device_of, copies=()), tolerance) for copy in copies]
    shape = list(wrong_shapes(problem, plan))
    shape += [line for case in cases for line in _wrong_places(case)]
    if not shape and cases[0].device_of != list(plan.device_of.tolist()):
        shape.append("the plan's placement is not that of its first copy")
    if shape:
        return tuple(shape)
    shares = [copy.share for copy in copies]
    return (
        *_wrong_shares(shares),
        *durations(cases[0]),
        *order_on_devices(cases[0]),
        *arrivals(cases[0]),
        *_of_each_copy(cases, objective),
        *_memory(cases),
        *_value(cases, shares, objective),
    )


def _wrong_places(case: Case) -> Iterator[str]:
    n, D = len(case.problem.graph), len(case.problem.cluster)
    if len(case.device_of) != n:
        yield f"a copy gives devices for {len(case.device_of)} operators, but the problem has {n}"
    elif any(not 0 <= i < D for i in case.device_of):
        yield f"a copy is on a device outside 0..{D - 1}"


def _wrong_shares(shares: list[float]) -> Iterator[str]:
    for k, share in enumerate(shares, 1):
        if not 0.0 < share <= 1.0 + SHARES_WITHIN:
            yield f"copy {k} has the share {share}, which is not above 0 and up to 1"
    if not abs(math.fsum(shares) - 1.0) <= SHARES_WITHIN:
        yield f"the shares sum to {math.fsum(shares)}, not to 1"


def _of_each_copy(cases: list[Case], objective: Throughput) -> Iterator[str]:
    """Places, classes and contiguity of every copy by itself; and that its tensors can travel."""
    links, in_order = cases[0].links, set[tuple[int, ...]]()
    for k, case in enumerate(cases, 1):
        which = f"copy {k}: " if len(cases) > 1 else ""
        yield from (which + line for line in placement(case))
        pattern = _pattern(case)
        if pattern not in in_order:
            broken = list(device_order(case, objective))
            yield from (which + line for line in broken)
            if not broken:
                in_order.add(pattern)
        for u, (home, readers_on) in enumerate(zip(case.homes, case.readers_on, strict=True)):
            for j in readers_on:
                if not math.isfinite(links.seconds(case.problem, u, home, j)):
                    name = case.problem.graph.tensors[u].name
                    yield f"{which}tensor {name!r} has no way from {case.device(home)} to {case.device(j)}"


def _pattern(case: Case) -> tuple[int, ...]:
    """Of each operator the how-manieth device its own is, CPUs below 0: all that the order of devices is about."""
    number: dict[int, int] = {}
    for i in case.device_of:
        if i not in number:
            number[i] = (len(number) + 1) * (-1 if case.problem.cluster.devices[i].kind == "cpu" else 1)
    return tuple(number[i] for i in case.device_of)


def _holders(cases: list[Case]) -> list[frozenset[int]]:
    """Of each operator the devices that run it in some copy."""
    return [frozenset(places) for places in zip(*(case.device_of for case in cases), strict=True)]


def _memory(cases: list[Case]) -> Iterator[str]:
    """Memory less reserve holds what operators keep: each operator once, however many copies run it there."""
    problem = cases[0].problem
    held = [0] * len(problem.cluster)
    for operator, holders in zip(problem.graph.operators, _holders(cases), strict=True):
        for i in sorted(holders):
            held[i] += held_by(operator)
    for device, resident in zip(problem.cluster.devices, held, strict=True):
        if device.memory_bytes is not None and resident > device.memory_bytes - device.reserve_bytes:
            limit = device.memory_bytes - device.reserve_bytes
            yield f"device {device.name!r} holds {resident} B of {cases[0].held_what}, but may hold {limit} B"


def _value(cases: list[Case], shares: list[float], objective: Throughput) -> Iterator[str]:
    plan = cases[0].plan
    value = _largest_load(cases, shares, objective)
    if not math.isfinite(value):
        yield "the largest load is infinite: an operator can't run, a tensor can't travel or weights can't be shared"
    elif not abs(plan.value_s - value) <= cases[0].tolerance * max(SMALLEST_SCALE_S, value):
        yield f"the plan states a value of {plan.value_s} s, but its largest load is {value} s"


def _largest_load(cases: list[Case], shares: list[float], objective: Throughput) -> float:
    """Seconds a sample of the busiest device or channel."""
    problem, links = cases[0].problem, cases[0].links
    computing: dict[int, float] = defaultdict(float)
    entering: dict[int, float] = defaultdict(float)
    leaving: dict[int, float] = defaultdict(float)
    channels: dict[str, float] = defaultdict(float)
    for case, share in zip(cases, shares, strict=True):
        for v, i in enumerate(case.device_of):
            computing[i] += share * float(problem.times.processing_s[v, i])
        for u, (home, readers_on) in enumerate(zip(case.homes, case.readers_on, strict=True)):
            slowest = 0.0
            for j in readers_on:
                if j != home:
                    seconds = links.seconds(problem, u, home, j)
                    slowest = max(slowest, seconds)
                    entering[j] += share * seconds
                    for channel in links.channels(home, j):
                        channels[channel] += share * seconds
            leaving[home] += share * slowest
    loads = list(channels.values())
    sync = _sync_s(cases, objective)
    for i in sorted(computing):
        pays = problem.cluster.devices[i].kind != "cpu"
        busy, enter, leave = computing[i], entering[i] if pays else 0.0, leaving[i] if pays else 0.0
        if objective.overlap == "none":
            load = busy + enter + leave
        else:
            if objective.busy_share > 0.0:
                busy += objective.busy_share * (enter + leave)
            load = max(busy, enter + leave) if objective.overlap == "transfers" else max(busy, enter, leave)
        loads.append(load + sync[i])
    return max(loads, default=0.0)


def _sync_s(cases: list[Case], objective: Throughput) -> dict[int, float]:
    """Seconds a sample that each device synchronises weights for: 2 (r - 1) / r of them each time, r holding them."""
    operators, seconds = cases[0].problem.graph.operators, defaultdict[int, float](float)
    if not any(v.backward for v in operators):
        return seconds
    weights: dict[frozenset[int], int] = defaultdict(int)
    for operator, holders in zip(operators, _holders(cases), strict=True):
        weights[holders] += operator.weight_bytes
    for holders, total in weights.items():
        r = len(holders)
        if r > 1 and total:
            rate = objective.sync_bandwidth_bytes_per_s or _slowest_rate(cases[0], holders)
            each = 2 * (r - 1) * total / (r * rate * objective.sync_period) if rate else math.inf
            for i in holders:
                seconds[i] += each
    return seconds


def _slowest_rate(case: Case, devices: frozenset[int]) -> float:
    """Bytes a second of the slowest link between two of the devices; 0 where two have none."""
    links = case.links
    named = {links.names[i]: i for i in devices}
    own = {pair: link for pair, link in links.pairs.items() if pair[0] in named and pair[1] in named}
    inside = Counter(links.hosts[named[a]] == links.hosts[named[b]] for a, b in own)
    per_host = Counter(links.hosts[i] for i in devices)
    together = sum(count * (count - 1) for count in per_host.values())
    rates = [link.bandwidth_bytes_per_s for link in own.values()]
    pairs = {True: together, False: len(devices) * (len(devices) - 1) - together}
    for same, number in pairs.items():
        if number > inside[same]:  # not every such pair has a rule of its own
            link = links.classes.get("same-host" if same else "between-hosts")
            rates.append(link.bandwidth_bytes_per_s if link else 0.0)
    return min(rates)
