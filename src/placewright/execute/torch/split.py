"""Cut an exported program by a placement into sub-modules that can run one after the other, whatever the placement."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.utils._pytree import tree_map_only

from placewright.capture.torch_program import TorchOperator, TorchProgram

__all__ = ["Observe", "SubModule", "call", "levels", "observed", "split", "sub_module"]

Observe = Callable[[str, Any], None]
"""Called with the name of a program's node, and its value as it is when it has been computed."""


@dataclass(frozen=True)
class SubModule:
    """One part of a program: operators of one device that run as one call.

    Attributes
    ----------
    device : int
        Index of the device in the cluster.
    level : int
        How many changes of device lie before it on the longest path.
    operators : tuple of str
    module : GraphModule
        Takes ``inputs`` and returns ``outputs``; holds the weights that it reads.
    inputs, outputs : tuple of str
        Names of fx nodes.
    """

    device: int
    level: int
    operators: tuple[str, ...]
    module: GraphModule
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def levels(program: TorchProgram, places: Sequence[Sequence[int]]) -> list[dict[int, int]]:
    """Level of each operator on each of its devices: the largest number of device changes on a path to it.

    Operators of one (level, device) form a sub-module. An edge never goes to a lower level and one between devices
    goes to a higher, so the sub-modules are acyclic for any placement, and run in the order of (level, device).
    Operators that touch the same mutated storage keep their order. An operator with several devices runs on each, and
    its readers take what their own device made.
    """
    index = {r: k for k, v in enumerate(program.operators) for r in (v.node, *v.results)}
    before: list[set[int]] = [{index[n] for n in v.node.all_input_nodes if n in index} for v in program.operators]
    for earlier, later in program.order:
        before[later].add(earlier)
    level: list[dict[int, int]] = []
    for devices, sources in zip(places, before, strict=True):
        reached = {}
        for i in devices:
            behind = (level[u][i] if i in level[u] else level[u][places[u][0]] + 1 for u in sources)
            reached[i] = max(behind, default=0)
        level.append(reached)
    return level


def split(
    program: TorchProgram,
    places: Sequence[Sequence[int]],
    torch_devices: Sequence[torch.device],
    held: Sequence[dict[str, Any]],
) -> list[SubModule]:
    """Sub-modules in an order in which they can run.

    Parameters
    ----------
    program : TorchProgram
    places : sequence of sequence of int
        Devices of each operator of the program: one, or all that run a copy of it.
    torch_devices : sequence of torch.device
        For each device of the cluster.
    held : sequence of dict
        For each device: weights and folded constants by the name of their fx node, on that device.
    """
    level = levels(program, places)
    groups: dict[tuple[int, int], list[TorchOperator]] = {}
    for k, v in enumerate(program.operators):
        for device, reached in level[k].items():
            groups.setdefault((reached, device), []).append(v)
    parts_of: dict[Node, set[tuple[int, int]]] = {}
    for key, members in groups.items():
        for v in members:
            parts_of.setdefault(v.node, set()).add(key)
    needed = {n for n in program.outputs if isinstance(n, Node)}
    for v in program.operators:
        for result in v.results:
            if any(not parts_of.get(user, set()) <= parts_of[v.node] for user in result.users):
                needed.add(result)
    return [
        sub_module(members, key, torch_devices[key[1]], held[key[1]], needed)
        for key, members in sorted(groups.items(), key=lambda item: item[0])
    ]


def call(node: Node, values: dict[Node, Any], device: torch.device) -> Any:
    """Compute one node on a device from the values of its inputs."""
    args, kwargs = _on_device(node, device)
    args, kwargs = torch.fx.map_arg((args, kwargs), lambda n: values[n])
    assert callable(node.target)
    return node.target(*args, **kwargs)


def sub_module(
    members: list[TorchOperator],
    key: tuple[int, int],
    device: torch.device,
    held: dict[str, Any],
    needed: set[Node],
    *,
    clocked: bool = False,
) -> SubModule:
    """Make one module of operators in an order in which they can run; ``key`` is (level, device).

    With ``clocked`` it returns one more value: ``time.monotonic`` before the first operator and after each.
    """
    graph, root = Graph(), torch.nn.Module()
    inside = {n for v in members for n in (v.node, *v.results)}
    copied: dict[Node, Node] = {}
    inputs: list[str] = []
    for node in dict.fromkeys(n for v in members for n in v.node.all_input_nodes if n not in inside):
        if node.name in held:
            attribute = f"held_{node.name}"
            _hold(root, attribute, held[node.name])
            copied[node] = graph.get_attr(attribute)
        else:
            copied[node] = graph.placeholder(node.name)
            inputs.append(node.name)
    outputs = []
    clock = [graph.call_function(time.monotonic)] if clocked else []
    for v in members:
        for node in dict.fromkeys((v.node, *v.results)):
            new = graph.node_copy(node, lambda n: copied[n])
            new.args, new.kwargs = torch.fx.map_arg(_on_device(node, device), lambda n: copied[n])
            copied[node] = new
            if node in needed:
                outputs.append(node)
        if clocked:
            clock.append(graph.call_function(time.monotonic))
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    for first, later in pairwise(placeholders):
        first.append(later)
    returned = tuple(copied[n] for n in outputs)
    graph.output((*returned, tuple(clock)) if clocked else returned)
    module = GraphModule(root, graph)
    nodes = [(copied[n].name, v.name, n.name) for v in members for n in dict.fromkeys((v.node, *v.results))]
    module.operator_of = {name: operator for name, operator, _ in nodes}  # type: ignore[assignment]
    module.node_of = {name: node for name, _, node in nodes}  # type: ignore[assignment]
    level, index = key
    return SubModule(
        index, level, tuple(v.name for v in members), module, tuple(inputs), tuple(n.name for n in outputs)
    )


def observed(module: GraphModule, arguments: Sequence[Any], observe: Observe) -> Any:
    """Call a sub-module node by node."""
    return _Observed(module, observe).run(*arguments)


class _Observed(Interpreter):
    def __init__(self, module: GraphModule, observe: Observe) -> None:
        super().__init__(module)
        self._observe = observe
        self._names: Any = module.node_of

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        if n.name in self._names:
            self._observe(self._names[n.name], value)
        return value


def _hold(root: torch.nn.Module, name: str, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        root.register_buffer(name, value)
    else:
        setattr(root, name, value)


def _on_device(node: Node, device: torch.device) -> Any:
    """Arguments of a node with every device replaced; factories that name none get it."""
    args, kwargs = tree_map_only(torch.device, lambda _: device, (node.args, dict(node.kwargs)))
    if isinstance(node.target, torch._ops.OpOverload):
        named = {a.name for a in node.target._schema.arguments}
        takes_tensors = any(str(a.type) == "Tensor" for a in node.target._schema.arguments)
        if "device" in named and not takes_tensors:
            kwargs["device"] = device
    return args, kwargs
