"""Arithmetic and memory traffic of an ONNX operator, from its shapes. A multiply-add is two operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from placewright.capture.onnx_values import Value

__all__ = ["GATHERS", "VIEWS", "known_kind", "operator_flops", "operator_traffic_bytes"]

Values = Sequence[Value | None]
"""Inputs or outputs of a node by position; ``None`` where an optional one is left out."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


VIEWS = _words(
    "Reshape Squeeze Unsqueeze Flatten Identity Dropout Shape Size Optional OptionalGetElement OptionalHasElement"
)
"""Operators whose result is their input seen otherwise: nothing is moved."""

GATHERS = _words("Gather GatherElements GatherND Slice Split SplitToSequence Compress SequenceAt")
"""Operators that read only the part of their input that they return."""

MOVES = (
    VIEWS
    | GATHERS
    | _words(
        "Cast CastLike Concat ConcatFromSequence Constant ConstantOfShape DepthToSpace Expand EyeLike OneHot Pad Range "
        "ReverseSequence ScatterElements ScatterND Scatter SpaceToDepth Tile Transpose Trilu Upsample "
        "SequenceConstruct SequenceInsert SequenceErase SequenceEmpty SequenceLength Where CenterCropPad BitCast "
        "TensorScatter NonZero MaxUnpool Col2Im com.microsoft.QLinearConcat com.microsoft.NhwcMaxPool "
        "com.microsoft.GatherBlockQuantized com.microsoft.RemovePadding com.microsoft.RestorePadding "
        "com.microsoft.ExpandDims com.microsoft.Trilu"
    )
)
"""Operators that compute nothing."""

_PER_ELEMENT = {
    **dict.fromkeys(
        _words(
            "Exp Log Sigmoid Tanh Erf Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Softplus Elu Selu Celu "
            "Pow Mish GridSample Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike "
            "BlackmanWindow HammingWindow HannWindow MelWeightMatrix com.microsoft.QLinearSigmoid "
            "com.microsoft.ComplexMul com.microsoft.GroupNorm com.microsoft.SkipGroupNorm "
            "com.microsoft.EmbedLayerNormalization com.microsoft.LayerNormalization"
        ),
        8,
    ),
    **dict.fromkeys(_words("Gelu com.microsoft.Gelu com.microsoft.FastGelu com.microsoft.BiasGelu"), 12),
    **dict.fromkeys(_words("com.microsoft.QuickGelu Swish SwiGLU"), 10),
    **dict.fromkeys(
        _words(
            "HardSigmoid HardSwish Softsign Reciprocal Sqrt Div Mod DequantizeLinear com.microsoft.DequantizeLinear"
        ),
        2,
    ),
    **dict.fromkeys(_words("QuantizeLinear DynamicQuantizeLinear BatchNormalization com.microsoft.QuantizeLinear"), 3),
    **dict.fromkeys(_words("Softmax LogSoftmax Hardmax com.microsoft.BiasSoftmax com.microsoft.QLinearSoftmax"), 5),
    **dict.fromkeys(_words("AffineGrid"), 12),
    **dict.fromkeys(_words("RoiAlign MaxRoiPool"), 32),
    **dict.fromkeys(_words("RMSNormalization SimplifiedLayerNormalization LpNormalization"), 5),
    **dict.fromkeys(
        _words(
            "LayerNormalization InstanceNormalization GroupNormalization MeanVarianceNormalization "
            "com.microsoft.SkipLayerNormalization com.microsoft.SkipSimplifiedLayerNormalization"
        ),
        8,
    ),
    **dict.fromkeys(_words("RotaryEmbedding com.microsoft.RotaryEmbedding"), 6),
}
"""FLOPs an output element; a transcendental function counts 8. Any other operator counts 1."""


def operator_flops(kind: str, attributes: Mapping[str, Any], inputs: Values, outputs: Values) -> int:
    """Floating-point operations of one operator.

    Parameters
    ----------
    kind : str
        Operator type, with its domain unless that is the default one.
    attributes : mapping of str to value
    inputs, outputs : sequence of Value or None
        By position; sub-graphs are not looked into.

    Returns
    -------
    int
        0 for operators that only move data. An unknown operator counts one an element of its largest operand.

    Examples
    --------
    A product of 2 x 3 and 3 x 4 takes 2 * 4 results of 3 multiply-adds:

    >>> a, b, c = (Value(shape, "fp32", 32) for shape in ((2, 3), (3, 4), (2, 4)))
    >>> operator_flops("MatMul", {}, [a, b], [c])
    48
    """
    if kind in MOVES:
        return 0
    if kind in _FORMULAS:
        # With operands missing, or of another rank than the standard says, it counts as an unknown operator.
        with suppress(IndexError, AttributeError, KeyError, TypeError, ValueError):
            return int(_FORMULAS[kind](attributes, inputs, outputs))
    largest = max((v.elements for v in (*inputs, *outputs) if v is not None), default=0)
    made = outputs[0].elements if outputs and outputs[0] is not None else largest
    if kind in _PER_ELEMENT:
        return _PER_ELEMENT[kind] * made
    return made if kind in _ELEMENTWISE else largest


