"""The modules that one device runs on one route, and what each of them reads, leaves and may not write to."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from placewright.capture.torch_program import TorchProgram
from placewright.errors import InvalidInput
from placewright.execute.pipeline.routes import Route
from placewright.execute.ranks.modules import last_reads, modules_of
from placewright.execute.ranks.segments import Segment
from placewright.execute.torch.split import SubModule

__all__ = ["Parts", "parts_of", "returned_by"]


@dataclass(frozen=True, slots=True)
class Parts:
    """Modules of one device on one route.

    Attributes
    ----------
    segments, modules
        In the order in which the device takes them.
    last : tuple of tuple of str
        Of each module the values that nothing on this device reads after it.
    outputs : dict of int to str
        Those of the network's outputs that this device makes, by their position.
    cloned : tuple of frozenset of str
        Of each module the values that it writes to and that a gradient passes: it gets copies of them.
    """

    segments: tuple[Segment, ...]
    modules: tuple[SubModule, ...]
    last: tuple[tuple[str, ...], ...]
    outputs: Mapping[int, str]
    cloned: tuple[frozenset[str], ...]


def returned_by(program: TorchProgram, route: Route) -> dict[int, int]:
    """Device that returns each of the network's outputs which an operator makes: the lowest that does."""
    makers: dict[Node, int] = {}
    for v, devices in zip(program.operators, route.places, strict=True):
        for node in (v.node, *v.results):
            makers[node] = min(devices)
    return {k: makers[n] for k, n in enumerate(program.outputs) if isinstance(n, Node) and n in makers}


def parts_of(
    program: TorchProgram,
    route: Route,
    device: int,
    place: torch.device,
    held: Mapping[str, Any],
    tracked: Collection[str],
) -> Parts:
    """Make the modules of a device.

    Parameters
    ----------
    program : TorchProgram
    route : Route
    device : int
    place : torch.device
    held : mapping of str to value
        Constants, by the name of their fx node.
    tracked : collection of str
        Values that a gradient passes: none in inference.

    Raises
    ------
    InvalidInput
        If training would have to write to a value that is read under several names.
    """
    segments = tuple(route.segments.get(device, ()))
    makers = returned_by(program, route)
    outputs = {k: n.name for k, n in enumerate(program.outputs) if isinstance(n, Node) and makers.get(k) == device}
    returned = frozenset(outputs.values())
    modules = modules_of(segments, device, place, held, returned)
    cloned = _written_to(program, segments, modules, returned, tracked)
    return Parts(segments, tuple(modules), last_reads(modules, segments, returned), outputs, cloned)


def _written_to(
    program: TorchProgram,
    segments: Collection[Segment],
    modules: list[SubModule],
    returned: Collection[str],
    tracked: Collection[str],
) -> tuple[frozenset[str], ...]:
    """Of each module the values of earlier ones that it writes to, where a gradient passes them.

    Autograd can't have a leaf written to, so the module gets a copy. That is right only if nobody else reads the
    storage afterwards under a name from before the write.
    """
    storage_of = {n.name: s for n, s in program.aliases.storage_of.items()}
    cloned = []
    for k, segment in enumerate(segments):
        writers = {s: v.name for v in segment.operators for s in program.aliases.writes.get(v.node, ())}
        mine = [n for n in modules[k].inputs if n in tracked and storage_of.get(n) in writers]
        made = {n for module in modules[:k] for n in module.outputs}
        for name in mine:
            storage = storage_of[name]
            behind = {n for module in modules[k + 1 :] for n in module.inputs} | set(returned)
            others = {n for n in made & behind if storage_of.get(n) == storage}
            others |= {n for n in modules[k].inputs if n != name and storage_of.get(n) == storage}
            if others:
                raise InvalidInput(
                    f"operator {writers[storage]!r} writes to {name!r}, which is read as {min(others)!r} too, in parts "
                    "that other devices' tensors lie between, and so its gradients can't be cut; write to a new tensor "
                    "there (inplace=False), or place these operators together"
                )
        cloned.append(frozenset(mine))
    return tuple(cloned)
