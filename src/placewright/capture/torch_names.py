"""Names for operators: the module path, and the node's name where a module has several operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from torch.fx import Node

from placewright.capture.torch_alias import operator_name

__all__ = ["module_path", "operator_names"]

_OF_NO_NOTE = {"dropout", "contiguous", "clone", "to", "add", "mul", "copy"}
"""Operators that accompany a module's real work and don't take its name."""


def module_path(node: Node) -> str:
    """Path of the innermost module that a node was traced in (``encoder.layer.3.output``); empty at the top."""
    stack = node.meta.get("nn_module_stack") or {}
    path = str(list(stack.values())[-1][0]) if stack else ""
    return path.removeprefix("L['self'].").removeprefix("L__self___")


def operator_names(nodes: Sequence[Node], views: Collection[Node]) -> dict[Node, str]:
    """Give every node a unique name that depends on the graph alone.

    A module's path names its one operator of note, where it has just one (views, copies and sums apart); every other
    operator is called ``<module path>.<node name>``.
    """
    of_note = Counter(module_path(n) for n in nodes if _is_of_note(n, views))
    names: dict[Node, str] = {}
    taken: set[str] = set()
    for node in nodes:
        path = module_path(node)
        if path and of_note[path] == 1 and _is_of_note(node, views):
            names[node] = path
            taken.add(path)
    for node in nodes:
        if node not in names:
            path = module_path(node)
            name = f"{path}.{node.name}" if path else node.name
            while name in taken:
                name += "_"
            names[node] = name
            taken.add(name)
    return names


def _is_of_note(node: Node, views: Collection[Node]) -> bool:
    return node not in views and operator_name(node) not in _OF_NO_NOTE
