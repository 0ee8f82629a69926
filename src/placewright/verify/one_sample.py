"""Whether the schedule of one sample that has the cluster for itself can happen: durations, order, arrivals."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

from placewright.plan import Transfer
from placewright.verify.case import Case

__all__ = ["arrivals", "durations", "order_on_devices", "overlaps"]


def durations(case: Case) -> Iterator[str]:
    """Every operator starts at 0 or later and takes its processing time and what cuts cost."""
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


def order_on_devices(case: Case) -> Iterator[str]:
    """Operators of one device don't overlap; one that takes no time may sit where another starts or finishes."""
    on_device: dict[int, list[int]] = defaultdict(list)
    for v, i in enumerate(case.device_of):
        on_device[i].append(v)
    for i, operators in sorted(on_device.items()):
        long = [v for v in operators if case.finish[v] - case.start[v] > case.slack]
        for a, b in overlaps([(case.start[v], case.finish[v], v) for v in long], case.slack):
            yield f"{case.operator(a)} and {case.operator(b)} overlap on {case.device(i)}"
        long.sort(key=lambda v: case.start[v])
        starts = [case.start[v] for v in long]
        for v in operators:
            if case.finish[v] - case.start[v] > case.slack:
                continue
            before = bisect_left(starts, case.start[v] - case.slack)
            if before and case.finish[long[before - 1]] > case.start[v] + case.slack:
                yield f"{case.operator(long[before - 1])} and {case.operator(v)} overlap on {case.device(i)}"


def arrivals(case: Case) -> Iterator[str]:
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


def _leg(case: Case, leg: Transfer, needed: bool) -> Iterator[str]:
    tensor = case.problem.graph.tensors[leg.tensor]
    if leg.source != case.home(leg.tensor):
        yield f"{case.transfer(leg)}: the tensor is made on {case.device(case.home(leg.tensor))}"
    if not needed:
        yield f"{case.transfer(leg)}: nothing on {case.device(leg.target)} needs it"
    if leg.start_s < case.finish[tensor.producer] - case.slack:
        yield f"{case.transfer(leg)} starts at {leg.start_s} s, before it is made at {case.finish[tensor.producer]} s"
    seconds = case.links.seconds(case.problem, leg.tensor, leg.source, leg.target)
    if not math.isfinite(seconds):
        yield f"{case.transfer(leg)}: there is no link between them"
    elif abs(leg.finish_s - leg.start_s - seconds) > case.slack:
        yield f"{case.transfer(leg)} takes {leg.finish_s - leg.start_s} s, but its time is {seconds} s"


def overlaps(spans: list[tuple[float, float, int]], slack: float) -> Iterator[tuple[int, int]]:
    """Yield pairs of spans (start, finish, key) that share more than ``slack``: each late one with one before it."""
    latest, holder = -math.inf, -1
    for start, finish, key in sorted(spans):
        if min(latest, finish) - start > slack:
            yield holder, key
        if finish > latest:
            latest, holder = finish, key
