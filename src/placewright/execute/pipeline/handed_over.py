"""Hand a plan that is a plain chain of stages to ``torch.distributed.pipelining``."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.fx import Node

from placewright.capture.torch_program import TorchProgram
from placewright.errors import InvalidInput
from placewright.execute.pipeline.orders import Action, Schedule
from placewright.execute.pipeline.parts import Parts, parts_of, returned_by
from placewright.execute.pipeline.rank import Loss, Passed
from placewright.execute.pipeline.routes import Route
from placewright.execute.pipeline.train_weights import TrainedWeights
from placewright.execute.ranks.segments import Segment
from placewright.execute.ranks.values import free_values
from placewright.host import rest

__all__ = ["TorchChain", "chain_of", "why_no_chain"]


def chain_of(route: Route) -> list[int]:
    """Devices of a route in the order of its steps, each once."""
    return list(dict.fromkeys(step.device for step in route.steps))


def why_no_chain(
    program: TorchProgram, routes: Sequence[Route], tracked: Collection[str], samples: int, schedule: str
) -> str | None:
    """Say why torch's pipelining can't run a plan so, or ``None`` where it can.

    It runs stages one after the other, each on one device: what a stage makes goes to the next one alone, the first
    alone reads the network's inputs, the last alone gives its outputs; and on the way back every tensor between two
    stages needs a gradient.
    """
    if len(routes) > 1:
        return "samples take several ways through the devices"
    (route,) = routes
    chain = chain_of(route)
    if len(chain) < 2:
        return "one device runs all"
    place = {device: k for k, device in enumerate(chain)}
    for message in (m for row in route.segments.values() for s in row for m in s.sends):
        if place[message.target] < place[message.source]:
            return "it comes back to a device"
        if place[message.target] > place[message.source] + 1:
            return f"tensor {message.name!r} skips a stage"
        if schedule != "forward" and message.name not in tracked:
            return f"tensor {message.name!r} between two stages has no gradient"
    for v, devices in zip(program.operators, route.places, strict=True):
        late = next((n.name for n in v.node.all_input_nodes if n.name in program.inputs), None)
        if late is not None and devices != (chain[0],):
            return f"input {late!r} is read after the first stage"
    makers = returned_by(program, route)
    for k, value in enumerate(program.outputs):
        if isinstance(value, Node) and makers.get(k) != chain[-1]:
            return f"output {value.name!r} is not made by the last stage"
    if schedule == "1f1b" and samples < len(chain):
        return f"its 1F1B needs a micro-batch for each of the {len(chain)} stages"
    return None


def _whole_stages(route: Route) -> Route:
    """Run each device's segments as one, which sends at its end: along a chain nobody waits for an earlier send."""
    merged = {
        i: [
            Segment(
                tuple(v for s in row for v in s.operators),
                # Torch knows tensors by their place: sender and receiver list them in one order.
                tuple(sorted((m for s in row for m in s.awaits), key=lambda m: m.tag)),
                tuple(sorted((m for s in row for m in s.sends), key=lambda m: m.tag)),
            )
        ]
        for i, row in route.segments.items()
    }
    return replace(route, segments=merged)


