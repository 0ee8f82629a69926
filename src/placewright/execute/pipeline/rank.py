"""One rank of a pipeline: it takes the actions of its list one after the other, forward and backward."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from placewright.capture.torch_program import TorchProgram
from placewright.errors import ExecutionError
from placewright.execute.pipeline.orders import Action, most_in_flight
from placewright.execute.pipeline.parts import Parts, parts_of
from placewright.execute.pipeline.routes import Route
from placewright.execute.pipeline.train_weights import TrainedWeights
from placewright.execute.pipeline.transport import Pending, Transport
from placewright.execute.ranks.doing import DOING
from placewright.execute.ranks.modules import called
from placewright.execute.ranks.segments import Message
from placewright.execute.ranks.values import free_values, packed, unpacked
from placewright.host import rest

__all__ = ["Loss", "Passed", "PipelineRank"]

Loss = Callable[[int, torch.Tensor, int], torch.Tensor | None]
"""From the position of an output, its value and the number of the sample to its part of the loss, if it has one."""

LARGEST_TAG = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Passed:
    """What a rank has after all samples have passed.

    Attributes
    ----------
    outputs : dict of int to dict of int to tensor
        Of each sample those outputs that this rank made, by their position; empty unless they were to be kept.
    losses : dict of int to float
        Of each sample what this rank's outputs add to its loss.
    ended_s : dict of int to float
        When this rank ended its last step of each sample, by ``time.monotonic``.
    began_s, busy_s : float
        Begin of the first action; seconds of computing.
    most_kept : int
        Most samples that had begun here and not ended at a time.
    """

    outputs: dict[int, dict[int, torch.Tensor]]
    losses: dict[int, float]
    ended_s: dict[int, float]
    began_s: float
    busy_s: float
    most_kept: int


@dataclass(slots=True)
class _Sample:
    """What a rank has of one sample."""

    parts: Parts
    tags: int
    inputs: Mapping[str, Any]
    receives: dict[int, tuple[Pending | None, torch.Tensor]]
    at: dict[str, Any] = field(default_factory=dict)
    made: dict[int, list[tuple[str, torch.Tensor]]] = field(default_factory=dict)
    gradients: dict[tuple[int, int], tuple[Pending, torch.Tensor]] | None = None
    sent: list[tuple[Pending, torch.Tensor]] = field(default_factory=list)


class PipelineRank:
    """The steps of one device, for any number of samples.

    Parameters
    ----------
    program : TorchProgram
    routes : sequence of Route
    device : int
    name : str
        Of the device.
    rank_of : mapping of int to int
        Rank of each device.
    transport : Transport
    held : mapping of str to value
        Weights and folded results that this device reads, by the name of their fx node.
    inputs : sequence of mapping of str to value
        Of each sample the network's inputs, on every rank alike.
    place : torch.device
    pace : float
        Share of the time that this rank may compute for.
    trained : TrainedWeights, optional
        With them steps are recorded for backward ones. A value that a step leaves for later ones, or receives, is a
        leaf: its gradient is what all later steps here, and the devices that it was sent to, add up to.
    tracked : collection of str
        Values that a gradient passes.
    loss : callable, optional
        Needed to train; the gradient is that of the mean over all samples.
    """

    def __init__(
        self,
        program: TorchProgram,
        routes: Sequence[Route],
        device: int,
        name: str,
        rank_of: Mapping[int, int],
        transport: Transport,
        held: Mapping[str, Any],
        inputs: Sequence[Mapping[str, Any]],
        place: torch.device,
        *,
        pace: float = 1.0,
        trained: TrainedWeights | None = None,
        tracked: Collection[str] = (),
        loss: Loss | None = None,
    ) -> None:
        self._routes, self._name, self._rank_of, self._transport = routes, name, rank_of, transport
        self._place, self._pace, self._loss, self._inputs = place, pace, loss, inputs
        self._held = held if trained is None else trained.constants
        self._trained, self._tracked = trained, frozenset(tracked) if trained is not None else frozenset()
        self._free = free_values(program, inputs[0], place)
        self._parts = [parts_of(program, r, device, place, self._held, self._tracked) for r in routes]
        self._offsets = [sum(r.messages for r in routes[:k]) for k in range(len(routes))]
        self._messages = sum(r.messages for r in routes)
        written = {s for row in program.aliases.writes.values() for s in row}
        storage_of = {n.name: s for n, s in program.aliases.storage_of.items()}
        self._copied = {n for n in program.inputs if storage_of.get(n) in written}

    def run(self, actions: Sequence[Action], dealt: Sequence[int], *, keep: bool = False, first: int = 0) -> Passed:
        """Take all actions; every rank must do so with its own of the same order.

        Parameters
        ----------
        actions : sequence of Action
        dealt : sequence of int
            Route of each sample.
        keep : bool
            Keep the outputs.
        first : int
            Number that the first sample has among all inputs.

        Raises
        ------
        ExecutionError
            If an operator fails.
        """
        samples: dict[int, _Sample] = {}
        outputs: dict[int, dict[int, torch.Tensor]] = {}
        losses, ended = dict[int, float](), dict[int, float]()
        began, busy = time.monotonic(), 0.0
        share = 1.0 / max(1, len(dealt))
        for action in actions:
            if action.kind == "open":
                samples[action.sample] = self._open(action.sample, dealt[action.sample], first)
                continue
            sample = samples[action.sample]
            if action.kind == "settle":
                if keep:
                    outputs[action.sample] = {k: _value_of(sample, n) for k, n in sample.parts.outputs.items()}
                for pending, _ in sample.sent:
                    pending.wait()
                del samples[action.sample]
                continue
            k = self._routes[dealt[action.sample]].where[action.step]
            if action.kind == "forward":
                busy += self._forward(sample, k)
                if self._loss is not None:
                    part = self._losses(sample, k, action.sample, share)
                    losses[action.sample] = losses.get(action.sample, 0.0) + part
            else:
                busy += self._backward(sample, k)
            ended[action.sample] = time.monotonic()
        DOING.now("rests")
        return Passed(outputs, losses, ended, began, busy, most_in_flight(actions))

    def _open(self, number: int, route: int, first: int) -> _Sample:
        parts = self._parts[route]
        around = max(1, LARGEST_TAG // max(1, 2 * self._messages) - 1)
        tags = (number % around) * 2 * self._messages + self._offsets[route]
        receives: dict[int, tuple[Pending | None, torch.Tensor]] = {}
        for message in (m for s in parts.segments for m in s.awaits):
            count = torch.Size(message.sent_shape).numel() * message.dtype.itemsize
            buffer = torch.empty(count, dtype=torch.uint8)
            source = self._rank_of[message.source]
            pending = self._transport.receive(buffer, source, tags + message.tag) if count else None
            receives[message.tag] = pending, buffer
        given = self._inputs[first + number]
        inputs = {n: v.clone() if n in self._copied and isinstance(v, torch.Tensor) else v for n, v in given.items()}
        return _Sample(parts, tags, inputs, receives)

    def _forward(self, sample: _Sample, k: int) -> float:
        """Run one step; gives the seconds that it computed for."""
        segment, module = sample.parts.segments[k], sample.parts.modules[k]
        for message in segment.awaits:
            pending, buffer = sample.receives.pop(message.tag)
            if pending is not None:
                DOING.now("waits", message.name, self._rank_of[message.source])
                pending.wait()
            value = unpacked(buffer, message, self._place)
            sample.at[message.name] = value.requires_grad_() if message.name in self._tracked else value
        DOING.now("computes", module.operators[0])
        start = time.monotonic()
        with torch.set_grad_enabled(self._trained is not None):
            arguments = [self._value(name, sample) for name in module.inputs]
            for n, name in enumerate(module.inputs):
                if name in sample.parts.cloned[k]:
                    arguments[n] = arguments[n].clone()
            results = called(module, arguments, self._name)
        del arguments
        for name, result in zip(module.outputs, results, strict=True):
            if isinstance(result, torch.Tensor) and result.requires_grad:
                sample.made.setdefault(k, []).append((name, result))
                sample.at[name] = result.detach().requires_grad_()
            else:
                sample.at[name] = result
        del results
        if self._pace < 1.0:
            rest(start, self._pace)
        seconds = time.monotonic() - start
        for message in segment.sends:
            content = packed(sample.at[message.name], message)
            if content.numel():
                request = self._transport.send(content, self._rank_of[message.target], sample.tags + message.tag)
                sample.sent.append((request, content))
        for name in sample.parts.last[k]:
            if name not in self._tracked:
                sample.at.pop(name, None)
        return seconds

    def _losses(self, sample: _Sample, k: int, number: int, share: float) -> float:
        """Add up what the outputs of a step are to the loss, and leave their gradients with them."""
        assert self._loss is not None
        total = 0.0
        for position, name in sample.parts.outputs.items():
            if name not in sample.parts.modules[k].outputs or not isinstance(sample.at[name], torch.Tensor):
                continue
            with torch.set_grad_enabled(self._trained is not None):
                part = self._loss(position, sample.at[name], number)
            if part is not None:
                total += float(part.detach())
                if part.requires_grad:
                    (part * share).backward()  # type: ignore[no-untyped-call]
        return total

    def _backward(self, sample: _Sample, k: int) -> float:
        if sample.gradients is None:
            sample.gradients = self._gradients_to_come(sample)
        segment = sample.parts.segments[k]
        made = sample.made.pop(k, [])
        came: dict[str, list[torch.Tensor]] = {}
        for message in segment.sends:
            if (message.tag, message.target) in sample.gradients:
                pending, buffer = sample.gradients.pop((message.tag, message.target))
                DOING.now("waits", f"the gradient of {message.name}", self._rank_of[message.target])
                pending.wait()
                came.setdefault(message.name, []).append(buffer.view(message.dtype).reshape(message.shape))
        DOING.now("computes", sample.parts.modules[k].operators[0])
        start = time.monotonic()
        tensors, gradients = [], []
        for name, result in made:
            own = sample.at.pop(name).grad
            parts = [*((own,) if own is not None else ()), *(g.to(self._place) for g in came.get(name, ()))]
            if parts:
                tensors.append(result)
                gradients.append(sum(parts[1:], start=parts[0]))
        del made
        if tensors:
            try:
                torch.autograd.backward(tensors, gradients)
            except Exception as error:
                operators = sample.parts.modules[k].operators
                first = (str(error).strip().splitlines() or [type(error).__name__])[0]
                raise ExecutionError(
                    f"the way back through the part of {len(operators)} operators from {operators[0]!r} on "
                    f"{self._name!r} failed: {first}"
                ) from error
        if self._pace < 1.0:
            rest(start, self._pace)
        seconds = time.monotonic() - start
        for message in segment.awaits:
            if message.name in self._tracked:
                self._send_gradient(sample, message)
        return seconds

    def _gradients_to_come(self, sample: _Sample) -> dict[tuple[int, int], tuple[Pending, torch.Tensor]]:
        found = {}
        for message in (m for s in sample.parts.segments for m in s.sends):
            count = torch.Size(message.shape).numel() * message.dtype.itemsize
            if message.name in self._tracked and count:
                buffer = torch.empty(count, dtype=torch.uint8)
                tag = sample.tags + self._messages + message.tag
                pending = self._transport.receive(buffer, self._rank_of[message.target], tag)
                found[message.tag, message.target] = pending, buffer
        return found

    def _send_gradient(self, sample: _Sample, message: Message) -> None:
        leaf = sample.at.pop(message.name)
        gradient = leaf.grad if leaf.grad is not None else torch.zeros_like(leaf)
        content = gradient.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8)
        if content.numel():
            tag = sample.tags + self._messages + message.tag
            request = self._transport.send(content, self._rank_of[message.source], tag)
            sample.sent.append((request, content))

    def _value(self, name: str, sample: _Sample) -> Any:
        if name in sample.at:
            return sample.at[name]
        if self._trained is not None and name in self._trained:
            return self._trained.value(name)
        return next(known[name] for known in (self._free, sample.inputs, self._held) if name in known)


def _value_of(sample: _Sample, name: str) -> Any:
    value = sample.at.get(name)
    return value.detach() if isinstance(value, torch.Tensor) else value
