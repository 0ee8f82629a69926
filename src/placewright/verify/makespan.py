"""The checker of plans for the makespan: durations, order, arrivals, contention and live memory."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from placewright.objective import Makespan
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.verify.case import Case, placement, wrong_shapes
from placewright.verify.one_sample import arrivals, durations, order_on_devices, overlaps

__all__ = ["verify_makespan"]


def verify_makespan(problem: Problem, plan: Plan, *, tolerance: float = 1e-9) -> tuple[str, ...]:
    """Check a plan; see :func:`placewright.verify.verify`."""
    shape = wrong_shapes(problem, plan)
    if shape:
        return tuple(shape)
    case = Case(problem, plan, tolerance)
    return (
        *placement(case),
        *(["the plan replicates stages, which only max-load knows"] if plan.replicas else []),
        *durations(case),
        *order_on_devices(case),
        *arrivals(case),
        *_contention(case),
        *_memory(case),
        *_value(case),
    )


def _contention(case: Case) -> Iterator[str]:
    objective = case.problem.objective
    contention = objective.contention if isinstance(objective, Makespan) else "none"
    if contention == "none":
        return
    groups: dict[str, list[tuple[float, float, int]]] = defaultdict(list)
    legs = case.plan.schedule.transfers
    for k, leg in enumerate(legs):
        source, target = case.device(leg.source), case.device(leg.target)
        names = [f"the link from {source} to {target}"]
        if contention == "port":
            names = [f"the port out of {source}", f"the port into {target}"]
        for name in (*names, *(f"the channel {c!r}" for c in case.links.channels(leg.source, leg.target))):
            groups[name].append((leg.start_s, leg.finish_s, k))
    for name, spans in groups.items():
        for a, b in overlaps(spans, case.slack):
            yield f"{case.transfer(legs[a])} and {case.transfer(legs[b])} overlap on {name}"


def _memory(case: Case) -> Iterator[str]:
    """At each instant what operators hold and live tensors fit in memory less reserve; spans are half-open."""
    graph, devices = case.problem.graph, case.problem.cluster.devices
    resident = case.resident
    steps: list[list[tuple[float, int, int]]] = [[] for _ in devices]
    limited, slack = [d.memory_bytes is not None for d in devices], case.slack
    for u, tensor in enumerate(graph.tensors):
        if not tensor.size_bytes:
            continue
        for i, start, end in _lifetimes(case, u):
            if limited[i] and end - slack > start:
                steps[i].append((start, 1, tensor.size_bytes))
                steps[i].append((end - slack, 0, -tensor.size_bytes))
    for i, device in enumerate(devices):
        if device.memory_bytes is None:
            continue
        limit = device.memory_bytes - device.reserve_bytes
        held = peak = resident[i]
        at = 0.0
        for time, _, change in sorted(steps[i]):
            held += change
            if held > peak:
                peak, at = held, time
        if peak > limit:
            yield (
                f"device {device.name!r} holds {peak} B at {at} s ({resident[i]} B of them {case.held_what}), "
                f"but may hold {limit} B"
            )


def _lifetimes(case: Case, u: int) -> Iterator[tuple[int, float, float]]:
    """Device, start and end of every place where a tensor lives."""
    tensor, finish = case.problem.graph.tensors[u], case.finish
    home, end = case.homes[u], finish[tensor.producer]
    for device, readers in case.readers_on[u].items():
        last = max([finish[v] for v in readers])
        if device == home:
            end = max(end, last)
            continue
        for leg in case.legs.get((u, device), ()):
            end = max(end, leg.finish_s)
            yield device, leg.start_s, last
    yield home, case.start[tensor.producer], math.inf if tensor.output else end


def _value(case: Case) -> Iterator[str]:
    if not abs(case.plan.value_s - case.makespan) <= case.slack:
        yield (f"the plan states a value of {case.plan.value_s} s, but its last operator finishes at {case.makespan} s")
