"""Which operator of a PyTorch network is the first whose result differs from the unsplit network's, and by how much.

It is looked for only after outputs differed: the network is run once more, whole and split, and compared operator by
operator.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves, tree_map_only

from placewright.capture.torch_export import export_module
from placewright.capture.torch_program import TorchOperator, TorchProgram, take_apart
from placewright.execute.ranks.network import RankNetwork
from placewright.execute.ranks.run import ARRIVED, RankRun
from placewright.execute.ranks.segments import Segment
from placewright.execute.torch.local import flat_inputs, places_of, relative_error
from placewright.execute.torch.parts import Run, held_by, held_by_devices
from placewright.execute.torch.split import split
from placewright.plan import Plan
from placewright.problem import Problem

__all__ = ["Difference", "difference_between_ranks", "difference_in_process", "first_difference", "told"]

CHUNK = 64
"""So many operators are gathered and compared at a time."""

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """An operator whose result differs.

    Attributes
    ----------
    operator, device : str
    error : float
        Largest difference relative to the result's largest magnitude; ``inf`` where shapes or non-finite places differ.
    arrived_on : str
        Where what it made was right, but arrived differently: the receiver.
    """

    operator: str
    device: str
    error: float
    arrived_on: str = ""


def first_difference(
    operators: Sequence[TorchOperator],
    made: Mapping[str, Values],
    reference: Values,
    tolerance: float,
) -> Difference | None:
    """Find the first of some operators, in their order, whose result differs by more than a tolerance.

    Parameters
    ----------
    operators : sequence of TorchOperator
    made : mapping of device name to mapping of node name to value
        What each device computed, and under a name that begins with ``ARRIVED`` what it received.
    reference : mapping of node name to value
        Of the unsplit network.
    tolerance : float
    """
    for v in operators:
        names = list(dict.fromkeys(r.name for r in (v.node, *v.results) if r.name in reference))
        for prefix in ("", ARRIVED):
            for device, values in made.items():
                error = max(
                    (_error(values[prefix + n], reference[n]) for n in names if prefix + n in values), default=0.0
                )
                if not error <= tolerance:
                    maker = next((d for d, row in made.items() if any(n in row for n in names)), device)
                    return Difference(v.name, maker if prefix else device, error, device if prefix else "")
    return None


def told(found: Difference | None, error: float) -> str:
    """Say it.

    Examples
    --------
    >>> told(Difference("conv", "gpu1", 0.25), 0.5)  # doctest: +ELLIPSIS
    "an output differs from the unsplit network's by 0.5 ...: operator 'conv' on 'gpu1' is the first ..., by 0.25"
    """
    whole = f"an output differs from the unsplit network's by {error:.2g} of its largest magnitude"
    if found is None:
        return (
            f"{whole}, but in another run no operator did: it draws random numbers, depends on what ran before, or its "
            "exported program is not the module"
        )
    if found.arrived_on:
        return (
            f"{whole}: what operator {found.operator!r} on {found.device!r} made is right, but differs by "
            f"{found.error:.2g} on {found.arrived_on!r}, where it was sent"
        )
    where = f"operator {found.operator!r} on {found.device!r}"
    return f"{whole}: {where} is the first whose result differs, by {found.error:.2g}"


def difference_between_ranks(network: RankNetwork, rank: int, tolerance: float) -> Difference | None:
    """Run once more on all ranks, and whole on rank 0; every rank must call it, and rank 0 gets the answer."""
    used, parts = network.plan.devices_used, network.parts
    names = [network.problem.cluster.devices[i].name for i in used]
    with torch.no_grad():
        reference = _whole(parts, network.inputs) if rank == 0 else {}
        mine: dict[str, Any] = {}
        dist.barrier()
        network.rank(used, rank).run(lambda name, value: mine.setdefault(name, _kept(value)))
    for chunk in _chunks(parts.operators):
        wanted = {prefix + r.name for v in chunk for r in (v.node, *v.results) for prefix in ("", ARRIVED)}
        gathered: list[Any] = [None] * len(used)
        dist.gather_object({n: x for n, x in mine.items() if n in wanted}, gathered if rank == 0 else None)
        verdict: list[Any] = [None]
        if rank == 0:
            verdict = [first_difference(chunk, dict(zip(names, gathered, strict=True)), reference, tolerance)]
        dist.broadcast_object_list(verdict, src=0)
        if verdict[0] is not None:
            found: Difference = verdict[0]
            return found
    return None


def difference_in_process(
    model: torch.nn.Module | ExportedProgram,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    problem: Problem,
    plan: Plan,
    tolerance: float,
) -> Difference | None:
    """Run once more part by part in this process, and whole."""
    given = dict(kwargs)
    program = model if isinstance(model, ExportedProgram) else export_module(model, args, given)
    parts = take_apart(program, fold=any(v.folded for v in problem.graph.operators))
    places, names = places_of(parts, problem, plan), [d.name for d in problem.cluster.devices]
    devices = [torch.device("cpu")] * len(names)
    inputs = dict(zip(parts.inputs, flat_inputs(program, args, given), strict=True))
    made: dict[str, dict[str, Any]] = {names[i]: {} for i in plan.devices_used}
    with torch.no_grad():
        reference = _whole(parts, inputs)
        held = held_by_devices(parts, places, devices)
        run = Run(parts, split(parts, places, devices, held), places, devices, inputs, held)
        run.run(names, lambda i, name, value: made[names[i]].update({name: _kept(value)}))
    return first_difference(parts.operators, made, reference, tolerance)


def _whole(parts: TorchProgram, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Give the result of every node of the unsplit network."""
    made: dict[str, Any] = {}
    place = torch.device("cpu")
    held = held_by(parts, [(0,)] * len(parts.operators), 0, place, returned=True)
    whole = {0: [Segment(tuple(parts.operators), (), ())]}
    run = RankRun(parts, whole, {0: 0}, 0, "unsplit", held, dict(inputs), place)
    run.run(lambda name, value: made.setdefault(name, _kept(value)))
    return made


def _kept(value: Any) -> Any:
    """Copy a value: what computes in place would change it."""
    return tree_map_only(torch.Tensor, lambda t: t.detach().clone(), value)


def _error(made: Any, wanted: Any) -> float:
    left, right = ([x for x in tree_leaves(y) if x is not None] for y in (made, wanted))
    if len(left) != len(right):
        return math.inf
    numbers = [(a, b) for a, b in zip(left, right, strict=True) if not isinstance(b, torch.Tensor)]
    if any(a != b for a, b in numbers):
        return math.inf
    return relative_error(left, right)


def _chunks(operators: Sequence[TorchOperator]) -> Iterator[Sequence[TorchOperator]]:
    for k in range(0, len(operators), CHUNK):
        yield operators[k : k + CHUNK]
