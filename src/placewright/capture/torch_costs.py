"""Work of one fx node: FLOPs, bytes that it must move, dtype of its arithmetic, and a signature for equal work."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch.fx import Node
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from placewright.capture.torch_alias import operator_name
from placewright.capture.torch_formulas import elements, formula_flops, seen_share
from placewright.capture.torch_kinds import MOVES, OF_INPUT, PER_OUTPUT, READ_ROWS, base_name
from placewright.capture.torch_meta import concrete, dtype_name, moved_bytes, run_on_meta, tensors_of
from placewright.errors import InvalidInput

__all__ = ["arithmetic_dtype", "flops", "kind", "signature", "traffic_bytes"]


def kind(node: Node) -> str:
    """Name what a node computes: ``aten.linear``.

    Higher-order operators are ``higher_order.cond`` and the like, arithmetic on sizes ``sym.mul``.
    """
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.name.replace("::", ".")
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        return f"higher_order.{operator_name(node)}"
    return f"sym.{operator_name(node)}"


def flops(node: Node, bodies: Sequence[torch.fx.GraphModule] = (), *, view: bool = False) -> int:
    """Floating-point operations of one call (a multiply-add is two).

    Matrix products, convolutions and attention are counted by the formulas of ``torch.utils.flop_counter`` while the
    operator is called on meta tensors, what it has none for by :mod:`placewright.capture.torch_formulas`, all else by
    the tables of :mod:`placewright.capture.torch_kinds`; views and moves are 0. Of causal attention the pairs count
    that it looks at, as kernels skip the others. An operator that is in no table counts one for each element of its
    largest operand. Of the branches of a ``cond`` the largest counts.

    Raises
    ------
    InvalidInput
        For a loop whose number of turns is not known.
    """
    if bodies:
        if "while_loop" in str(node.target):
            raise InvalidInput(
                f"operator {node.name!r} is a while_loop, whose number of turns depends on the data; "
                "export the module with the loop unrolled or give one turn as the module"
            )
        called = [[n for n in g.graph.nodes if n.op == "call_function"] for g in bodies]
        return max(sum(flops(n) for n in nodes) for nodes in called)
    if view:
        return 0
    name = base_name(operator_name(node))
    counted = _counted(node)
    if counted:
        return int(counted * seen_share(node)) if name == "scaled_dot_product_attention" else counted
    by_formula = formula_flops(name, node)
    if by_formula is not None:
        return by_formula
    if name in MOVES:
        return 0
    if name in PER_OUTPUT:
        return PER_OUTPUT[name] * elements(node)
    sizes = [elements(n) for n in (*node.all_input_nodes, node)]
    if name in OF_INPUT:
        return OF_INPUT[name] * sizes[0]
    return max(sizes)


def traffic_bytes(node: Node, *, view: bool) -> int:
    """Bytes read and written: every input, weight and output once; 0 for a view.

    A look-up (``embedding``, ``index``, ``gather``) reads only the rows that it returns.
    """
    if view or not tensors_of(node.meta.get("val")):
        return 0
    made = moved_bytes(tensors_of(node.meta.get("val")), node.name)
    sources = [n for n in node.all_input_nodes if tensors_of(n.meta.get("val"))]
    read = [moved_bytes(tensors_of(n.meta["val"]), n.name) for n in sources]
    if base_name(operator_name(node)) in READ_ROWS and read:
        read[0] = min(read[0], made)
    if operator_name(node) == "copy_" and read:
        read[0] = 0
    return made + sum(read)


def arithmetic_dtype(node: Node) -> str:
    """Dtype of the first floating-point result, else input, else of the result."""
    made = tensors_of(node.meta.get("val"))
    read = [t for n in node.all_input_nodes for t in tensors_of(n.meta.get("val"))]
    for tensor in (*made, *read):
        if tensor.dtype.is_floating_point:
            return dtype_name(tensor.dtype)
    return dtype_name(made[0].dtype) if made else "int64"


def signature(node: Node, fixed: Collection[str], *, view: bool) -> str:
    """Hash of everything that decides the work: operator, attributes, shapes, dtypes, and which inputs are weights.

    Parameters
    ----------
    node : fx.Node
    fixed : collection of str
        Names of the nodes that are weights or folded.
    view : bool
        Whether the node is a view: a ``reshape`` that need not copy is other work than one that must.
    """

    def shape(value: Any, where: str) -> object:
        leaves = tree_leaves(value)
        return tuple(
            (tuple(concrete(s, where) for s in t.shape), dtype_name(t.dtype))
            if isinstance(t, torch.Tensor)
            else type(t).__name__
            for t in leaves
        )

    def described(argument: Node) -> Any:
        return _Described(repr((shape(argument.meta.get("val"), argument.name), argument.name in fixed)))

    attributes = torch.fx.map_arg((node.args, node.kwargs), described)
    kept = [a for a in tree_leaves(attributes) if not isinstance(a, torch.device)]
    structure = (str(node.target), repr(kept), shape(node.meta.get("val"), node.name), view)
    return hashlib.sha256(repr(structure).encode()).hexdigest()[:16]


class _Described:
    """A placeholder for a tensor argument in a signature."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _counted(node: Node) -> int:
    """FLOPs that torch's own formulas give; 0 where it has none or the operator can't run on meta tensors."""
    counter = FlopCounterMode(display=False)
    try:
        with counter:
            run_on_meta(node)
    except (RuntimeError, TypeError, NotImplementedError, ValueError):
        return 0
    return int(counter.get_total_flops())
