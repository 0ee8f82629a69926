"""The checker of plans for the makespan: durations, order, arrivals, contention and live memory."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

from placewright.cluster import Cluster, Link
from placewright.objective import Makespan
from placewright.plan import Plan, Transfer
from placewright.problem import Problem

__all__ = ["verify_makespan"]

SMALLEST_SCALE_S = 1e-12
"""Makespans below this are compared as if they were this long."""


def verify_makespan(problem: Problem, plan: Plan, *, tolerance: float = 1e-9) -> tuple[str, ...]:
    """Check a plan; see :func:`placewright.verify.verify`."""
    shape = _wrong_shapes(problem, plan)
    if shape:
        return tuple(shape)
    case = _Case(problem, plan, tolerance)
    return (
        *_placement(case),
        *_durations(case),
        *_order_on_devices(case),
        *_arrivals(case),
        *_contention(case),
        *_memory(case),
        *_value(case),
    )


@dataclass(frozen=True)
class _Case:
    """A problem and a plan with the plan's numbers as Python lists."""

    problem: Problem
    plan: Plan
    tolerance: float

    @cached_property
    def device_of(self) -> list[int]:
        return [int(i) for i in self.plan.device_of]

    @cached_property
    def start(self) -> list[float]:
        return [float(t) for t in self.plan.schedule.start_s]

    @cached_property
    def finish(self) -> list[float]:
        return [float(t) for t in self.plan.schedule.finish_s]

    @cached_property
    def makespan(self) -> float:
        return max(self.finish, default=0.0)

    @cached_property
    def slack(self) -> float:
        return self.tolerance * max(SMALLEST_SCALE_S, self.makespan)

    @cached_property
    def links(self) -> _Links:
        return _Links(self.problem.cluster)

    @cached_property
    def readers_on(self) -> list[dict[int, list[int]]]:
        """For every tensor: device -> its readers there."""
        rows: list[dict[int, list[int]]] = []
        for tensor in self.problem.graph.tensors:
            row: dict[int, list[int]] = defaultdict(list)
            for v in tensor.readers:
                row[self.device_of[v]].append(v)
            rows.append(dict(row))
        return rows

    @cached_property
    def legs(self) -> dict[tuple[int, int], list[Transfer]]:
        """(tensor, target) -> the plan's transfers that leave the tensor's producer for the target."""
        found: dict[tuple[int, int], list[Transfer]] = defaultdict(list)
        for leg in self.plan.schedule.transfers:
            if leg.source == self.home(leg.tensor):
                found[leg.tensor, leg.target].append(leg)
        return dict(found)

    def home(self, tensor: int) -> int:
        return self.device_of[self.problem.graph.tensors[tensor].producer]

    def operator(self, v: int) -> str:
        return f"operator {self.problem.graph.operators[v].name!r}"

    def device(self, i: int) -> str:
        return repr(self.problem.cluster.devices[i].name)

    def transfer(self, leg: Transfer) -> str:
        tensor = self.problem.graph.tensors[leg.tensor].name
        return f"transfer of {tensor!r} from {self.device(leg.source)} to {self.device(leg.target)}"


def _wrong_shapes(problem: Problem, plan: Plan) -> list[str]:
    """Violations that leave nothing else to be checked."""
    n, D, T = len(problem.graph), len(problem.cluster), len(problem.graph.tensors)
    schedule = plan.schedule
    found = [
        f"the plan gives {what} for {len(given)} operators, but the problem has {n}"
        for what, given in (
            ("devices", plan.device_of),
            ("starts", schedule.start_s),
            ("finishes", schedule.finish_s),
        )
        if given.shape != (n,)
    ]
    if found:
        return found
    for v, i in enumerate(plan.device_of.tolist()):
        if not 0 <= i < D:
            found.append(f"operator {problem.graph.operators[v].name!r} is on device {i}; there are only 0..{D - 1}")
    for v, (start, finish) in enumerate(zip(schedule.start_s.tolist(), schedule.finish_s.tolist(), strict=True)):
        if not (math.isfinite(start) and math.isfinite(finish)):
            found.append(f"operator {problem.graph.operators[v].name!r} runs from {start} s to {finish} s")
    for leg in schedule.transfers:
        if not (0 <= leg.tensor < T and 0 <= leg.source < D and 0 <= leg.target < D):
            found.append(f"{leg} names a tensor outside 0..{T - 1} or a device outside 0..{D - 1}")
        elif not (math.isfinite(leg.start_s) and math.isfinite(leg.finish_s)):
            found.append(f"transfer of {problem.graph.tensors[leg.tensor].name!r} has no finite times: {leg}")
    return found


