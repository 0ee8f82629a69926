"""Run the sub-modules of a program one after the other, each tensor sent once to each device that reads it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.fx import Node
from torch.utils._pytree import tree_map_only

from placewright.capture.torch_inline import attribute
from placewright.capture.torch_program import TorchProgram
from placewright.errors import ExecutionError, InvalidInput
from placewright.execute.torch.split import SubModule, call, observed

__all__ = ["Run", "held_by", "held_by_devices"]


def held_by_devices(
    parts: TorchProgram, places: Sequence[Sequence[int]], devices: Sequence[torch.device]
) -> list[dict[str, Any]]:
    """For each device what :func:`held_by` finds; the first one also has what the network returns."""
    return [held_by(parts, places, i, device, returned=i == 0) for i, device in enumerate(devices)]


def held_by(
    parts: TorchProgram, places: Sequence[Sequence[int]], device: int, place: torch.device, *, returned: bool
) -> dict[str, Any]:
    """Find what a device's operators read of weights and folded results, by name, the latter computed there.

    What only folded nodes read is not kept. Weights that the network writes to are copies. With ``returned`` also those
    that the network returns.

    Raises
    ------
    InvalidInput
        If a weight is on meta.
    """
    written = {s for row in parts.aliases.writes.values() for s in row}
    position = {n: k for k, n in enumerate(parts.graph.nodes)}
    members: dict[int, list[Node]] = {}
    for node in parts.folded:
        members.setdefault(parts.aliases.storage_of[node], []).append(node)
    wanted = [
        n for v, row in zip(parts.operators, places, strict=True) if device in row for n in v.node.all_input_nodes
    ]
    if returned:
        wanted += [n for n in parts.outputs if isinstance(n, torch.fx.Node)]
    read = {n.name for n in wanted}
    closure: set[Node] = set()
    while wanted:
        node = wanted.pop()
        if node in closure or not (node in parts.folded or node.name in parts.weights or node.op == "get_attr"):
            continue
        closure.add(node)
        wanted += [*node.all_input_nodes, parts.first_of.get(node, node)]
        if parts.aliases.storage_of[node] in written:
            wanted += members.get(parts.aliases.storage_of[node], [])
    values: dict[Node, Any] = {}
    by_storage: dict[object, torch.Tensor] = {}
    for node in sorted(closure, key=lambda n: position[n]):
        if node.name in parts.weights:
            weight = parts.weights[node.name]
            if weight.tensor.is_meta and weight.tensor.numel():
                raise InvalidInput(
                    f"weight {weight.target!r} is on the meta device and has no values; add --processes --weights "
                    "random, or load real ones first, as with module.load_state_dict(weights, assign=True)"
                )
            if parts.aliases.storage_of[node] in written:
                values[node] = _own_copy(weight.tensor.detach(), weight.storage, by_storage, place)
            else:
                values[node] = weight.tensor.detach().to(place)
        elif node.op == "get_attr":
            values[node] = attribute(node, parts.owner)
        elif parts.first_of[node] is not node:
            values[node] = values[parts.first_of[node]]
        else:
            values[node] = call(node, values, place)
    return {n.name: value for n, value in values.items() if n.name in read}


def _own_copy(
    tensor: torch.Tensor, key: object, copies: dict[object, torch.Tensor], device: torch.device
) -> torch.Tensor:
    """Copy a tensor together with all of its storage, so that weights which share it still do."""
    if key not in copies:
        storage = tensor.untyped_storage()
        flat = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage, 0, (len(storage),), (1,))
        copies[key] = flat.to(device, copy=True)
    empty = torch.empty(0, dtype=tensor.dtype, device=device)
    return empty.set_(copies[key].untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())


class Run:
    """One run: where each tensor lies, and what has travelled.

    Attributes
    ----------
    transfers : list of (str, int, int)
        (tensor, source, target) in the order in which they travelled.
    seconds : float
        Wall time of :meth:`run`.
    """

    def __init__(
        self,
        parts: TorchProgram,
        submodules: Sequence[SubModule],
        places: Sequence[Sequence[int]],
        devices: Sequence[torch.device],
        inputs: dict[str, Any],
        held: Sequence[dict[str, Any]],
    ) -> None:
        self._parts, self._submodules, self._devices = parts, submodules, devices
        self._inputs, self._held = inputs, held
        self._home = {
            r.name: places[k][0] for k, v in enumerate(parts.operators) for r in dict.fromkeys((v.node, *v.results))
        }
        self._at: dict[tuple[str, int], Any] = {}
        self.seconds = 0.0
        self.transfers: list[tuple[str, int, int]] = []
        values: dict[Node, Any] = {}
        self._free: dict[str, Any] = {}
        for node in parts.graph.nodes:
            if node.op == "placeholder":
                weight = parts.weights.get(node.name)
                values[node] = weight.tensor if weight is not None else inputs.get(node.name)
            elif node in parts.free:
                self._free[node.name] = values[node] = call(node, values, devices[0])

    def run(self, names: Sequence[str], observe: Callable[[int, str, Any], None] | None = None) -> tuple[Any, ...]:
        """Call every part in order and give what the network returns.

        With ``observe``, node by node: it is called with the device, the node's name and its value.
        """
        start = time.perf_counter()
        outputs = {n.name for n in self._parts.outputs if isinstance(n, torch.fx.Node)}
        last = {name: k for k, part in enumerate(self._submodules) for name in part.inputs}
        for k, part in enumerate(self._submodules):
            arguments = [self._value(name, part.device) for name in part.inputs]
            try:
                if observe is None:
                    results = part.module(*arguments)
                else:
                    results = observed(part.module, arguments, partial(observe, part.device))
            except Exception as error:
                first = (str(error).strip().splitlines() or [type(error).__name__])[0]
                raise ExecutionError(
                    f"the part of {len(part.operators)} operators from {part.operators[0]!r} on {names[part.device]!r} "
                    f"failed: {first}; run the unsplit network with the same inputs to see whether it fails there too"
                ) from error
            for name, value in zip(part.outputs, results, strict=True):
                self._at[name, part.device] = value
            for name in [n for n in part.inputs if last[n] == k and n not in outputs]:
                for i in range(len(self._devices)):
                    self._at.pop((name, i), None)
        returned = tuple(self._returned(value) for value in self._parts.outputs)
        self.seconds = time.perf_counter() - start
        return returned

    def _value(self, name: str, device: int) -> Any:
        if name in self._free:
            return self._free[name]
        if (name, device) not in self._at:
            if name in self._inputs:
                self._at[name, device] = _copied(self._inputs[name], self._devices[device])
            else:
                home = self._home[name]
                self._at[name, device] = _copied(self._at[name, home], self._devices[device])
                self.transfers.append((name, home, device))
        return self._at[name, device]

    def _returned(self, value: Any) -> Any:
        if not isinstance(value, torch.fx.Node):
            return value
        if value.name in self._home:
            found = self._at[value.name, self._home[value.name]]
        elif value.name in self._inputs:
            copies = [self._at[value.name, i] for i in range(len(self._devices)) if (value.name, i) in self._at]
            found = copies[0] if copies else self._inputs[value.name]
        else:
            found = self._free.get(value.name, self._held[0].get(value.name))
        return found.detach().cpu().clone() if isinstance(found, torch.Tensor) else found


def _copied(value: Any, device: torch.device) -> Any:
    """Copy a value to a device; dimensions that are only expanded travel once."""

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        compact = tensor.detach()
        for dimension, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
            if stride == 0 and size > 1:
                compact = compact.narrow(dimension, 0, 1)
        moved = compact.clone() if compact.device == device else compact.to(device)
        return moved.expand(tensor.shape) if moved.shape != tensor.shape else moved

    return tree_map_only(torch.Tensor, copy, value)