def operator_traffic_bytes(kind: str, inputs: Values, outputs: Values) -> int:
    """Bytes that an operator must move: inputs, weights and outputs once each; views move none.

    Parameters
    ----------
    kind : str
    inputs, outputs : sequence of Value or None
        Each value once.
    """
    if kind in VIEWS:
        return 0
    written = sum(v.size_bytes for v in outputs if v is not None)
    read = [v.size_bytes for v in inputs if v is not None]
    if kind in GATHERS and read:
        return written + min(written, read[0]) + sum(read[1:])
    return written + sum(read)


_ELEMENTWISE = _words(
    "Abs Add And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Clip Equal Floor Greater GreaterOrEqual "
    "IsInf IsNaN LeakyRelu Less LessOrEqual Mul Neg Not Or PRelu Relu Round Shrink Sign Sub ThresholdedRelu Xor "
    "com.microsoft.BiasAdd com.microsoft.BiasDropout com.microsoft.QLinearAdd com.microsoft.QLinearMul "
    "com.microsoft.QLinearLeakyRelu com.microsoft.QLinearWhere"
)


def _at(values: Values, position: int) -> Value | None:
    return values[position] if position < len(values) else None


def _shape(values: Values, position: int) -> tuple[int, ...]:
    value = values[position]
    if value is None or not value.is_tensor:
        raise ValueError(position)
    return value.shape


def _out(outputs: Values) -> int:
    return math.prod(_shape(outputs, 0))


def _convolution(weight: int, bias: int) -> Callable[[Mapping[str, Any], Values, Values], int]:
    def flops(attributes: Mapping[str, Any], inputs: Values, outputs: Values) -> int:
        made = _out(outputs)
        return 2 * made * math.prod(_shape(inputs, weight)[1:]) + (made if _at(inputs, bias) is not None else 0)

    return flops


def _transposed_convolution(attributes: Mapping[str, Any], inputs: Values, outputs: Values) -> int:
    work = 2 * math.prod(_shape(inputs, 0)) * math.prod(_shape(inputs, 1)[1:])
    return work + (_out(outputs) if _at(inputs, 2) is not None else 0)


def _gemm(attributes: Mapping[str, Any], inputs: Values, outputs: Values) -> int:
    inner = _shape(inputs, 0)[0 if attributes.get("transA") else 1]
    return 2 * _out(outputs) * inner + (_out(outputs) if _at(inputs, 2) is not None else 0)


def _matmul(attributes: Mapping[str, Any], inputs: Values, outputs: Values) -> int:
    a = _shape(inputs, 0)
    return 2 * _out(outputs) * a[-2 if attributes.get("transA") and len(a) > 1 else -1]


def _matmul_packed(attributes: Mapping[str, Any], inputs: Values, outputs: Values) -> int:
    return 2 * _out(outputs) * int(attributes["K"])


def _einsum(attributes: Mapping[str, Any], inputs: Values, outputs: Values) -> int:
    equation = attributes["equation"]
    text = (equation.decode() if isinstance(equation, bytes) else str(equation)).replace(" ", "")
    terms = text.split("->")[0].split(",")
    sizes: dict[str, int] = {}
    for k, term in enumerate(terms):
        shape = _shape(inputs, k)
        head, dots, tail = term.partition("...")
        if dots:  # broadcast axes are aligned from their end
            free = shape[len(head) : len(shape) - len(tail)]
            labels = [*head, *(f".{j}" for j in range(len(free), 0, -1)), *tail]
        else:
            labels = [*head]
        for label, size in zip(labels, shape, strict=True):
            sizes[label] = max(size, sizes.get(label, 1))
    return max(1, len(terms)) * math.prod(sizes.values())


def _reduced(factor: int) -> Callable[[Mapping[str, Any], Values, Values], int]:
    def flops(attributes: Mapping[str, Any], inputs: Values, outputs: Values) -> int:
        return factor * math.prod(_shape(inputs, 0))

    return flops


