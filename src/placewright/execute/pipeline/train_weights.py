"""Weights of one rank that learn: leaves of autograd, what is made of them, and whose gradients are added up."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

from placewright.capture.torch_inline import attribute
from placewright.capture.torch_meta import tensors_of
from placewright.capture.torch_program import TorchProgram, weights_read
from placewright.capture.torch_weights import Weight
from placewright.errors import InvalidInput
from placewright.execute.torch.split import call

__all__ = ["TrainedWeights", "holders_of", "learning", "tracked_values"]


def learning(program: TorchProgram, frozen: Collection[str] = ()) -> dict[str, Weight]:
    """Find what learns, by the name of its fx node: parameters but for the frozen ones and those written in place."""
    written = {s for row in program.aliases.writes.values() for s in row}
    return {
        n.name: program.weights[n.name]
        for n in program.graph.nodes
        if n.name in program.weights and _learns(program.weights[n.name], frozen) and not _written(n, program, written)
    }


def _learns(weight: Weight, frozen: Collection[str]) -> bool:
    return weight.parameter and weight.tensor.dtype.is_floating_point and weight.target not in frozen


def _written(node: Node, program: TorchProgram, written: Collection[int]) -> bool:
    return program.aliases.storage_of[node] in written


def tracked_values(program: TorchProgram, trained: Collection[str]) -> frozenset[str]:
    """Names of the fx nodes that a gradient may pass: floating, and computed from weights that learn."""
    found = set(trained)
    for node in program.graph.nodes:
        if node.op == "call_function" and any(n.name in found for n in node.all_input_nodes):
            kinds = [t.dtype for t in tensors_of(node.meta.get("val"))]
            if any(kind.is_floating_point or kind.is_complex for kind in kinds):
                found.add(node.name)
    return frozenset(found)


def holders_of(
    program: TorchProgram, trained: Mapping[str, Weight], places: Sequence[Sequence[int]]
) -> dict[str, tuple[int, ...]]:
    """Devices that read each weight that learns, by its name in the module; tied ones have one name, the first."""
    first = {weight.storage: weight.target for weight in reversed(list(trained.values()))}
    found: dict[str, set[int]] = {}
    for v, devices in zip(program.operators, places, strict=True):
        for weight in weights_read(v.node, program.folded, program.weights):
            if weight.node in trained:
                found.setdefault(first[weight.storage], set()).update(devices)
    return {target: tuple(sorted(devices)) for target, devices in sorted(found.items())}


class TrainedWeights:
    """The weights of one device while they learn.

    Parameters
    ----------
    program : TorchProgram
    trained : mapping of node name to Weight
    held : mapping of str to value
        All weights and folded results that this device reads.
    place : torch.device

    Attributes
    ----------
    constants : dict of str to value
        Those of ``held`` that don't follow from what learns.
    parameters : dict of str to Parameter
        Leaves of autograd by their names in the module; tied ones once.
    """

    def __init__(
        self, program: TorchProgram, trained: Mapping[str, Weight], held: Mapping[str, Any], place: torch.device
    ) -> None:
        self._program, self._place = program, place
        nodes = {n.name: n for n in program.graph.nodes}
        self._leaves: dict[str, torch.nn.Parameter] = {}
        self._fixed: dict[Node, Any] = {}
        self._made = {name: nodes[name] for name in held if _reaches(nodes[name], program, trained)}
        self.constants = {name: value for name, value in held.items() if name not in self._made}
        self.parameters: dict[str, torch.nn.Parameter] = {}
        of_storage: dict[object, tuple[str, torch.nn.Parameter]] = {}
        first = {weight.storage: weight.target for weight in reversed(list(trained.values()))}
        for name in sorted(_sources(self._made.values(), program, trained)):
            weight = program.weights[name]
            known = of_storage.get(weight.storage)
            if known is not None and known[1].shape != weight.tensor.shape:
                raise InvalidInput(
                    f"weights {known[0]!r} and {weight.target!r} share memory but not their shapes, and can't learn as "
                    "one; let the module make one of them from the other in forward()"
                )
            if known is None:
                leaf = torch.nn.Parameter(weight.tensor.detach().to(place, copy=True))
                of_storage[weight.storage] = weight.target, leaf
                self.parameters[first[weight.storage]] = leaf
            self._leaves[name] = of_storage[weight.storage][1]

    def __contains__(self, name: object) -> bool:
        return name in self._made

    def value(self, name: str) -> Any:
        """Give a weight, or what is made of it, as part of the graph that autograd records."""
        return self._value(self._made[name])

    def _value(self, node: Node) -> Any:
        if node.name in self._leaves:
            return self._leaves[node.name]
        if node in self._fixed:
            return self._fixed[node]
        if node.name in self._program.weights:
            found: Any = self._program.weights[node.name].tensor.detach().to(self._place)
        elif node.op == "get_attr":
            found = attribute(node, self._program.owner)
        else:
            return call(node, {n: self._value(n) for n in node.all_input_nodes}, self._place)
        self._fixed[node] = found
        return found


def _sources(nodes: Collection[Node], program: TorchProgram, trained: Mapping[str, Weight]) -> set[str]:
    """Names of the weights that learn among what nodes are made of, through folded ones."""
    found, pending, seen = set[str](), list(nodes), set[Node]()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.name in trained:
            found.add(node.name)
        elif node in program.folded:
            pending += node.all_input_nodes
    return found


def _reaches(node: Node, program: TorchProgram, trained: Mapping[str, Weight]) -> bool:
    return bool(_sources([node], program, trained))
