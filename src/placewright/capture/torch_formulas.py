"""FLOPs of the torch operators that have a formula which torch's own counter lacks, from the shapes of a call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch.fx import Node
from torch.utils._pytree import tree_leaves

from placewright.capture.torch_kinds import COUNTED, CUBIC, SORTS
from placewright.capture.torch_meta import concrete, tensors_of

__all__ = ["elements", "formula_flops", "seen_share"]

Shape = tuple[int, ...]


def formula_flops(name: str, node: Node) -> int | None:
    """FLOPs of a call, or ``None`` where there is no formula for it.

    Parameters
    ----------
    name : str
        As :func:`placewright.capture.torch_kinds.base_name` gives it.
    node : fx.Node
        Torch's own counter found nothing in it.
    """
    given = [a for a in tree_leaves((node.args, node.kwargs)) if isinstance(a, Node)]
    shapes = [shape for a in given for shape in _shapes(a)]
    made = elements(node)
    if name in SORTS and shapes:
        return math.prod(shapes[0]) * _log2(max(shapes[0], default=1))
    if name in CUBIC and shapes and len(shapes[0]) >= 2:
        side = shapes[0][-1]
        return int(CUBIC[name] * math.prod(shapes[0]) * side)
    if name not in COUNTED or not shapes:
        return None
    rule = _RULES.get(name)
    if rule is not None:
        try:
            return rule(node, shapes, made)
        except (IndexError, TypeError, ValueError):
            return None  # operands of another rank than the operator's documentation says
    return 2 * made * (shapes[0][-1] if shapes[0] else 1)  # a product whose formula didn't apply: k multiply-adds


def seen_share(node: Node) -> float:
    """Share of the pairs of queries and keys that a ``scaled_dot_product_attention`` looks at: less than 1 if causal.

    Query i sees keys 0 to i.
    """
    if not _argument(node, 5, "is_causal"):
        return 1.0
    queries, keys = (_shapes(_argument(node, k, name))[0][-2] for k, name in enumerate(("query", "key")))
    square = min(queries, keys)
    seen = square * (square + 1) // 2 + (queries - square) * keys
    return seen / max(1, queries * keys)


def elements(node: Node) -> int:
    """Count the elements of a node's first tensor; 0 for what is none."""
    return sum(math.prod(shape) for shape in _shapes(node)[:1])


def _shapes(node: Node) -> list[Shape]:
    tensors = tensors_of(node.meta.get("val"))
    return [tuple(int(concrete(s, node.name)) for s in t.shape) for t in tensors]


def _argument(node: Node, position: int, name: str) -> Any:
    return node.args[position] if position < len(node.args) else node.kwargs.get(name)


def _log2(n: int) -> int:
    return max(1, math.ceil(math.log2(max(2, n))))


def _pool(axes: int) -> Callable[[Node, list[Shape], int], int]:
    def flops(node: Node, shapes: list[Shape], made: int) -> int:
        kernel = _argument(node, 1, "kernel_size")
        sides = [int(k) for k in kernel] if isinstance(kernel, list | tuple) else [int(kernel)]
        return made * math.prod(sides * axes if len(sides) == 1 else sides)

    return flops


def _fourier(node: Node, shapes: list[Shape], made: int) -> int:
    given = _argument(node, 1, "dim")
    axes = [a for a in given if isinstance(a, int)] if isinstance(given, list | tuple) else [-1]
    size = math.prod(shapes[0][a] for a in axes if -len(shapes[0]) <= a < len(shapes[0]))
    return 5 * max(made, math.prod(shapes[0])) * _log2(size)


def _distances(node: Node, shapes: list[Shape], made: int) -> int:
    return 3 * made * shapes[0][-1]


def _all_of_first_matrix(node: Node, shapes: list[Shape], made: int) -> int:
    """``mv``, ``addmv``, ``dot``: each element of the matrix (or vector) is multiplied and added once."""
    return 2 * max(math.prod(s) for s in shapes)


def _power(node: Node, shapes: list[Shape], made: int) -> int:
    """As products where the exponent is small and whole, as a root where it is a half; else a function."""
    exponent = _argument(node, 1, "exponent")
    given = abs(float(exponent)) if isinstance(exponent, int | float) else 0.0
    return made * {1.0: 1, 2.0: 1, 3.0: 2, 4.0: 2, 0.5: 2}.get(given, 8)


def _outer(node: Node, shapes: list[Shape], made: int) -> int:
    return made


def _recurrent(node: Node, shapes: list[Shape], made: int) -> int:
    """Every matrix of weights is applied to every step of every sequence; the cells' own work is small beside it."""
    steps = math.prod(shapes[0][:-1])
    weights = sum(math.prod(s) for s in shapes[1:] if len(s) == 2)
    return 2 * steps * weights


def _deformable(node: Node, shapes: list[Shape], made: int) -> int:
    return 2 * made * math.prod(shapes[1][1:])


def _trilinear(node: Node, shapes: list[Shape], made: int) -> int:
    return 2 * math.prod(shapes[0][:-1]) * max(math.prod(s) for s in shapes if len(s) == 3)


def _added_product(node: Node, shapes: list[Shape], made: int) -> int:
    return 2 * made * shapes[1][-1]


def _attention(node: Node, shapes: list[Shape], made: int) -> int:
    """Q K^T and P V of (batch, heads, tokens, width)."""
    q, k, v = shapes[:3]
    return 2 * math.prod(q[:-1]) * k[-2] * (q[-1] + v[-1])


_TRANSFORMS = [name for name in COUNTED if "fft" in name] + ["stft", "istft"]
_RULES: dict[str, Callable[[Node, list[Shape], int], int]] = {
    **{f"{kind}_pool{d}d": _pool(d) for kind in ("max", "avg", "lp") for d in (1, 2, 3)},
    **{f"max_pool{d}d_with_indices": _pool(d) for d in (1, 2, 3)},
    **dict.fromkeys(_TRANSFORMS, _fourier),
    **dict.fromkeys(("cdist", "_cdist_forward", "_euclidean_dist", "pdist", "_pdist_forward"), _distances),
    **dict.fromkeys(("mv", "addmv", "dot", "vdot", "linalg_vecdot"), _all_of_first_matrix),
    **dict.fromkeys(("outer", "ger", "addr", "kron"), _outer),
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _recurrent),
    **dict.fromkeys(("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"), _recurrent),
    "deform_conv2d": _deformable,
    "pow": _power,
    **dict.fromkeys(("bilinear", "_trilinear"), _trilinear),
    "_addmm_activation": _added_product,
    **dict.fromkeys(("scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu"), _attention),
}
