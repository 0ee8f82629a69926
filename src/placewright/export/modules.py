"""From operators to the modules that runtimes place: whole layers, and what stands before and after them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from placewright.graph import Operator, OperatorGraph

__all__ = ["Unit", "main_stack", "module_devices", "unit_of_operators", "units_of"]

NODE_NAMES = frozenset(
    [
        "abs",
        "add",
        "alias",
        "arange",
        "bmm",
        "cast",
        "cat",
        "chunk",
        "clone",
        "contiguous",
        "copy",
        "cumsum",
        "detach",
        "div",
        "eq",
        "expand",
        "full",
        "gather",
        "getitem",
        "gt",
        "index",
        "le",
        "lift_fresh_copy",
        "lt",
        "masked_fill",
        "matmul",
        "mean",
        "mul",
        "ne",
        "neg",
        "ones",
        "pad",
        "permute",
        "pow",
        "repeat",
        "reshape",
        "rsqrt",
        "scalar_tensor",
        "select",
        "slice",
        "split",
        "sqrt",
        "squeeze",
        "stack",
        "sub",
        "sum",
        "to",
        "transpose",
        "tril",
        "triu",
        "unsqueeze",
        "view",
        "where",
        "zeros",
    ]
)
"""Names that torch gives to single operators, and that nobody gives to a module."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A module that a runtime keeps on one device: a numbered layer, or a module beside the layers.

    Attributes
    ----------
    path : str
        Of the module (``model.layers.3``, ``lm_head``); of an operator that no module holds, its name.
    operators : tuple of int
        Indices in the graph, ascending.
    stack : str
        Module that holds the numbered layers of which this is one (``model.layers``); empty beside them.
    number : int
        Which of them; -1 beside them.
    """

    path: str
    operators: tuple[int, ...]
    stack: str = ""
    number: int = -1


def units_of(graph: OperatorGraph) -> tuple[Unit, ...]:
    """Group operators by the modules that their names state, in the order of the graph.

    A numbered module (``h.3``) is a layer, and is not parted, as its own operators (the residual sums) tie its parts
    together; but numbered modules that hold nothing but numbered modules (``stages.0.layers.1``) are containers. Beside
    the layers stand the outermost modules that hold none. A fused operator belongs where its name says. An operator of
    a module that holds layers (a mask, a table of positions) goes with its first reader, or else with what it reads.

    Examples
    --------
    >>> names = ["embed", "h.0.fc", "h.0.add", "h.1.fc", "head.relu"]
    >>> graph = OperatorGraph([Operator(v, weight_bytes=4) for v in names])
    >>> [(u.path, u.operators) for u in units_of(graph)]
    [('embed', (0,)), ('h.0', (1, 2)), ('h.1', (3,)), ('head', (4,))]
    """
    tree = _Tree(name for v in graph.operators for name in (v.name, *v.source_names))
    nodes = _node_names(graph.operators)
    paths: list[str | None] = []
    for v in graph.operators:
        path = tree.unit(v.name)
        lonely = path == _dotted(v.name) and not v.weight_bytes and _is_node(path, nodes)
        paths.append(None if lonely and not tree.layer(path) else path)
    for k in reversed(range(len(paths))):
        if paths[k] is None:
            paths[k] = next((paths[r] for r in graph.successors[k] if paths[r] is not None), None)
    for k in range(len(paths)):
        if paths[k] is None:
            paths[k] = next((paths[r] for r in graph.predecessors[k] if paths[r] is not None), graph.operators[k].name)
    rows: dict[str, list[int]] = {}
    for k, at in enumerate(paths):
        rows.setdefault(at or "", []).append(k)
    return tuple(Unit(at, tuple(row), *tree.layer(at)) for at, row in rows.items())


def unit_of_operators(units: Sequence[Unit], n: int) -> npt.NDArray[np.int64]:
    """(n,) for each operator the index of its unit."""
    of = np.zeros(n, dtype=np.int64)
    for k, unit in enumerate(units):
        of[list(unit.operators)] = k
    return of


def main_stack(units: Sequence[Unit]) -> str:
    """Return the stack with the most layers; empty where nothing is numbered."""
    count: dict[str, int] = {}
    for unit in units:
        if unit.stack:
            count[unit.stack] = count.get(unit.stack, 0) + 1
    return max(count, key=lambda stack: count[stack], default="")


def module_devices(graph: OperatorGraph, device_of: npt.NDArray[np.int32]) -> dict[str, int]:
    """Give every module's device, by path, where each unit is on one; what was fused into another module included."""
    tree = _Tree(name for v in graph.operators for name in (v.name, *v.source_names))
    where = {unit.path: int(device_of[unit.operators[0]]) for unit in units_of(graph)}
    found: dict[str, int] = {}
    for v, device in zip(graph.operators, device_of.tolist(), strict=True):
        for name in (*v.source_names, v.name):
            path = tree.unit(name)
            if tree.layer(path) or path != _dotted(name) or not _is_node(path, NODE_NAMES):
                found.setdefault(path, where.get(path, int(device)))
    return {path: device for path, device in found.items() if not re.search(r"_\d+_*$", path) or path in where}


class _Tree:
    """What the names of a graph say of its modules."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = dict.fromkeys(tuple(_dotted(name).split(".")) for name in names)
        self.below: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
        self.holds_layers: set[tuple[str, ...]] = set()
        for name in self.names:
            for k, part in enumerate(name):
                if part.isdigit() and k:
                    self.below.setdefault(name[: k + 1], []).append(name[k + 1 :])
                    self.holds_layers.update(name[:j] for j in range(1, k + 1))

    def unit(self, name: str) -> str:
        parts = tuple(_dotted(name).split("."))
        for k, part in enumerate(parts):
            if part.isdigit() and k and not self._container(parts[: k + 1]):
                return ".".join(parts[: k + 1])
        for k in range(1, len(parts) + 1):
            if parts[:k] not in self.holds_layers:
                return ".".join(parts[:k])
        return ".".join(parts)

    def layer(self, path: str) -> tuple[str, int] | tuple[()]:
        stack, _, number = path.rpartition(".")
        return (stack, int(number)) if stack and number.isdigit() else ()

    def _container(self, path: tuple[str, ...]) -> bool:
        return all(len(rest) > 1 and rest[1].isdigit() for rest in self.below[path])


def _dotted(name: str) -> str:
    """Names of ONNX exports part modules by slashes: ``/model/layers.0/mlp/MatMul``."""
    return name.replace("/", ".").strip(".")


def _node_names(operators: Sequence[Operator]) -> frozenset[str]:
    """Collect what single operators are called in this graph."""
    kinds = {kind.rpartition(".")[2] for v in operators for kind in v.kind.split("+") if kind}
    return NODE_NAMES | kinds


def _is_node(path: str, nodes: frozenset[str]) -> bool:
    leaf = path.rpartition(".")[2]
    return re.sub(r"(_\d+)?_*$", "", leaf) in nodes
