"""A problem and a plan side by side, and what no plan may do: wrong shapes, and devices that are not allowed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

from placewright.graph import Operator
from placewright.plan import Plan, Transfer
from placewright.problem import Problem, Wish
from placewright.verify.links import Links

__all__ = ["SMALLEST_SCALE_S", "Case", "allowed_places", "held_by", "placement", "wrong_shapes"]

SMALLEST_SCALE_S = 1e-12
"""Makespans below this are compared as if they were this long."""


@dataclass(frozen=True)
class Case:
    """A problem and a plan with the plan's numbers as Python lists."""

    problem: Problem
    plan: Plan
    tolerance: float

    @cached_property
    def device_of(self) -> list[int]:
        """Device of each operator."""
        return list(self.plan.device_of.tolist())

    @cached_property
    def start(self) -> list[float]:
        """Start of each operator in seconds."""
        return list(self.plan.schedule.start_s.tolist())

    @cached_property
    def finish(self) -> list[float]:
        """Finish of each operator in seconds."""
        return list(self.plan.schedule.finish_s.tolist())

    @cached_property
    def makespan(self) -> float:
        """Finish of the last operator in seconds."""
        return max(self.finish, default=0.0)

    @cached_property
    def slack(self) -> float:
        """Seconds by which times of the schedule may differ."""
        return self.tolerance * max(SMALLEST_SCALE_S, self.makespan)

    @cached_property
    def links(self) -> Links:
        """The link rules by pair of devices."""
        return Links(self.problem.cluster)

    @cached_property
    def readers_on(self) -> list[dict[int, list[int]]]:
        """For every tensor: device -> its readers there."""
        rows: list[dict[int, list[int]]] = []
        device_of = self.device_of
        for tensor in self.problem.graph.tensors:
            row: dict[int, list[int]] = {}
            for v in tensor.readers:
                row.setdefault(device_of[v], []).append(v)
            rows.append(row)
        return rows

    @cached_property
    def homes(self) -> list[int]:
        """For every tensor the device that it is made on."""
        return [self.device_of[tensor.producer] for tensor in self.problem.graph.tensors]

    @cached_property
    def legs(self) -> dict[tuple[int, int], list[Transfer]]:
        """(tensor, target) -> the plan's transfers that leave the tensor's producer for the target."""
        found: dict[tuple[int, int], list[Transfer]] = defaultdict(list)
        homes = self.homes
        for leg in self.plan.schedule.transfers:
            if leg.source == homes[leg.tensor]:
                found[leg.tensor, leg.target].append(leg)
        return dict(found)

    @cached_property
    def resident(self) -> list[int]:
        """Bytes on each device that operators hold for as long as the plan runs."""
        held = [0] * len(self.problem.cluster)
        for v, i in enumerate(self.device_of):
            held[i] += held_by(self.problem.graph.operators[v])
        return held

    @cached_property
    def held_what(self) -> str:
        """What operators hold for as long as the plan runs, in words."""
        training = any(v.gradient_bytes or v.optimizer_bytes or v.saved_bytes for v in self.problem.graph.operators)
        return "weights, KV cache and what training keeps" if training else "weights and KV cache"

    def home(self, tensor: int) -> int:
        """Device that a tensor is made on."""
        return self.homes[tensor]

    def wishes_against(self, v: int, i: int) -> Iterator[Wish]:
        """Wishes that keep an operator off a device."""
        operator = self.problem.graph.operators[v]
        for wish in self.problem.wishes:
            there = fnmatchcase(self.problem.cluster.devices[i].name, wish.device)
            if there == wish.forbid and any(
                fnmatchcase(name, wish.pattern) for name in (operator.name, *operator.parts)
            ):
                yield wish

    def may_run(self, v: int, i: int) -> bool:
        """Whether a device can run an operator, and no wish is against it."""
        return math.isfinite(self.problem.times.processing_s[v, i]) and not any(self.wishes_against(v, i))

    def operator(self, v: int) -> str:
        """Name an operator in a line."""
        return f"operator {self.problem.graph.operators[v].name!r}"

    def device(self, i: int) -> str:
        """Name a device in a line."""
        return repr(self.problem.cluster.devices[i].name)

    def transfer(self, leg: Transfer) -> str:
        """Name a transfer in a line."""
        tensor = self.problem.graph.tensors[leg.tensor].name
        return f"transfer of {tensor!r} from {self.device(leg.source)} to {self.device(leg.target)}"


def held_by(v: Operator) -> int:
    """Bytes that an operator holds for as long as the plan runs."""
    return v.weight_bytes + v.kv_cache_bytes + v.gradient_bytes + v.optimizer_bytes + v.saved_bytes


def wrong_shapes(problem: Problem, plan: Plan) -> list[str]:
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


def allowed_places(case: Case) -> Iterator[str]:
    """Every operator's device can run it and is wished for."""
    seconds, wished = case.problem.times.processing_s.item, bool(case.problem.wishes)
    for v, i in enumerate(case.device_of):
        if not math.isfinite(seconds(v, i)):
            yield f"{case.operator(v)} is on {case.device(i)}, which can't run it"
        for wish in case.wishes_against(v, i) if wished else ():
            verb = "forbids it" if wish.forbid else "pins it elsewhere"
            yield f"{case.operator(v)} is on {case.device(i)}, but {wish.pattern}={wish.device} {verb}"


def placement(case: Case) -> Iterator[str]:
    """Every operator's device can run it and is wished for; colocation classes stay together."""
    yield from allowed_places(case)
    for members in case.problem.graph.colocation:
        used = sorted({case.device_of[v] for v in members})
        if len(used) > 1:
            where = ", ".join(case.device(i) for i in used)
            yield f"{case.operator(members[0])} and its colocation class of {len(members)} are on {where}"
