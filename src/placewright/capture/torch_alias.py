"""Which values of an fx graph share storage, and which nodes write to it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import torch
from torch.fx import Graph, Node
from torch.utils._pytree import tree_leaves

from placewright.capture.torch_meta import call_key, run_on_meta, tensors_of

__all__ = ["Aliases", "find_aliases", "is_getitem", "operator_name"]

_WRITES_WHEN_TRAINING = {"batch_norm": (3, 4, 5), "instance_norm": (3, 4, 5)}
"""Operators that write running statistics without saying so: positions of mean, variance and of the switch."""


@dataclass(frozen=True)
class Aliases:
    """Aliases in one graph.

    Attributes
    ----------
    storage_of : dict of node to int
        Number of the storage (a class of nodes whose values may share memory) of each node's value.
    views : frozenset of node
        Nodes whose every tensor shares the storage of one of their arguments and that write to none.
    writes : dict of node to tuple of int
        Storages that a node writes to; only nodes that write.
    """

    storage_of: dict[Node, int]
    views: frozenset[Node]
    writes: dict[Node, tuple[int, ...]]

    def accesses(self, nodes: Iterable[Node]) -> dict[int, list[Node]]:
        """For each storage that some node writes: the given nodes that make, read or write it, in their order."""
        written = {storage for row in self.writes.values() for storage in row}
        found: dict[int, list[Node]] = {storage: [] for storage in sorted(written)}
        for node in nodes:
            touched = {self.storage_of[n] for n in (node, *node.all_input_nodes)}
            for storage in sorted(touched & written):
                found[storage].append(node)
        return found


def find_aliases(graph: Graph, same_storage: dict[str, Hashable]) -> Aliases:
    """Union nodes whose values may share storage; near-linear in the size of the graph.

    Every operator is called on meta tensors of its inputs' shapes and strides, equal calls once: its outputs alias
    those arguments whose storage they share (so a ``reshape`` that must copy is no view). Where that fails, every
    argument counts that the operator's schema marks. What an operator writes to is taken from its schema.

    Parameters
    ----------
    graph : fx.Graph
    same_storage : dict of node name to key
        Weights with equal keys share storage (tied weights).
    """
    parent: dict[Node, Node] = {}

    def root(node: Node) -> Node:
        while parent[node] is not node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    first: dict[Hashable, Node] = {}
    known: dict[str, tuple[tuple[int, ...], bool]] = {}
    views: set[Node] = set()
    written: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        parent[node] = node
        if node.name in same_storage:
            parent[node] = root(first.setdefault(same_storage[node.name], node))
        if node.op != "call_function":
            continue
        if is_getitem(node):
            sources = list(node.all_input_nodes)
        else:
            targets = _written_inputs(node)
            if targets:
                written[node] = sources = targets
            else:
                key = call_key(node)
                if key not in known:
                    known[key] = _aliased_inputs(node)
                positions, view = known[key]
                sources = [node.all_input_nodes[k] for k in positions]
                if view:
                    views.add(node)
        for source in sources:
            parent[root(node)] = root(source)
    number: dict[Node, int] = {}
    storage_of = {node: number.setdefault(root(node), len(number)) for node in graph.nodes}
    writes = {node: tuple(sorted({storage_of[n] for n in row})) for node, row in written.items()}
    return Aliases(storage_of, frozenset(views), writes)


def is_getitem(node: Node) -> bool:
    """Whether a node takes one of several results of another."""
    return node.op == "call_function" and getattr(node.target, "__name__", "") == "getitem"


def operator_name(node: Node) -> str:
    """Name without namespace and overload: ``linear`` for ``torch.ops.aten.linear.default``."""
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.name.split("::")[-1]
    return str(getattr(node.target, "__name__", node.target))


def _marked(node: Node, *, written: bool) -> list[Node]:
    """List the nodes passed for arguments that the schema marks as written, or as aliased by a result."""
    found: list[Node] = []
    if isinstance(node.target, torch._ops.OpOverload):
        for k, argument in enumerate(node.target._schema.arguments):
            info = argument.alias_info
            if info is not None and info.is_write == written:
                given = node.args[k] if k < len(node.args) else node.kwargs.get(argument.name)
                found += [leaf for leaf in tree_leaves(given) if isinstance(leaf, Node)]
    return found


def _written_inputs(node: Node) -> list[Node]:
    found = _marked(node, written=True)
    positions = _WRITES_WHEN_TRAINING.get(operator_name(node))
    if positions is not None and len(node.args) > positions[2] and node.args[positions[2]]:
        found += [a for a in (node.args[k] for k in positions[:2]) if isinstance(a, Node)]
    return found


def _aliased_inputs(node: Node) -> tuple[tuple[int, ...], bool]:
    """Find the inputs, by position, whose storage the result shares, and whether the whole result is such a view."""
    inputs = node.all_input_nodes
    if not isinstance(node.target, torch._ops.OpOverload) or not inputs:
        return (), False
    try:
        result, made = run_on_meta(node)
    except (RuntimeError, TypeError, NotImplementedError, ValueError):
        marked = _marked(node, written=False)
        return tuple(k for k, n in enumerate(inputs) if n in marked), bool(marked)
    storages = [t.untyped_storage()._cdata for t in tensors_of(result)]
    owned = [{t.untyped_storage()._cdata for t in tensors_of(made.get(n.name))} for n in inputs]
    aliased = tuple(k for k, row in enumerate(owned) if row.intersection(storages))
    return aliased, bool(storages) and set().union(*owned).issuperset(storages)
