"""Taking an exported torch program apart into what is measured: an operator's calls, as plain data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from placewright import host
from placewright.capture.torch_export import export_module
from placewright.capture.torch_meta import concrete, tensors_of
from placewright.capture.torch_program import TorchOperator, TorchProgram, take_apart
from placewright.capture.torch_pt2 import read_pt2
from placewright.capture.torch_spec import load_py
from placewright.costs.tasks import Answer, Conversion, Input, Task, TorchUnit
from placewright.errors import InvalidInput
from placewright.graph import OperatorGraph

__all__ = ["TorchNetwork", "program_of"]

_INDEXED = ("embedding", "index", "index_select", "gather", "index_put", "scatter", "index_add", "index_copy")
"""Operators whose integer arguments point into their first one."""

MEMORY_SHARE = 0.5
"""Of this machine's memory that tensors may take which are made up for a measurement."""


class TorchNetwork:
    """A program and the tasks that measure it.

    Parameters
    ----------
    model : path of a ``.pt2`` file, ``py:package.module:function``, or ExportedProgram
    graph : OperatorGraph
        Captured from it, fused or not.

    Raises
    ------
    InvalidInput
        If the graph has operators that the program has not.
    """

    def __init__(self, model: str | Path | ExportedProgram, graph: OperatorGraph) -> None:
        self.graph = graph
        self.program: TorchProgram = take_apart(program_of(model), fold=any(v.folded for v in graph.operators))
        operators = {v.name: v for v in self.program.operators}
        absent = [name for v in graph.operators for name in v.part_names if name not in operators]
        if absent:
            raise InvalidInput(
                f"operator {absent[0]!r} is not in the model; give the model that the graph was captured from"
            )
        position = {v.name: k for k, v in enumerate(self.program.operators)}
        self._parts = [
            [operators[name] for name in sorted(v.part_names, key=position.__getitem__)] for v in graph.operators
        ]

    def prepare(self, ask: Callable[[Task], Answer]) -> None:
        """Need nothing: sizes are in the program."""

    def unit(self, operator: int) -> Task:
        """Make the task that times one operator.

        Raises
        ------
        InvalidInput
            If it can't be called by itself.
        """
        calls, inputs = self._calls(self._parts[operator])
        return TorchUnit(inputs, calls)

    def whole(self) -> Task:
        """Make the task that times the network: all of its calls in order."""
        calls, inputs = self._calls(self.program.operators)
        return TorchUnit(inputs, calls, whole=True)

    def converting(self, conversion: Conversion) -> None:
        """Torch converts no layouts behind the network's back."""
        return None

    def pieces(self) -> None:
        """Torch runs an operator at a time as it is: a cut adds no more than a call."""
        return None

    def _calls(self, operators: Sequence[TorchOperator]) -> tuple[tuple[Any, ...], tuple[Input, ...]]:
        made: set[Node] = set()
        read: dict[Node, int] = {}
        calls: list[Any] = []
        for v in operators:
            node = v.node
            if not isinstance(node.target, torch._ops.OpOverload):
                raise InvalidInput(f"{node.target} is no plain torch operator")
            for source in _tensor_sources(node):
                if source not in made:
                    read[source] = min(read.get(source, 2**31), *_bounds(node, source), 2**31)
            arguments = [self._encoded(a) for a in node.args]
            keywords = {name: self._encoded(a) for name, a in node.kwargs.items()}
            taken = [[r.name, r.args[1]] for r in v.results if r is not node]
            made.update((node, *v.results))
            calls.append(
                [str(node.target._schema.name), node.target._overloadname, arguments, keywords, node.name, taken]
            )
        inputs = tuple(self._input(node, below) for node, below in read.items())
        needed = sum(math.prod(i.shape) * 8 for i in inputs if not i.warm) // 2
        if needed > MEMORY_SHARE * host.memory_bytes():
            raise InvalidInput(f"weights of about {needed} B would take more than half of this machine's memory")
        return tuple(calls), inputs

    def _input(self, node: Node, below: int) -> Input:
        tensors = tensors_of(node.meta.get("val"))
        if len(tensors) != 1 or tensors[0].layout != torch.strided:
            raise InvalidInput(f"{node.name!r} is not one dense tensor")
        (tensor,) = tensors
        shape = tuple(int(concrete(s, node.name)) for s in tensor.shape)
        strides = tuple(int(concrete(s, node.name)) for s in tensor.stride())
        warm = node.name not in self.program.weights and node not in self.program.folded
        dtype = str(tensor.dtype).removeprefix("torch.")
        return Input(node.name, dtype, shape, below if below < 2**31 else 2, strides, warm=warm)

    def _encoded(self, argument: object) -> Any:
        """Argument of a call as plain data: tensors by name, sizes as numbers, torch's own constants by name."""
        if isinstance(argument, Node):
            if tensors_of(argument.meta.get("val")):
                return ["tensor", argument.name]
            return concrete(argument.meta.get("val"), argument.name)
        if isinstance(argument, list | tuple):
            return ["list", [self._encoded(a) for a in argument]]
        if argument is None or isinstance(argument, bool | int | float | str):
            return argument
        if isinstance(argument, torch.device):
            return ["device", "cpu"]
        if isinstance(argument, torch.dtype | torch.layout | torch.memory_format):
            return ["constant", str(argument).removeprefix("torch.")]
        raise InvalidInput(f"an argument of type {type(argument).__name__} can't be handed to another process")


def program_of(model: str | Path | ExportedProgram) -> ExportedProgram:
    """Export, or read, the program that a graph was captured from."""
    if isinstance(model, ExportedProgram):
        return model
    text = str(model)
    if text.startswith("py:"):
        return export_module(*load_py(text.removeprefix("py:")))
    return read_pt2(Path(model))


def _tensor_sources(node: Node) -> list[Node]:
    return [n for n in node.all_input_nodes if tensors_of(n.meta.get("val"))]


def _bounds(node: Node, source: Node) -> Iterator[int]:
    """How large an index in ``source`` may be."""
    target = node.target
    name = target._schema.name.split("::")[-1].rstrip("_") if isinstance(target, torch._ops.OpOverload) else ""
    if name not in _INDEXED or not node.args or not isinstance(node.args[0], Node) or source is node.args[0]:
        return
    table = tensors_of(node.args[0].meta.get("val"))
    if name == "embedding":
        yield from _sizes(table, [0])
    elif name in ("index", "index_put"):
        yield from _sizes(table, range(table[0].dim() if table else 0))
    elif table and len(node.args) > 1 and isinstance(node.args[1], int):
        yield from _sizes(table, [node.args[1]])


def _sizes(table: Sequence[torch.Tensor], dimensions: Iterable[int]) -> Iterator[int]:
    for d in dimensions:
        yield max(1, int(concrete(table[0].shape[d], "index")))
