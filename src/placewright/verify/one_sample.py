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
    slack = case.slack
    reads_elsewhere: set[int] = set()
    read_elsewhere: set[int] = set()
    for tensor, home, readers_on in zip(case.problem.graph.tensors, case.homes, case.readers_on, strict=True):
        for device, readers in readers_on.items():
            if device != home:
                reads_elsewhere.update(readers)
                read_elsewhere.add(tensor.producer)
    seconds, cut = case.problem.times.processing_s.item, case.problem.times.cut_s
    overheads = [d.cut_overhead_s for d in case.problem.cluster.devices]
    for v, (i, start, finish) in enumerate(zip(case.device_of, case.start, case.finish, strict=True)):
        overhead = overheads[i] if cut is None else cut.item(v, i)
        duration = seconds(v, i) + overhead * ((v in reads_elsewhere) + (v in read_elsewhere))
        if start < -slack:
            yield f"{case.operator(v)} starts at {start} s, before 0"
        if math.isfinite(duration) and abs(finish - start - duration) > slack:
            yield (
                f"{case.operator(v)} takes {finish - start} s on {case.device(i)}, but its time there is {duration} s"
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
    starts, finishes, all_legs, slack = case.start, case.finish, case.legs, case.slack
    for u, (tensor, home, readers_on) in enumerate(
        zip(case.problem.graph.tensors, case.homes, case.readers_on, strict=True)
    ):
        made = finishes[tensor.producer]
        for device, readers in sorted(readers_on.items()):
            here, word = made, "made"
            if device != home:
                needed.add((u, device))
                legs = all_legs.get((u, device), [])
                if len(legs) != 1:
                    yield (
                        f"tensor {tensor.name!r} is read on {case.device(device)} and made on "
                        f"{case.device(home)}; that takes one transfer, the plan has {len(legs)}"
                    )
                here, word = min((leg.finish_s for leg in legs), default=math.inf), "there"
                if not legs:
                    continue
            for v in readers:
                if starts[v] < here - slack:
                    yield (
                        f"{case.operator(v)} starts at {starts[v]} s, before its input {tensor.name!r} "
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
