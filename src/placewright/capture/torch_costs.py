"""Work of one fx node: FLOPs, bytes that it must move, dtype of its arithmetic, and a signature for equal work."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch.fx import Node
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from placewright.capture.torch_alias import operator_name
from placewright.capture.torch_meta import concrete, dtype_name, moved_bytes, run_on_meta, tensors_of
from placewright.errors import InvalidInput

__all__ = ["arithmetic_dtype", "flops", "kind", "signature", "traffic_bytes"]

_PER_OUTPUT = {
    "gelu": 8,
    "silu": 4,
    "mish": 8,
    "softplus": 3,
    "sigmoid": 3,
    "tanh": 4,
    "hardswish": 4,
    "hardsigmoid": 3,
    "elu": 3,
    "softmax": 5,
    "_softmax": 5,
    "log_softmax": 6,
    "layer_norm": 8,
    "native_layer_norm": 8,
    "group_norm": 8,
    "native_group_norm": 8,
    "instance_norm": 8,
    "rms_norm": 4,
    "batch_norm": 2,
    "_native_batch_norm_legit_no_training": 2,
    "native_batch_norm": 2,
    "addcmul": 2,
    "lerp": 3,
}
"""FLOPs for each element of the output, a transcendental function counted as one."""

_OF_INPUT = {
    *(
        "sum",
        "mean",
        "var",
        "std",
        "prod",
        "amax",
        "amin",
        "max",
        "min",
        "argmax",
        "argmin",
        "norm",
        "linalg_vector_norm",
    ),
    *(
        "cumsum",
        "cumprod",
        "topk",
        "sort",
        "all",
        "any",
        "logsumexp",
        "var_mean",
        "adaptive_avg_pool2d",
        "adaptive_avg_pool1d",
    ),
    *("adaptive_max_pool2d", "nll_loss", "cross_entropy_loss", "count_nonzero"),
}
"""Reductions: one FLOP for each element of the first input."""

_POOLS = {"max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "max_pool2d_with_indices"}

_MOVES = {
    *(
        "embedding",
        "index",
        "index_select",
        "gather",
        "take",
        "take_along_dim",
        "cat",
        "stack",
        "pad",
        "constant_pad_nd",
    ),
    *("clone", "contiguous", "copy", "copy_", "_to_copy", "to", "type_as", "lift_fresh_copy", "reshape", "flatten"),
    *("repeat", "repeat_interleave", "roll", "flip", "unfold", "im2col", "index_put", "index_put_", "index_copy"),
    *("index_copy_", "scatter", "scatter_", "slice_scatter", "select_scatter", "masked_fill", "masked_fill_", "where"),
    *("full", "full_like", "zeros", "zeros_like", "ones", "ones_like", "empty", "empty_like", "new_zeros", "new_ones"),
    *(
        "new_full",
        "new_empty",
        "fill_",
        "zero_",
        "arange",
        "tril",
        "triu",
        "pixel_shuffle",
        "upsample_nearest2d",
        "item",
    ),
    *("scalar_tensor", "nonzero", "one_hot", "getitem", "slice", "select", "dropout", "eye", "linspace", "index_fill"),
}
"""Operators that only move data: 0 FLOPs."""

_GROUPED = {"_grouped_mm", "grouped_mm"}
"""Matrix products of groups of rows with a matrix each (experts): torch has no formula of their own."""

_READ_ROWS = {"embedding", "index", "index_select", "gather", "take", "take_along_dim"}
"""Operators that read as much of their first argument as they return."""


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
    operator is called on meta tensors; element-wise operators count 1 to 8 for each element, reductions 1 for each
    input element, views and moves 0. Of the branches of a ``cond`` the largest counts.

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
    counted = _counted(node)
    if counted:
        return counted
    name = operator_name(node).removesuffix("_")
    if name in _GROUPED and len(node.all_input_nodes) > 1:
        inner: int = concrete(node.all_input_nodes[0].meta["val"].shape[-1], node.name)
        return 2 * _elements(node) * inner
    if name in _MOVES or operator_name(node) in _MOVES:
        return 0
    if name in _OF_INPUT and node.all_input_nodes:
        return _elements(node.all_input_nodes[0])
    if name in _POOLS:
        kernel = node.args[1]
        sides: list[Any] = list(kernel) if isinstance(kernel, list | tuple) else []
        return int(_elements(node) * math.prod(sides))
    return _elements(node) * _PER_OUTPUT.get(name, 1)


def traffic_bytes(node: Node, *, view: bool) -> int:
    """Bytes read and written: every input, weight and output once; 0 for a view.

    A look-up (``embedding``, ``index``, ``gather``) reads only the rows that it returns.
    """
    if view or not tensors_of(node.meta.get("val")):
        return 0
    made = moved_bytes(tensors_of(node.meta.get("val")), node.name)
    sources = [n for n in node.all_input_nodes if tensors_of(n.meta.get("val"))]
    read = [moved_bytes(tensors_of(n.meta["val"]), n.name) for n in sources]
    if operator_name(node) in _READ_ROWS and read:
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


def _elements(node: Node) -> int:
    return sum(math.prod(concrete(s, node.name) for s in t.shape) for t in tensors_of(node.meta.get("val"))[:1])


def _counted(node: Node) -> int:
    """FLOPs that torch's own formulas give; 0 where it has none or the operator can't run on meta tensors."""
    counter = FlopCounterMode(display=False)
    try:
        with counter:
            run_on_meta(node)
    except (RuntimeError, TypeError, NotImplementedError, ValueError):
        return 0
    return int(counter.get_total_flops())
