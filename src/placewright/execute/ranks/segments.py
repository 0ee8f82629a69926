"""What each device runs, in the planned order, and what it sends and awaits in between."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.fx import Node

from placewright.capture.torch_program import TorchOperator, TorchProgram
from placewright.errors import InvalidInput
from placewright.plan import Plan
from placewright.problem import Problem

__all__ = ["Message", "Segment", "segments_of"]


@dataclass(frozen=True, slots=True)
class Message:
    """A tensor on its way from the device that made it to one that reads it, at most once to each.

    Attributes
    ----------
    name : str
        Of the fx node.
    tag : int
        Different for every message of a program.
    source, target : int
        Devices.
    shape : tuple of int
    dtype : torch.dtype
    expanded : tuple of int
        Dimensions along which all is equal: they travel once.
    """

    name: str
    tag: int
    source: int
    target: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    expanded: tuple[int, ...] = ()

    @property
    def sent_shape(self) -> tuple[int, ...]:
        """Shape of what travels."""
        return tuple(1 if k in self.expanded else extent for k, extent in enumerate(self.shape))


@dataclass(frozen=True, slots=True)
class Segment:
    """Operators that a device runs without waiting or sending in between.

    Attributes
    ----------
    operators : tuple of TorchOperator
        In an order in which they can run.
    awaits, sends : tuple of Message
        Before the first, and after the last of them.
    """

    operators: tuple[TorchOperator, ...]
    awaits: tuple[Message, ...]
    sends: tuple[Message, ...]


def segments_of(
    program: TorchProgram, places: Sequence[Sequence[int]], problem: Problem, plan: Plan
) -> dict[int, list[Segment]]:
    """Segments of each device, in order.

    All devices take their operators in one common order: a topological one, also of operators that touch the same
    mutated storage, in which of those that can run the one that the plan starts first goes first. So every message is
    sent by an operator that precedes its reader in the common order, and nobody waits for ever.

    Raises
    ------
    InvalidInput
        If a value that is no tensor, or a tensor whose shape depends on data, would have to travel.
    """
    order = _common_order(program, places, problem, plan)
    home = {r: places[k][0] for k, v in enumerate(program.operators) for r in v.results}
    home.update({v.node: places[k][0] for k, v in enumerate(program.operators)})
    on = {r: places[k] for k, v in enumerate(program.operators) for r in (v.node, *v.results)}
    messages: dict[tuple[str, int], Message] = {}
    awaited: list[list[Message]] = []
    for k, i in order:
        mine = []
        for node in dict.fromkeys(program.operators[k].node.all_input_nodes):
            if node in home and i not in on[node] and (node.name, i) not in messages:
                message = _message(node, len(messages), home[node], i)
                messages[node.name, i] = message
                mine.append(message)
        awaited.append(mine)
    leaving: dict[tuple[str, int], list[Message]] = {}
    for message in messages.values():
        leaving.setdefault((message.name, message.source), []).append(message)
    open_: dict[int, tuple[list[TorchOperator], list[Message]]] = {}
    segments: dict[int, list[Segment]] = {}
    for (k, i), mine in zip(order, awaited, strict=True):
        operator = program.operators[k]
        sends = [m for r in dict.fromkeys((operator.node, *operator.results)) for m in leaving.get((r.name, i), ())]
        members, awaits = open_.pop(i, ([], []))
        if mine and members:
            segments.setdefault(i, []).append(Segment(tuple(members), tuple(awaits), ()))
            members, awaits = [], []
        members, awaits = [*members, operator], [*awaits, *mine]
        if sends:
            segments.setdefault(i, []).append(Segment(tuple(members), tuple(awaits), tuple(sends)))
        else:
            open_[i] = members, awaits
    for i, (members, awaits) in open_.items():
        segments.setdefault(i, []).append(Segment(tuple(members), tuple(awaits), ()))
    return dict(sorted(segments.items()))


def _common_order(
    program: TorchProgram, places: Sequence[Sequence[int]], problem: Problem, plan: Plan
) -> list[tuple[int, int]]:
    """Pairs of (operator of the program, device): topological, as planned where that leaves a choice."""
    starts: dict[tuple[str, int], float] = {}
    for k, v in enumerate(problem.graph.operators):
        for part in v.part_names:
            key = part, int(plan.device_of[k])
            starts[key] = min(starts.get(key, float("inf")), float(plan.schedule.start_s[k]))
    index = {r: k for k, v in enumerate(program.operators) for r in (v.node, *v.results)}
    before: list[set[int]] = [{index[n] for n in v.node.all_input_nodes if n in index} for v in program.operators]
    for earlier, later in program.order:
        before[later].add(earlier)
    waits: dict[tuple[int, int], int] = {}
    behind: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for k, devices in enumerate(places):
        for i in devices:
            sources = [(u, i if i in places[u] else places[u][0]) for u in sorted(before[k])]
            waits[k, i] = len(sources)
            for source in sources:
                behind.setdefault(source, []).append((k, i))
    ready = [(starts[program.operators[k].name, i], k, i) for (k, i), count in waits.items() if not count]
    heapq.heapify(ready)
    order: list[tuple[int, int]] = []
    while ready:
        _, k, i = heapq.heappop(ready)
        order.append((k, i))
        for follower, device in behind.get((k, i), ()):
            waits[follower, device] -= 1
            if not waits[follower, device]:
                start = starts[program.operators[follower].name, device]
                heapq.heappush(ready, (start, follower, device))
    return order


def _message(node: Node, tag: int, source: int, target: int) -> Message:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        raise InvalidInput(
            f"{node.name!r} is {type(value).__name__}, not a tensor, and would have to travel between devices; place "
            "its operator and the operators that read it together"
        )
    if not all(isinstance(extent, int) for extent in value.shape):
        raise InvalidInput(
            f"tensor {node.name!r} has a shape that depends on data ({tuple(value.shape)}), so the receiver can't make "
            "room for it; place its operator and the operators that read it together"
        )
    expanded = [k for k, stride in enumerate(value.stride()) if stride == 0 and value.shape[k] > 1]
    return Message(node.name, tag, source, target, tuple(value.shape), value.dtype, tuple(expanded))
