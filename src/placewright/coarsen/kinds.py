"""Which kinds of operators any back-end runs as part of another one."""

from __future__ import annotations

from functools import lru_cache

__all__ = ["base_kind", "is_light", "is_view"]

_ONNX_LIGHT = """
Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh BatchNormalization BitShift BitwiseAnd BitwiseNot BitwiseOr
BitwiseXor Cast CastLike Ceil Celu Clip Cos Cosh DequantizeLinear Div Elu Equal Erf Exp Floor Gelu Greater
GreaterOrEqual GroupNormalization HardSigmoid HardSwish Hardmax InstanceNormalization IsInf IsNaN LRN
LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax LpNormalization Max Mean MeanVarianceNormalization Min
Mish Mod Mul Neg Not Or PRelu Pow QuantizeLinear RMSNormalization Reciprocal ReduceL1 ReduceL2 ReduceLogSum
ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Round Selu Shrink Sigmoid Sign
SimplifiedLayerNormalization Sin Sinh Softmax Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Transpose
Trilu Where Xor com.microsoft.BiasGelu com.microsoft.FastGelu com.microsoft.Gelu com.microsoft.QuickGelu
"""

_ONNX_VIEW = "Dropout Flatten Identity Reshape Shape Size Squeeze Unsqueeze"

_ATEN_LIGHT = """
_to_copy abs add addcdiv addcmul alpha_dropout batch_norm bitwise_and bitwise_not bitwise_or clamp clamp_max clamp_min
clone contiguous cos div dropout elu eq erf exp feature_dropout fill floor ge gelu group_norm gt hardsigmoid hardswish
hardtanh instance_norm le layer_norm leaky_relu log log1p log_softmax logical_and logical_not logical_or logical_xor lt
masked_fill maximum mean minimum mish mul native_dropout native_layer_norm ne neg pow prelu reciprocal relu relu6
rms_norm rsqrt rsub selu sigmoid sign silu sin softmax softplus sqrt square std sub sum tanh threshold to tril triu
true_divide type_as var where
"""

_ATEN_VIEW = """
_reshape_alias _unsafe_view alias as_strided broadcast_to chunk detach diagonal expand expand_as flatten lift_fresh_copy
lift_fresh movedim narrow numpy_T permute ravel real reshape reshape_as select slice split split_with_sizes squeeze
swapaxes swapdims sym_numel sym_size sym_stride t tensor_split transpose unbind unflatten unsqueeze view view_as
view_as_complex view_as_real
"""

_LIGHT = frozenset(_ONNX_LIGHT.split()) | {f"aten.{name}" for name in _ATEN_LIGHT.split()}
_VIEW = frozenset(_ONNX_VIEW.split()) | {f"aten.{name}" for name in _ATEN_VIEW.split()} | {"getitem"}


@lru_cache(maxsize=4096)
def base_kind(kind: str) -> str:
    """Drop a torch overload and the mark of an in-place version.

    Examples
    --------
    >>> base_kind("aten.relu_.default"), base_kind("_operator.getitem"), base_kind("Relu")
    ('aten.relu', 'getitem', 'Relu')
    """
    if kind.startswith("aten."):
        return "aten." + kind.split(".")[1].rstrip("_")
    return "getitem" if kind.endswith("getitem") else kind


@lru_cache(maxsize=4096)
def is_view(kind: str) -> bool:
    """Whether the kind moves no data: its result is its input, seen otherwise.

    Examples
    --------
    >>> is_view("Reshape"), is_view("aten.view.default"), is_view("Transpose")
    (True, True, False)
    """
    return all(base_kind(part) in _VIEW for part in kind.split("+"))


@lru_cache(maxsize=4096)
def is_light(kind: str) -> bool:
    """Whether the kind is a view, element-wise, a normalisation or a reduction, which back-ends fuse.

    Examples
    --------
    >>> is_light("Relu"), is_light("aten.gelu_"), is_light("Mul+Add"), is_light("Conv"), is_light("Conv+Relu")
    (True, True, True, False, False)
    """
    return all(base_kind(part) in _VIEW or base_kind(part) in _LIGHT for part in kind.split("+"))
