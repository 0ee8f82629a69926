"""Structure of an ONNX graph: unique names, what each node reads, topological order, and which nodes are constant."""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from placewright.errors import InvalidInput

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

__all__ = ["bodies", "constant_nodes", "kind_of", "node_names", "node_order", "reads", "weight_names", "writes"]

_RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)


def node_names(model: ModelProto) -> list[str]:
    """Name each node of a model's graph uniquely, in the order that the file lists them.

    A node keeps its own name; the first of those that share one keeps it. The others, and nodes without a name, are
    named by operator type and position.

    Parameters
    ----------
    model : ModelProto

    Returns
    -------
    list of str
        One a node.
    """
    nodes = model.graph.node
    taken = {node.name for node in nodes}
    used: set[str] = set()
    names: list[str] = []
    for position, node in enumerate(nodes):
        name = node.name
        if not name or name in used:
            name = f"{name or node.op_type}_{position}"
            while name in taken:
                name += "_"
            taken.add(name)
        used.add(name)
        names.append(name)
    return names


def kind_of(node: NodeProto) -> str:
    """Operator type, with its domain unless that is the default one."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """Sub-graphs of a node (If, Loop, Scan)."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def reads(node: NodeProto) -> tuple[str, ...]:
    """Values that a node reads, each once: its inputs, then what its sub-graphs take from outside."""
    names = dict.fromkeys(name for name in node.input if name)
    for body in bodies(node):
        names.update(dict.fromkeys(_captures(body)))
    return tuple(names)


def writes(node: NodeProto) -> tuple[str, ...]:
    """Values that a node makes."""
    return tuple(name for name in node.output if name)


def weight_names(graph: GraphProto) -> set[str]:
    """Names of a graph's initialisers."""
    return {t.name for t in graph.initializer} | {s.values.name for s in graph.sparse_initializer}


def _captures(body: GraphProto) -> Iterator[str]:
    own = weight_names(body) | {i.name for i in body.input}
    for node in body.node:
        own.update(writes(node))
    for node in body.node:
        yield from (name for name in reads(node) if name not in own)
    yield from (o.name for o in body.output if o.name not in own)


def node_order(model: ModelProto) -> list[int]:
    """Positions of a graph's nodes in topological order: as the file lists them, where that is one.

    Parameters
    ----------
    model : ModelProto

    Raises
    ------
    InvalidInput
        If the nodes form a cycle, a value is made twice, or one is read that nothing makes.
    """
    graph, names = model.graph, node_names(model)
    given = weight_names(graph) | {i.name for i in graph.input}
    maker: dict[str, int] = {}
    found: list[str] = []
    for position, node in enumerate(graph.node):
        for value in writes(node):
            if value in maker or value in given:
                other = f"operator {names[maker[value]]!r}" if value in maker else "an input or weight"
                found.append(
                    f"value {value!r} is made by operator {names[position]!r} and by {other}; give each its own name"
                )
            maker[value] = position
    rows: list[list[int]] = []
    for position, node in enumerate(graph.node):
        missing = [value for value in reads(node) if value not in maker and value not in given]
        if missing:
            found.append(
                f"operator {names[position]!r} reads {missing[0]!r}, which no operator, input or weight provides; "
                "export the model again"
            )
        rows.append([maker[value] for value in reads(node) if value in maker])
    missing = [o.name for o in graph.output if o.name not in maker and o.name not in given]
    if missing:
        found.append(f"output {missing[0]!r} is made by no operator; export the model again")
    if found:
        raise InvalidInput(found, what=f"ONNX graph {graph.name!r}")
    if all(before < position for position, row in enumerate(rows) for before in row):
        return list(range(len(rows)))
    try:
        return list(TopologicalSorter(dict(enumerate(rows))).static_order())
    except CycleError as cycle:
        path = cycle.args[1]
        shown = " -> ".join(repr(names[k]) for k in path[:8]) + (" -> ..." if len(path) > 8 else "")
        raise InvalidInput(
            f"the operators form a cycle: {shown}; a placement needs an acyclic graph, so remove one of these edges",
            what=f"ONNX graph {graph.name!r}",
        ) from None


def constant_nodes(model: ModelProto) -> set[int]:
    """Positions of the nodes whose outputs don't depend on the network's inputs: weights, not operators.

    A node is constant when everything that it reads is an initialiser or made by a constant node, and it draws no
    random numbers. Whoever runs a part of the network must copy those that the part reads from.

    Parameters
    ----------
    model : ModelProto

    Raises
    ------
    InvalidInput
        As :func:`node_order`.
    """
    fixed = weight_names(model.graph)
    constant: set[int] = set()
    random_functions = {
        (f.domain, f.name) for f in model.functions if any(n.op_type in _RANDOM or list(bodies(n)) for n in f.node)
    }
    for position in node_order(model):
        node = model.graph.node[position]
        if all(name in fixed for name in reads(node)) and not _draws(node, random_functions):
            constant.add(position)
            fixed.update(writes(node))
    return constant


def _draws(node: NodeProto, random_functions: set[tuple[str, str]]) -> bool:
    """Whether a node draws random numbers, itself or in a sub-graph."""
    if node.op_type in _RANDOM or (node.domain, node.op_type) in random_functions:
        return True
    return any(_draws(inner, random_functions) for body in bodies(node) for inner in body.node)
