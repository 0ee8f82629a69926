"""Shapes without data: from the example values of an fx graph to plain meta tensors, sizes and dtype names."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node
from torch.utils._pytree import tree_leaves, tree_map_only

from placewright.errors import InvalidInput

__all__ = ["DTYPES", "call_key", "concrete", "dtype_name", "moved_bytes", "on_meta", "run_on_meta", "tensors_of"]

DTYPES: dict[torch.dtype, str] = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float8_e4m3fn: "fp8",
    torch.float8_e5m2: "fp8",
    torch.int64: "int64",
    torch.int32: "int32",
    torch.int16: "int16",
    torch.int8: "int8",
    torch.uint8: "uint8",
    torch.bool: "bool",
    torch.complex64: "complex64",
    torch.complex128: "complex128",
}
UNBOUNDED = 2**31
"""A symbolic size whose upper bound is above this has no useful bound."""


def dtype_name(dtype: torch.dtype) -> str:
    """Name of a dtype in the project's words: ``torch.bfloat16`` is ``bf16``.

    Examples
    --------
    >>> dtype_name(torch.bfloat16), dtype_name(torch.quint8)
    ('bf16', 'quint8')
    """
    return DTYPES.get(dtype, str(dtype).removeprefix("torch."))


def concrete(number: Any, where: str) -> Any:
    """Python number of a symbolic one: its example value, else its upper bound; other things pass through.

    Parameters
    ----------
    number : SymInt, SymFloat, SymBool or anything
    where : str
        Name of the fx node, for the error.

    Raises
    ------
    InvalidInput
        If the number depends on data and has no upper bound.
    """
    if not isinstance(number, torch.SymInt | torch.SymFloat | torch.SymBool):
        return number
    if number.node.hint is not None:
        return number.node.hint
    if isinstance(number, torch.SymBool):
        return True
    upper = number.node.shape_env.bound_sympy(number.node.expr).upper
    if not upper.is_finite or upper > UNBOUNDED:
        raise InvalidInput(
            f"operator {where!r} has the size {number}, which depends on the data and has no upper bound; "
            "give it one in the model with torch._check(size <= limit)"
        )
    return float(upper) if isinstance(number, torch.SymFloat) else int(upper)


def on_meta(value: torch.Tensor, where: str) -> torch.Tensor:
    """Make a fresh meta tensor with the example value's shape, strides and dtype, symbols replaced."""
    size = [concrete(s, where) for s in value.shape]
    stride = [concrete(s, where) for s in value.stride()]
    return torch.empty_strided(size, stride, dtype=value.dtype, device="meta")


def tensors_of(value: Any) -> list[torch.Tensor]:
    """List the tensors in a node's example value, in order."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def moved_bytes(value: Any, where: str) -> int:
    """Bytes that hold a value's content: an expanded dimension (stride 0) counts once; a scalar is 8 bytes."""
    total = 0
    for leaf in tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            sizes = [(concrete(n, where), concrete(s, where)) for n, s in zip(leaf.shape, leaf.stride(), strict=True)]
            count = 1
            for size, stride in sizes:
                count *= size if stride or not size else 1
            total += count * leaf.element_size()
        elif leaf is not None:
            total += 8
    return total


def call_key(node: Node) -> str:
    """Text that is equal for calls of one operator with equal attributes, shapes, strides and repeated arguments."""
    position = {n: k for k, n in enumerate(node.all_input_nodes)}

    def described(argument: Node) -> Any:
        leaves = [
            (tuple(t.shape), t.stride(), t.dtype) if isinstance(t, torch.Tensor) else t
            for t in tree_leaves(argument.meta.get("val"))
        ]
        return f"{position[argument]}:{leaves}"

    return f"{node.target} {torch.fx.map_arg((node.args, node.kwargs), described)}"


def run_on_meta(node: Node) -> tuple[Any, dict[str, Any]]:
    """Call a node's operator on meta tensors; nothing is computed, only shapes and aliases come out.

    Parameters
    ----------
    node : fx.Node
        A call of an operator that takes no sub-graph.

    Returns
    -------
    (result, arguments by node name)
    """
    made: dict[str, Any] = {}

    def value_of(argument: Node) -> Any:
        if argument.name not in made:
            made[argument.name] = tree_map_only(
                torch.Tensor, lambda t: on_meta(t, argument.name), argument.meta.get("val")
            )
        return tree_map_only(
            (torch.SymInt, torch.SymFloat, torch.SymBool), lambda s: concrete(s, argument.name), made[argument.name]
        )

    args = torch.fx.map_arg(node.args, value_of)
    kwargs = torch.fx.map_arg(node.kwargs, value_of)
    args, kwargs = tree_map_only(torch.device, lambda _: torch.device("meta"), (args, kwargs))
    assert callable(node.target)
    with torch.no_grad():
        return node.target(*args, **kwargs), made
