"""One rank of a plan's run: it runs its device's segments, and sends each tensor as soon as it is there."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.fx import Node

from placewright.capture.torch_program import TorchProgram
from placewright.execute.ranks.doing import DOING
from placewright.execute.ranks.modules import called, last_reads, modules_of
from placewright.execute.ranks.segments import Message, Segment
from placewright.execute.ranks.values import free_values, packed, unpacked
from placewright.execute.torch.split import Observe
from placewright.host import rest

__all__ = ["ARRIVED", "Outcome", "RankRun", "Step"]

ARRIVED = "arrived: "
"""What a name begins with where a value is observed that has arrived."""


class Step(NamedTuple):
    """When a rank did what of a segment, by its ``time.monotonic``.

    ``waits`` has when it began to wait for each message, and when it had it; ``marks`` are before the first operator
    and after each; ``sends`` has when a message was packed, sent, and off the rank's hands.
    """

    waits: tuple[tuple[float, float], ...]
    start_s: float
    marks: tuple[float, ...]
    end_s: float
    sends: tuple[tuple[float, float, float], ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a rank has after a run.

    Attributes
    ----------
    outputs : dict of int to tensor or number
        Those of the network's outputs that this rank made, by their position; on rank 0 also those that nobody makes.
    began_s, ended_s : float
        On the clock of ``time.monotonic``, which processes of one host share.
    steps : tuple of Step
        One for each segment.
    """

    outputs: dict[int, Any]
    began_s: float
    ended_s: float
    steps: tuple[Step, ...]


class RankRun:
    """The segments of one device as modules, run again and again.

    Parameters
    ----------
    program : TorchProgram
    segments : mapping of int to sequence of Segment
        Of every device.
    rank_of : mapping of int to int
        Rank that runs each device.
    device : int
        The one of this rank.
    name : str
        Its name.
    held : dict of str to tensor
        Weights and folded results that this device reads, by the name of their fx node.
    inputs : dict of str to value
        The network's inputs by the name of their fx node, on every rank alike.
    place : torch.device
    pace : float
        Share of the time that this rank may compute for: it rests after each segment.

    Attributes
    ----------
    segments : list of Segment
        Of this device.
    inputs : dict of str to value
        May be changed between two runs, on every rank alike, for values of the same shapes and types.
    """

    def __init__(
        self,
        program: TorchProgram,
        segments: Mapping[int, Sequence[Segment]],
        rank_of: Mapping[int, int],
        device: int,
        name: str,
        held: dict[str, Any],
        inputs: Mapping[str, Any],
        place: torch.device,
        pace: float = 1.0,
    ) -> None:
        self._program, self._rank_of, self._name, self._place, self._pace = program, rank_of, name, place, pace
        self.inputs = dict(inputs)
        self._held = held
        self._free = free_values(program, inputs, place)
        self.segments = list(segments.get(device, ()))
        # An input, a weight, a constant or a size that is returned comes from rank 0.
        first = min(rank_of, key=rank_of.__getitem__)
        self._outputs = {
            k: value for k, value in enumerate(program.outputs) if _maker(segments, value, first) == device
        }
        returned = {value.name for value in self._outputs.values() if isinstance(value, Node)}
        self._modules = modules_of(self.segments, device, place, held, returned, clocked=True)
        self._last = last_reads(self._modules, self.segments, returned)

    def run(self, observe: Observe | None = None) -> Outcome:
        """Run one sample. Every rank must call it.

        Parameters
        ----------
        observe : callable, optional
            Called with the name of each fx node, and its value as it is when it has been computed; of a value that has
            arrived the name begins with ``ARRIVED``.
        """
        clock, at, steps = time.monotonic, dict[str, Any](), list[Step]()
        pending: list[tuple[Any, torch.Tensor]] = []
        began = clock()
        receives = {m.tag: self._receive(m) for s in self.segments for m in s.awaits}
        for k, (segment, module) in enumerate(zip(self.segments, self._modules, strict=True)):
            waits = []
            for message in segment.awaits:
                request, buffer = receives.pop(message.tag)
                before = clock()
                DOING.now("waits", message.name, self._rank_of[message.source], before)
                if request is not None:
                    request.wait()
                waits.append((before, clock()))
                at[message.name] = unpacked(buffer, message, self._place)
                if observe is not None:
                    observe(ARRIVED + message.name, at[message.name])
            start = clock()
            DOING.now("computes", module.operators[0], since_s=start)
            arguments = [self._value(name, at) for name in module.inputs]
            *results, marks = called(module, arguments, self._name, observe)
            del arguments
            at.update(zip(module.outputs, results, strict=True))
            del results
            if self._pace < 1.0:
                rest(start, self._pace)
            end = clock()
            sends = []
            for message in segment.sends:
                before = clock()
                sent = packed(at[message.name], message)
                ready = clock()
                if sent.numel():
                    request = dist.isend(sent, self._rank_of[message.target], tag=message.tag)
                    pending.append((request, sent))
                sends.append((before, ready, clock()))
            steps.append(Step(tuple(waits), start, marks, end, tuple(sends)))
            for name in self._last[k]:
                at.pop(name, None)
        ended = clock()
        DOING.now("rests", since_s=ended)
        for request, _ in pending:
            request.wait()
        outputs = {k: self._value(v.name, at) if isinstance(v, Node) else v for k, v in self._outputs.items()}
        return Outcome(outputs, began, ended, tuple(steps))

    def _receive(self, message: Message) -> tuple[Any, torch.Tensor]:
        count = torch.Size(message.sent_shape).numel() * message.dtype.itemsize
        buffer = torch.empty(count, dtype=torch.uint8)
        return (dist.irecv(buffer, self._rank_of[message.source], tag=message.tag) if count else None), buffer

    def _value(self, name: str, at: Mapping[str, Any]) -> Any:
        if name in at:
            return at[name]
        return next(known[name] for known in (self._free, self.inputs, self._held) if name in known)


def _maker(segments: Mapping[int, Sequence[Segment]], value: object, otherwise: int) -> int:
    """Lowest device that makes a node's value: it returns it."""
    makers = (i for i, row in segments.items() if any(value in (v.node, *v.results) for s in row for v in s.operators))
    return min(makers, default=otherwise)
