"""Shapes of ONNX Runtime's contributed operators, which optimised models are made of and onnx has no schema for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from placewright.capture.onnx_nodes import kind_of

if TYPE_CHECKING:
    from onnx import NodeProto, TypeProto

__all__ = ["STANDARD", "contributed_shape"]

STANDARD = {"com.microsoft.FusedConv": "Conv", "com.microsoft.FusedGemm": "Gemm"}
"""Contributed operators whose results have the shape of a standard one's."""

_AS_FIRST_INPUT_TEXT = """
BiasAdd BiasDropout BiasGelu BiasSoftmax FastGelu Gelu GroupNorm MultiHeadAttention QuickGelu RotaryEmbedding
SkipGroupNorm SkipLayerNormalization SkipSimplifiedLayerNormalization
"""
_AS_FIRST_INPUT = frozenset(f"com.microsoft.{name}" for name in _AS_FIRST_INPUT_TEXT.split())


def contributed_shape(node: NodeProto, types: list[TypeProto]) -> list[int] | None:
    """Shape of a contributed operator's first output.

    Parameters
    ----------
    node : NodeProto
    types : list of TypeProto
        Of its inputs, whose sizes are all known.

    Returns
    -------
    list of int or None
        ``None`` for an operator that is not known here.
    """
    kind = kind_of(node)
    shapes = [[d.dim_value for d in t.tensor_type.shape.dim] for t in types]
    if not shapes:
        return None
    if kind in _AS_FIRST_INPUT:
        return shapes[0]
    flags = {a.name: a.i for a in node.attribute}
    if kind == "com.microsoft.MatMulNBits":
        return [*shapes[0][:-1], flags.get("N", 0)]
    if kind == "com.microsoft.FusedMatMul" and len(shapes) == 2 and min(map(len, shapes)) >= 2:
        a, b = shapes
        if flags.get("transBatchA") or flags.get("transBatchB"):
            return None
        rows = a[-1] if flags.get("transA") else a[-2]
        columns = b[-2] if flags.get("transB") else b[-1]
        return [*(int(d) for d in np.broadcast_shapes(tuple(a[:-2]), tuple(b[:-2]))), rows, columns]
    return None
