"""One flat fx graph for an exported program: sub-graphs that only switch gradients or autocast off are inlined."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node

from placewright.errors import InvalidInput

__all__ = ["attribute", "flat_graph"]

_GRAD = "wrap_with_set_grad_enabled"
_AUTOCAST = "wrap_with_autocast"


def flat_graph(program: ExportedProgram) -> Graph:
    """Graph of an exported program without wrappers; the program's own graph when there are none.

    ``wrap_with_set_grad_enabled`` and a ``wrap_with_autocast`` that is off change nothing in inference, so their body
    takes their place. Node names stay as the program has them; those of a body are made unique in a fixed way.

    Raises
    ------
    InvalidInput
        For an autocast that is on: its operators' dtypes are decided at run time.
    """
    if not any(_wrapper(node) for node in program.graph.nodes):
        graph: Graph = program.graph
        return graph
    flat = Graph()
    copied: dict[Node, Any] = {}
    _copy_into(flat, program.graph, program.graph_module, copied, top=True)
    flat.lint()
    return flat


def attribute(node: Node, owner: torch.nn.Module) -> object:
    """Give what a ``get_attr`` node stands for: a tensor, a sub-graph or ``None``.

    Parameters
    ----------
    node : fx.Node
        Of the program's graph, or of the flat one.
    owner : Module
        The program's graph module.
    """
    found: object = node.meta.get("owner", owner)
    for name in str(node.target).split("."):
        found = getattr(found, name, None)
    return found


def _wrapper(node: Node) -> str:
    name = getattr(node.target, "__name__", "") if node.op == "call_function" else ""
    return name if name in (_GRAD, _AUTOCAST) else ""


def _copy_into(flat: Graph, graph: Graph, owner: GraphModule, copied: dict[Node, Any], *, top: bool) -> Any:
    """Copy nodes to the end of ``flat``; returns what the graph returns."""
    bodies = {node.args[1 if _wrapper(node) == _GRAD else 4] for node in graph.nodes if _wrapper(node)}
    for node in graph.nodes:
        wrapper = _wrapper(node)
        if node in copied or node in bodies:
            continue
        if node.op == "output":
            returned = torch.fx.map_arg(node.args[0], lambda n: copied[n])
            if top:
                flat.output(returned).meta.update(node.meta)
            return returned
        if wrapper:
            if wrapper == _AUTOCAST and node.args[2]:
                raise InvalidInput(
                    f"operator {node.name!r} runs under autocast, which picks dtypes at run time; "
                    "convert the module with .to(dtype) and export it without autocast"
                )
            body = node.args[1 if wrapper == _GRAD else 4]
            operands = node.args[2 if wrapper == _GRAD else 5 :]
            assert isinstance(body, Node)
            inner = attribute(body, owner)
            assert isinstance(inner, GraphModule)
            parameters = [n for n in inner.graph.nodes if n.op == "placeholder"]
            for parameter, operand in zip(parameters, operands, strict=True):
                copied[parameter] = copied[operand] if isinstance(operand, Node) else operand
            copied[node] = _copy_into(flat, inner.graph, inner, copied, top=False)
        elif _is_getitem(node) and not isinstance(copied[node.all_input_nodes[0]], Node):
            copied[node] = copied[node.all_input_nodes[0]][node.args[1]]
        else:
            new = flat.node_copy(node, lambda n: copied[n])
            if node.op == "get_attr":
                new.meta["owner"] = owner
            copied[node] = new
    raise InvalidInput("the program's graph returns nothing; return at least one tensor")


def _is_getitem(node: Node) -> bool:
    return node.op == "call_function" and getattr(node.target, "__name__", "") == "getitem"