def _placement(case: _Case) -> Iterator[str]:
    graph, devices = case.problem.graph, case.problem.cluster.devices
    for v, i in enumerate(case.device_of):
        if not math.isfinite(case.problem.times.processing_s[v, i]):
            yield f"{case.operator(v)} is on {case.device(i)}, which can't run it"
        names = (graph.operators[v].name, *graph.operators[v].parts)
        for wish in case.problem.wishes:
            there = fnmatchcase(devices[i].name, wish.device)
            if there == wish.forbid and any(fnmatchcase(name, wish.pattern) for name in names):
                verb = "forbids it" if wish.forbid else "pins it elsewhere"
                yield f"{case.operator(v)} is on {case.device(i)}, but {wish.pattern}={wish.device} {verb}"
    for members in graph.colocation:
        used = sorted({case.device_of[v] for v in members})
        if len(used) > 1:
            where = ", ".join(case.device(i) for i in used)
            yield f"{case.operator(members[0])} and its colocation class of {len(members)} are on {where}"


def _durations(case: _Case) -> Iterator[str]:
    reads_elsewhere, read_elsewhere = set(), set()
    for u, tensor in enumerate(case.problem.graph.tensors):
        for device, readers in case.readers_on[u].items():
            if device != case.home(u):
                reads_elsewhere.update(readers)
                read_elsewhere.add(tensor.producer)
    for v, i in enumerate(case.device_of):
        cut = case.problem.times.cut_s
        overhead = case.problem.cluster.devices[i].cut_overhead_s if cut is None else float(cut[v, i])
        duration = float(case.problem.times.processing_s[v, i])
        duration += overhead * ((v in reads_elsewhere) + (v in read_elsewhere))
        if case.start[v] < -case.slack:
            yield f"{case.operator(v)} starts at {case.start[v]} s, before 0"
        if math.isfinite(duration) and abs(case.finish[v] - case.start[v] - duration) > case.slack:
            yield (
                f"{case.operator(v)} takes {case.finish[v] - case.start[v]} s on {case.device(i)}, "
                f"but its time there is {duration} s"
            )


def _order_on_devices(case: _Case) -> Iterator[str]:
    """Operators of one device don't overlap; one that takes no time may sit where another starts or finishes."""
    on_device: dict[int, list[int]] = defaultdict(list)
    for v, i in enumerate(case.device_of):
        on_device[i].append(v)
    for i, operators in sorted(on_device.items()):
        long = [v for v in operators if case.finish[v] - case.start[v] > case.slack]
        for a, b in _overlaps([(case.start[v], case.finish[v], v) for v in long], case.slack):
            yield f"{case.operator(a)} and {case.operator(b)} overlap on {case.device(i)}"
        long.sort(key=lambda v: case.start[v])
        starts = [case.start[v] for v in long]
        for v in operators:
            if case.finish[v] - case.start[v] > case.slack:
                continue
            before = bisect_left(starts, case.start[v] - case.slack)
            if before and case.finish[long[before - 1]] > case.start[v] + case.slack:
                yield f"{case.operator(long[before - 1])} and {case.operator(v)} overlap on {case.device(i)}"


def _arrivals(case: _Case) -> Iterator[str]:
    """Every tensor is where it is read, in time, by exactly the transfers that this takes."""
    needed = set()
    for u, tensor in enumerate(case.problem.graph.tensors):
        made = case.finish[tensor.producer]
        for device, readers in sorted(case.readers_on[u].items()):
            here, word = made, "made"
            if device != case.home(u):
                needed.add((u, device))
                legs = case.legs.get((u, device), [])
                if len(legs) != 1:
                    yield (
                        f"tensor {tensor.name!r} is read on {case.device(device)} and made on "
                        f"{case.device(case.home(u))}; that takes one transfer, the plan has {len(legs)}"
                    )
                here, word = min((leg.finish_s for leg in legs), default=math.inf), "there"
                if not legs:
                    continue
            for v in readers:
                if case.start[v] < here - case.slack:
                    yield (
                        f"{case.operator(v)} starts at {case.start[v]} s, before its input {tensor.name!r} "
                        f"is {word} at {here} s"
                    )
    for leg in case.plan.schedule.transfers:
        yield from _leg(case, leg, (leg.tensor, leg.target) in needed)


def _leg(case: _Case, leg: Transfer, needed: bool) -> Iterator[str]:
    tensor = case.problem.graph.tensors[leg.tensor]
    if leg.source != case.home(leg.tensor):
        yield f"{case.transfer(leg)}: the tensor is made on {case.device(case.home(leg.tensor))}"
    if not needed:
        yield f"{case.transfer(leg)}: nothing on {case.device(leg.target)} needs it"
    if leg.start_s < case.finish[tensor.producer] - case.slack:
        yield f"{case.transfer(leg)} starts at {leg.start_s} s, before it is made at {case.finish[tensor.producer]} s"
    seconds = case.links.seconds(case.problem, leg)
    if not math.isfinite(seconds):
        yield f"{case.transfer(leg)}: there is no link between them"
    elif abs(leg.finish_s - leg.start_s - seconds) > case.slack:
        yield f"{case.transfer(leg)} takes {leg.finish_s - leg.start_s} s, but its time is {seconds} s"


