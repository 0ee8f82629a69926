"""Ranks as threads of one process, with mailboxes in place of a network: a send ends when its receive is posted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch

from placewright.capture.torch_export import capture_program, export_module
from placewright.capture.torch_program import TorchProgram, take_apart
from placewright.execute.pipeline.orders import Schedule
from placewright.execute.pipeline.rank import Loss, Passed
from placewright.execute.pipeline.samples import loss_of, sample_inputs
from placewright.execute.pipeline.setup import (
    Pipeline,
    add_up_gradients,
    learning_of,
    pipeline_of,
    rank_of_pipeline,
)
from placewright.execute.pipeline.train_weights import TrainedWeights
from placewright.execute.torch.local import flat_inputs
from placewright.graph import OperatorGraph
from placewright.plan import Plan
from placewright.problem import Problem

from .small_torch import Network

WAIT_S = 20.0
"""A rank that waits longer has met a deadlock."""


class Mailboxes:
    """What all ranks post: contents by (from, to, tag), and the sums that sets of ranks make."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.sent: dict[tuple[int, int, int], torch.Tensor] = {}
        self.posted: set[tuple[int, int, int]] = set()
        self.sums: dict[tuple[int, ...], list[torch.Tensor]] = {}
        self.failed = False

    def until(self, ready: Callable[[], bool]) -> None:
        if not self.changed.wait_for(lambda: self.failed or ready(), WAIT_S):
            raise AssertionError("a rank waits for ever")
        if self.failed:
            raise AssertionError("another rank has failed")


@dataclass
class Mail:
    """One rank's way to the others."""

    boxes: Mailboxes
    rank: int

    def send(self, content: torch.Tensor, to: int, tag: int) -> Waiting:
        key = (self.rank, to, tag)
        with self.boxes.changed:
            assert key not in self.boxes.sent, "two tensors under one tag"
            self.boxes.sent[key] = content.clone()
            self.boxes.changed.notify_all()
        return Waiting(self.boxes, key, None)

    def receive(self, buffer: torch.Tensor, source: int, tag: int) -> Waiting:
        key = (source, self.rank, tag)
        with self.boxes.changed:
            self.boxes.posted.add(key)
            self.boxes.changed.notify_all()
        return Waiting(self.boxes, key, buffer)

    def add_up(self, values: torch.Tensor, ranks: tuple[int, ...]) -> None:
        with self.boxes.changed:
            row = self.boxes.sums.setdefault(ranks, [])
            row.append(values)
            if len(row) == len(ranks):
                total = torch.stack(row).sum(0)
                for given in row:
                    given.copy_(total)
                del self.boxes.sums[ranks]
                self.boxes.changed.notify_all()
            else:
                self.boxes.until(lambda: self.boxes.sums.get(ranks) is not row)


@dataclass
class Waiting:
    boxes: Mailboxes
    key: tuple[int, int, int]
    buffer: torch.Tensor | None

    def wait(self) -> None:
        with self.boxes.changed:
            if self.buffer is None:
                self.boxes.until(lambda: self.key in self.boxes.posted or self.key not in self.boxes.sent)
                return
            self.boxes.until(lambda: self.key in self.boxes.sent)
            self.buffer.copy_(self.boxes.sent.pop(self.key))
            self.boxes.posted.discard(self.key)
            self.boxes.changed.notify_all()


@dataclass
class Threaded:
    """A network as ranks know it, and the unsplit one."""

    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    program: TorchProgram
    graph: OperatorGraph
    inputs: dict[str, Any]


def threaded(network: Network) -> Threaded:
    """Export a network."""
    module, args, kwargs = network
    program = export_module(module, args, kwargs)
    parts = take_apart(program)
    inputs = dict(zip(parts.inputs, flat_inputs(program, args, kwargs), strict=True))
    return Threaded(module, args, kwargs, parts, capture_program(program), inputs)


def run_threads(
    given: Threaded,
    problem: Problem,
    plan: Plan,
    samples: int,
    schedule: Schedule = "forward",
    in_flight: int | None = None,
    loss: Loss | None = None,
    frozen: Collection[str] = (),
    part: tuple[int, int] | None = None,
) -> tuple[list[Passed], list[TrainedWeights | None], Mailboxes, Pipeline]:
    """Run all samples, or a part (first, count), on a thread a device; gives what each has, in the devices' order."""
    pipeline = pipeline_of(given.program, problem, plan, samples, schedule=schedule, in_flight=in_flight)
    learns = learning_of(given.program, pipeline.routes, frozen) if schedule != "forward" else None
    if learns is not None and loss is None:
        loss = loss_of(given.program, learns.tracked, None)
    used = plan.devices_used
    rank_of = {i: k for k, i in enumerate(used)}
    boxes = Mailboxes()
    inputs = [sample_inputs(given.inputs, m) for m in range(samples)]
    passed: list[Passed | None] = [None] * len(used)
    weights: list[TrainedWeights | None] = [None] * len(used)
    failed: list[BaseException] = []

    def work(k: int) -> None:
        try:
            transport = Mail(boxes, k)
            rank, weights[k] = rank_of_pipeline(
                given.program, problem, pipeline, used[k], rank_of, transport, inputs, learns=learns, loss=loss
            )
            ran = pipeline if part is None else pipeline.part(*part)
            passed[k] = rank.run(ran.actions(used[k]), ran.dealt, keep=True, first=part[0] if part else 0)
            if learns is not None and weights[k] is not None:
                add_up_gradients(weights[k], learns, rank_of, transport)
        except BaseException as error:
            with boxes.changed:
                failed.append(error)
                boxes.failed = True
                boxes.changed.notify_all()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(used))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    assert not boxes.sent, "something was sent and never received"
    return [p for p in passed if p is not None], weights, boxes, pipeline