def _determinant(attributes: Mapping[str, Any], inputs: Values, outputs: Values) -> int:
    """Gaussian elimination: 2/3 n^3 for each matrix."""
    shape = _shape(inputs, 0)
    return 2 * math.prod(shape) * shape[-1] // 3


def _suppression(attributes: Mapping[str, Any], inputs: Values, outputs: Values) -> int:
    """Each box against each box that was kept: at most ``max_output_boxes_per_class``, here all that come out."""
    boxes = _shape(inputs, 0)[-2]
    return 16 * boxes * max(1, outputs[0].elements // 3 if outputs[0] is not None else 1)


def _recurrent(attributes: Mapping[str, Any], inputs: Values, outputs: Values) -> int:
    x, w, r = (_shape(inputs, k) for k in range(3))
    steps = x[0] * x[1]  # time x batch, in either layout
    gates = w[0] * w[1]  # directions x gates * hidden
    return steps * (2 * (math.prod(w) + math.prod(r)) + 10 * gates)


def _pool(attributes: Mapping[str, Any], inputs: Values, outputs: Values) -> int:
    return _out(outputs) * math.prod(int(k) for k in attributes["kernel_shape"])


def _over_inputs(attributes: Mapping[str, Any], inputs: Values, outputs: Values) -> int:
    return math.prod(_shape(inputs, 0))


def _n_ary(attributes: Mapping[str, Any], inputs: Values, outputs: Values) -> int:
    return max(1, len(inputs) - 1) * _out(outputs)


def _local_response(attributes: Mapping[str, Any], inputs: Values, outputs: Values) -> int:
    return _out(outputs) * (2 * int(attributes["size"]) + 11)  # squares and their sum, scale, power, quotient


def _resize(attributes: Mapping[str, Any], inputs: Values, outputs: Values) -> int:
    mode = attributes.get("mode", b"nearest")
    rank = len(_shape(outputs, 0))
    taps = {b"linear": 2, b"cubic": 4}.get(mode, 0) ** max(1, rank - 2)
    return 2 * int(taps) * _out(outputs)


def _sort(attributes: Mapping[str, Any], inputs: Values, outputs: Values) -> int:
    n = math.prod(_shape(inputs, 0))
    return n * max(1, math.ceil(math.log2(max(2, _out(outputs)))))


def _fourier(attributes: Mapping[str, Any], inputs: Values, outputs: Values) -> int:
    return 5 * _out(outputs) * max(1, math.ceil(math.log2(max(2, max(_shape(outputs, 0))))))


def _attention_core(batch: int, queries: int, keys: int, width: int, value_width: int, heads: int) -> int:
    """Q K^T, softmax and P V; ``width`` and ``value_width`` are summed over the heads of the queries."""
    return 2 * batch * queries * keys * (width + value_width) + 5 * batch * heads * queries * keys


def _attention(attributes: Mapping[str, Any], inputs: Values, outputs: Values) -> int:
    """``Attention`` of operator set 23: Q, K, V, mask, past key, past value; (B, H, S, d) or (B, S, H d)."""
    q, k, v = (_shape(inputs, j) for j in range(3))
    past = _at(inputs, 4)
    past_keys = past.shape[2] if past is not None else 0
    if len(q) == 4:
        return _attention_core(q[0], q[2], k[2] + past_keys, q[1] * q[3], q[1] * v[3], q[1])
    heads = int(attributes["q_num_heads"])
    value_width = v[2] // int(attributes["kv_num_heads"]) * heads
    return _attention_core(q[0], q[1], k[1] + past_keys, q[2], value_width, heads)


def _packed_attention(attributes: Mapping[str, Any], inputs: Values, outputs: Values) -> int:
    """``com.microsoft.Attention``: input (B, S, D) times weights (D, 3 D'), then attention."""
    x, w = _shape(inputs, 0), _shape(inputs, 1)
    past = _at(inputs, 4)
    keys = x[1] + (past.shape[3] if past is not None and len(past.shape) == 5 else 0)
    width = _shape(outputs, 0)[-1]
    core = _attention_core(x[0], x[1], keys, (w[1] - width) // 2, width, int(attributes["num_heads"]))
    return 2 * x[0] * x[1] * w[0] * w[1] + core


def _linear_attention(attributes: Mapping[str, Any], inputs: Values, outputs: Values) -> int:
    """``LinearAttention``, Q (B, S, H d): each head's (d, d') state decays, grows by k v^T and is multiplied by q."""
    q, v = _shape(inputs, 0), _shape(inputs, 2)
    return 5 * math.prod(q) * (v[-1] // int(attributes["kv_num_heads"]))


def _causal_convolution(attributes: Mapping[str, Any], inputs: Values, outputs: Values) -> int:
    """``CausalConvWithState``: depthwise, weights (C, 1, window)."""
    return 2 * _out(outputs) * math.prod(_shape(inputs, 1)[1:])


def _multi_head(attributes: Mapping[str, Any], inputs: Values, outputs: Values) -> int:
    """``com.microsoft.MultiHeadAttention``, ``GroupQueryAttention``: query (B, S, H d), maybe with K and V packed."""
    q, made = _shape(inputs, 0), _shape(outputs, 0)
    key, present = _at(inputs, 1), _at(outputs, 1)
    keys = key.shape[-2] if key is not None and len(key.shape) >= 3 else q[1]
    if present is not None and len(present.shape) == 4:
        keys = max(keys, present.shape[2])
    return _attention_core(made[0], made[1], keys, made[2], made[2], int(attributes["num_heads"]))


_FORMULAS: dict[str, Callable[[Mapping[str, Any], Values, Values], int]] = {
    **dict.fromkeys(("Conv", "com.microsoft.FusedConv", "com.microsoft.NhwcConv"), _convolution(1, 2)),
    **dict.fromkeys(("com.microsoft.NhwcFusedConv", "DeformConv"), _convolution(1, 3)),
    "ConvInteger": _convolution(1, 4),
    **dict.fromkeys(("QLinearConv", "com.microsoft.QLinearConv"), _convolution(3, 8)),
    "ConvTranspose": _transposed_convolution,
    **dict.fromkeys(("Gemm", "com.microsoft.FusedGemm", "com.microsoft.GemmFloat8"), _gemm),
    **dict.fromkeys(
        (
            "MatMul",
            "MatMulInteger",
            "QLinearMatMul",
            "com.microsoft.FusedMatMul",
            "com.microsoft.MatMulIntegerToFloat",
            "com.microsoft.DynamicQuantizeMatMul",
            "com.microsoft.QGemm",
        ),
        _matmul,
    ),
    **dict.fromkeys(("com.microsoft.MatMulNBits", "com.microsoft.MatMulBnb4"), _matmul_packed),
    "Einsum": _einsum,
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), _pool),
    **dict.fromkeys(
        (
            *_words("GlobalAveragePool GlobalMaxPool GlobalLpPool ArgMax ArgMin CumSum ReduceMax ReduceMin ReduceMean"),
            *_words("ReduceProd ReduceSum ReduceL1"),
        ),
        _over_inputs,
    ),
    **dict.fromkeys(("Sum", "Max", "Min", "Mean"), _n_ary),
    **dict.fromkeys(("ReduceL2", "ReduceSumSquare"), _reduced(2)),
    **dict.fromkeys(("ReduceLogSum", "CumProd", "NegativeLogLikelihoodLoss"), _reduced(1)),
    **dict.fromkeys(("ReduceLogSumExp", "SoftmaxCrossEntropyLoss"), _reduced(9)),
    "com.microsoft.QLinearGlobalAveragePool": _reduced(1),
    "com.microsoft.QLinearReduceMean": _reduced(1),
    "com.microsoft.QLinearAveragePool": _pool,
    "Det": _determinant,
    "NonMaxSuppression": _suppression,
    "LRN": _local_response,
    "Resize": _resize,
    **dict.fromkeys(("TopK", "Unique"), _sort),
    **dict.fromkeys(("DFT", "STFT"), _fourier),
    "Attention": _attention,
    "LinearAttention": _linear_attention,
    "CausalConvWithState": _causal_convolution,
    "com.microsoft.Attention": _packed_attention,
    **dict.fromkeys(("com.microsoft.MultiHeadAttention", "com.microsoft.GroupQueryAttention"), _multi_head),
}


CONTROL_FLOW = _words("If Loop Scan SequenceMap")
"""Operators whose work is that of their bodies, which are captured too."""


def known_kind(kind: str) -> bool:
    """Whether the work of an operator type is counted by a rule made for it, not as an unknown one's.

    Examples
    --------
    >>> known_kind("Conv"), known_kind("example.Mine")
    (True, False)
    """
    return any(kind in table for table in (MOVES, _FORMULAS, _PER_ELEMENT, _ELEMENTWISE, CONTROL_FLOW))