class TorchChain:
    """One rank of a plain chain, run by torch; takes the place of a :class:`PipelineRank`.

    Parameters
    ----------
    program, route
    device : int
    rank_of : mapping of int to int
    held : mapping of str to value
    inputs : sequence of mapping of str to value
    schedule : {"forward", "gpipe", "1f1b"}
    pace : float
        Kept in forward steps.
    trained, tracked, loss
        See :class:`placewright.execute.pipeline.rank.PipelineRank`.

    Raises
    ------
    InvalidInput
        If an input has no dimension along which micro-batches can be joined.
    """

    def __init__(
        self,
        program: TorchProgram,
        route: Route,
        device: int,
        rank_of: Mapping[int, int],
        held: Mapping[str, Any],
        inputs: Sequence[Mapping[str, Any]],
        schedule: Schedule,
        *,
        pace: float = 1.0,
        trained: TrainedWeights | None = None,
        tracked: Collection[str] = (),
        loss: Loss | None = None,
    ) -> None:
        place, chain, route = torch.device("cpu"), chain_of(route), _whole_stages(route)
        constants = held if trained is None else trained.constants
        parts = parts_of(program, route, device, place, constants, frozenset(tracked) if trained is not None else ())
        self._number, self._samples = chain.index(device), len(inputs)
        self._last = self._number == len(chain) - 1
        # Inputs that are numbers are in the program already, and the same in every sample.
        numbers = {n: v for n, v in inputs[0].items() if not isinstance(v, torch.Tensor)}
        free = {**free_values(program, inputs[0], place), **numbers}
        self._stage = _Stage(parts, free, constants, trained, pace, outputs=self._last)
        taken = list(self._stage.taken)
        self._arguments = tuple(_joined(n, [given[n] for given in inputs]) for n in taken) if not self._number else ()
        metas = {m.name: _meta(m.shape, m.dtype, m.name in tracked) for m in parts.segments[0].awaits}
        metas.update({n: inputs[0][n] for n in taken if n in inputs[0]})
        nodes = {n.name: n for n in program.graph.nodes}
        made = [nodes[n].meta["val"] for n in self._stage.made]
        outputs = tuple(
            _meta(tuple(t.shape), t.dtype, n in tracked) for n, t in zip(self._stage.made, made, strict=True)
        )
        stage = PipelineStage(self._stage, self._number, len(chain), place, tuple(metas[n] for n in taken), outputs)
        stage.stage_index_to_group_rank = {k: rank_of[i] for k, i in enumerate(chain)}
        self._kept = min(self._samples, len(chain) - self._number) if schedule == "1f1b" else self._samples
        self._losses: dict[int, float] = {}
        self._loss = loss
        made_by = Schedule1F1B if schedule == "1f1b" else ScheduleGPipe
        self._schedule = made_by(stage, self._samples, loss_fn=self._lost if trained is not None else None)
        self._training = trained is not None

    def run(self, actions: Sequence[Action], dealt: Sequence[int], *, keep: bool = False, first: int = 0) -> Passed:
        """Run all samples in torch's own order."""
        del actions, dealt, first
        self._stage.begin(keep)
        self._losses = {}
        target = torch.arange(self._samples) if self._training and self._last else None
        began = time.monotonic()
        with torch.set_grad_enabled(self._training):
            self._schedule.step(*self._arguments, target=target, return_outputs=False)
        ended = self._stage.ended
        if self._training:
            ended = dict.fromkeys(ended, time.monotonic())
        busy = float("nan") if self._training else self._stage.busy_s
        return Passed(self._stage.outputs, dict(self._losses), dict(ended), began, busy, self._kept)

    def _lost(self, outputs: Any, target: torch.Tensor) -> torch.Tensor:
        """Add up what the outputs of one micro-batch are to the loss; its number is the target."""
        assert self._loss is not None
        values = outputs if isinstance(outputs, tuple | list) else (outputs,)
        sample, total = int(target[0]), torch.zeros(())
        at = dict(zip(self._stage.made, values, strict=True))
        for position, name in self._stage.positions.items():
            part = self._loss(position, at[name], sample)
            total = total if part is None else total + part.reshape(())
        self._losses[sample] = float(total.detach())
        return total


class _Stage(torch.nn.Module):
    """The one segment of a device as torch wants it: tensors in, a tuple of tensors out, weights that learn inside."""

    def __init__(
        self,
        parts: Parts,
        free: Mapping[str, Any],
        constants: Mapping[str, Any],
        trained: TrainedWeights | None,
        pace: float,
        *,
        outputs: bool,
    ) -> None:
        super().__init__()
        self._part, self._trained, self._pace, self._cloned = parts.modules[0], trained, pace, parts.cloned[0]
        self._known = {**constants, **free}
        learnt = trained if trained is not None else ()
        awaited = tuple(m.name for m in parts.segments[0].awaits)
        given = (n for n in self._part.inputs if n not in self._known and n not in learnt)
        self.taken = awaited or tuple(given)
        sent = tuple(dict.fromkeys(m.name for m in parts.segments[0].sends))
        self.made = tuple(dict.fromkeys(parts.outputs.values())) if outputs else sent
        self.positions = dict(parts.outputs) if outputs else {}
        for k, leaf in enumerate(trained.parameters.values() if trained is not None else ()):
            self.register_parameter(f"weight{k}", leaf)
        self.begin(False)

    def begin(self, keep: bool) -> None:
        """Forget the run before."""
        self._keep, self.busy_s = keep, 0.0
        self.outputs: dict[int, dict[int, torch.Tensor]] = {}
        self.ended: dict[int, float] = {}

    def forward(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run the segment for one micro-batch; torch takes them in order."""
        start = time.monotonic()
        at = dict(zip(self.taken, given, strict=True))
        arguments = [self._value(name, at) for name in self._part.inputs]
        results = dict(zip(self._part.outputs, self._part.module(*arguments), strict=True))
        if self._pace < 1.0:
            rest(start, self._pace)
        number = len(self.ended)
        self.ended[number] = time.monotonic()
        self.busy_s += self.ended[number] - start
        if self._keep:
            self.outputs[number] = {k: results[name].detach() for k, name in self.positions.items()}
        return tuple(results[name] for name in self.made)

    def _value(self, name: str, at: Mapping[str, torch.Tensor]) -> Any:
        if name in at:
            return at[name].clone() if name in self._cloned else at[name]
        if self._trained is not None and name in self._trained:
            return self._trained.value(name)
        return self._known[name]


def _meta(shape: tuple[int, ...], kind: torch.dtype, learns: bool) -> torch.Tensor:
    return torch.empty(shape, dtype=kind, device="meta", requires_grad=learns)


def _joined(name: str, values: Sequence[torch.Tensor]) -> torch.Tensor:
    """Join micro-batches along their first dimension, as torch cuts them again."""
    if not values[0].dim() or not values[0].shape[0]:
        raise InvalidInput(
            f"input {name!r} has no first dimension along which torch's pipelining can cut; leave --engine torch out"
        )
    return torch.cat(list(values))