def _contention(case: _Case) -> Iterator[str]:
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
        for a, b in _overlaps(spans, case.slack):
            yield f"{case.transfer(legs[a])} and {case.transfer(legs[b])} overlap on {name}"


def _overlaps(spans: list[tuple[float, float, int]], slack: float) -> Iterator[tuple[int, int]]:
    """Yield pairs of spans (start, finish, key) that share more than ``slack``: each late one with one before it."""
    latest, holder = -math.inf, -1
    for start, finish, key in sorted(spans):
        if min(latest, finish) - start > slack:
            yield holder, key
        if finish > latest:
            latest, holder = finish, key


def _memory(case: _Case) -> Iterator[str]:
    """At each instant weights, KV cache and live tensors fit in memory less reserve; spans are half-open."""
    graph, devices = case.problem.graph, case.problem.cluster.devices
    resident = [0] * len(devices)
    for v, i in enumerate(case.device_of):
        resident[i] += graph.operators[v].weight_bytes + graph.operators[v].kv_cache_bytes
    steps: list[list[tuple[float, int, int]]] = [[] for _ in devices]
    for u, tensor in enumerate(graph.tensors):
        for i, start, end in _lifetimes(case, u):
            if tensor.size_bytes and end - case.slack > start:
                steps[i].append((start, 1, tensor.size_bytes))
                steps[i].append((end - case.slack, 0, -tensor.size_bytes))
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
                f"device {device.name!r} holds {peak} B at {at} s ({resident[i]} B of them weights and KV cache), "
                f"but may hold {limit} B"
            )


def _lifetimes(case: _Case, u: int) -> Iterator[tuple[int, float, float]]:
    """Device, start and end of every place where a tensor lives."""
    tensor = case.problem.graph.tensors[u]
    home, ends = case.home(u), [case.finish[tensor.producer]]
    for device, readers in case.readers_on[u].items():
        last = max(case.finish[v] for v in readers)
        if device == home:
            ends.append(last)
            continue
        for leg in case.legs.get((u, device), []):
            ends.append(leg.finish_s)
            yield device, leg.start_s, last
    yield home, case.start[tensor.producer], math.inf if tensor.output else max(ends)


def _value(case: _Case) -> Iterator[str]:
    if not abs(case.plan.value_s - case.makespan) <= case.slack:
        yield (f"the plan states a value of {case.plan.value_s} s, but its last operator finishes at {case.makespan} s")


class _Links:
    """Link rules of a cluster by what they cover: the last rule of a pair, else the last one of its class."""

    def __init__(self, cluster: Cluster) -> None:
        self.hosts = [d.host for d in cluster.devices]
        self.names = [d.name for d in cluster.devices]
        self.pairs: dict[tuple[str, str], Link] = {}
        self.classes: dict[str, Link] = {}
        for link in cluster.links:
            if link.link_class:
                self.classes[link.link_class] = link
                continue
            self.pairs[link.between] = link
            if not link.one_way:
                self.pairs[link.between[1], link.between[0]] = link

    def between(self, source: int, target: int) -> Link | None:
        pair = self.pairs.get((self.names[source], self.names[target]))
        together = self.hosts[source] == self.hosts[target]
        return pair or self.classes.get("same-host" if together else "between-hosts")

    def seconds(self, problem: Problem, leg: Transfer) -> float:
        """Time of a transfer: the given table, or latency + bytes / bandwidth; ``inf`` where unreachable."""
        if leg.source == leg.target:
            return 0.0
        if problem.times.transfer_s is not None:
            return float(problem.times.transfer_s[leg.tensor, leg.source, leg.target])
        link = self.between(leg.source, leg.target)
        if link is None:
            return math.inf
        return link.latency_s + problem.graph.tensors[leg.tensor].size_bytes / link.bandwidth_bytes_per_s

    def channels(self, source: int, target: int) -> tuple[str, ...]:
        """Names of the channels that a transfer occupies: one a host for a class, at both ends between hosts."""
        link = self.between(source, target) if source != target else None
        if link is None or not link.channel:
            return ()
        if not link.link_class:
            return (link.channel,)
        return tuple(dict.fromkeys(f"{link.channel}@{self.hosts[i]}" for i in (source, target)))
