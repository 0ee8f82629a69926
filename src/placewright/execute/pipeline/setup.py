"""From a plan to what the ranks of a pipeline run: routes, which sample takes which, and the order of all actions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from placewright.capture.torch_program import TorchProgram
from placewright.execute.pipeline.orders import Action, Schedule, depths, order_of, own_actions
from placewright.execute.pipeline.rank import Loss, PipelineRank
from placewright.execute.pipeline.routes import Route, dealt_to, merged_places, plans_of, route_of
from placewright.execute.pipeline.train_weights import TrainedWeights, holders_of, learning, tracked_values
from placewright.execute.pipeline.transport import Transport
from placewright.execute.torch.local import places_of
from placewright.execute.torch.parts import held_by
from placewright.plan import Plan
from placewright.problem import Problem

if TYPE_CHECKING:
    from placewright.execute.pipeline.handed_over import TorchChain

__all__ = ["Learning", "Pipeline", "add_up_gradients", "learning_of", "pipeline_of", "rank_of_pipeline"]


@dataclass(frozen=True, eq=False)
class Pipeline:
    """What all ranks agree on without a word, since each computes it from the plan.

    Attributes
    ----------
    routes : tuple of Route
    dealt : tuple of int
        Route of each sample.
    order : tuple of Action
        Of all devices.
    in_flight : int
        Most samples that are open at a time.
    """

    routes: tuple[Route, ...]
    dealt: tuple[int, ...]
    order: tuple[Action, ...]
    in_flight: int

    def actions(self, device: int) -> list[Action]:
        """List what a device does."""
        return own_actions([r.steps for r in self.routes], self.dealt, self.order, device)

    def part(self, first: int, count: int) -> Pipeline:
        """Lay out so many of the samples alone, forward."""
        dealt = self.dealt[first : first + count]
        order = order_of([r.steps for r in self.routes], dealt, in_flight=self.in_flight)
        return Pipeline(self.routes, dealt, tuple(order), self.in_flight)


def pipeline_of(
    program: TorchProgram,
    problem: Problem,
    plan: Plan,
    samples: int,
    *,
    schedule: Schedule = "forward",
    in_flight: int | None = None,
) -> Pipeline:
    """Lay out how a number of samples pass the devices of a plan.

    By default twice as many samples are in flight as devices are in use; under ``1f1b`` as many as the longest way has
    stages, which is one more than changes of device, on each route.

    Parameters
    ----------
    program : TorchProgram
        Its weights are not read.
    problem, plan
    samples : int
    schedule : {"forward", "gpipe", "1f1b"}
    in_flight : int, optional
        At most so many, whatever the schedule but ``gpipe`` says.

    Raises
    ------
    InvalidInput
        If the plan can't be run so.
    """
    routes = tuple(route_of(program, places_of(program, problem, p), problem, p, share) for p, share in plans_of(plan))
    dealt = tuple(dealt_to([r.share for r in routes], samples))
    if schedule == "gpipe":
        most = samples
    elif in_flight is not None:
        most = in_flight
    elif schedule == "1f1b":
        most = sum(max(depths(r.steps), default=0) + 1 for r in routes)
    else:
        most = 2 * len(plan.devices_used)
    order = order_of([r.steps for r in routes], dealt, schedule=schedule, in_flight=most)
    return Pipeline(routes, dealt, tuple(order), min(most, samples))


@dataclass(frozen=True, eq=False)
class Learning:
    """What of a network learns, as every rank knows it.

    Attributes
    ----------
    trained : mapping of node name to Weight
        Their tensors may be on meta.
    tracked : frozenset of str
        Values that a gradient passes.
    holders : dict of str to tuple of int
        Devices of each weight that learns.
    """

    trained: Mapping[str, Any]
    tracked: frozenset[str]
    holders: Mapping[str, tuple[int, ...]]

    def together(self, rank_of: Mapping[int, int]) -> list[tuple[int, ...]]:
        """List the sets of ranks that hold weights in common, each once, in one order."""
        sets = {tuple(sorted(rank_of[i] for i in devices)) for devices in self.holders.values() if len(devices) > 1}
        return sorted(sets)


def learning_of(unread: TorchProgram, routes: Sequence[Route], frozen: Collection[str] = ()) -> Learning:
    """Find what learns, without reading a weight."""
    trained = learning(unread, frozen)
    return Learning(trained, tracked_values(unread, trained), holders_of(unread, trained, merged_places(routes)))


def rank_of_pipeline(
    program: TorchProgram,
    problem: Problem,
    pipeline: Pipeline,
    device: int,
    rank_of: Mapping[int, int],
    transport: Transport,
    inputs: Sequence[Mapping[str, Any]],
    *,
    learns: Learning | None = None,
    loss: Loss | None = None,
    chain: Schedule | None = None,
) -> tuple[PipelineRank | TorchChain, TrainedWeights | None]:
    """Load what one device reads, and make what it runs; with ``learns`` also its leaves of autograd.

    With ``chain`` torch's own pipelining runs it in the order of that name.

    Raises
    ------
    InvalidInput
        If a weight has no values.
    """
    place = torch.device("cpu")
    first = min(rank_of, key=rank_of.__getitem__)
    # What is returned as it is, is not learnt where it is returned.
    returned = learns is None and device == first
    held = held_by(program, merged_places(pipeline.routes), device, place, returned=returned)
    trained = TrainedWeights(program, learns.trained, held, place) if learns is not None else None
    made = problem.cluster.devices[device]
    tracked = learns.tracked if learns is not None else ()
    if chain is not None:
        from placewright.execute.pipeline.handed_over import TorchChain

        (route,) = pipeline.routes
        handed = TorchChain(
            program,
            route,
            device,
            rank_of,
            held,
            inputs,
            chain,
            pace=made.cpu_share,
            trained=trained,
            tracked=tracked,
            loss=loss,
        )
        return handed, trained
    rank = PipelineRank(
        program,
        pipeline.routes,
        device,
        made.name,
        rank_of,
        transport,
        held,
        inputs,
        place,
        pace=made.cpu_share,
        trained=trained,
        tracked=tracked,
        loss=loss,
    )
    return rank, trained


def add_up_gradients(
    weights: TrainedWeights, learns: Learning, rank_of: Mapping[int, int], transport: Transport
) -> None:
    """Give every weight that several ranks hold the sum of their gradients: each rank's is that of its own samples.

    A sample counts 1/N wherever it went, so the sum is the gradient of the mean over all N, whatever the shares.
    """
    of_set: dict[tuple[int, ...], list[str]] = {}
    for target, devices in learns.holders.items():
        if len(devices) > 1 and target in weights.parameters:
            of_set.setdefault(tuple(sorted(rank_of[i] for i in devices)), []).append(target)
    for ranks, targets in sorted(of_set.items()):
        for kind in dict.fromkeys(weights.parameters[t].dtype for t in targets):
            leaves = [weights.parameters[t] for t in targets if weights.parameters[t].dtype == kind]
            rows = [(p.grad if p.grad is not None else torch.zeros_like(p)).reshape(-1) for p in leaves]
            flat = torch.cat(rows)
            transport.add_up(flat, ranks)
            for leaf, row in zip(leaves, torch.split(flat, [p.numel() for p in leaves]), strict=True):
                leaf.grad = row.reshape(leaf.shape).clone()
