"""Fusions of TorchInductor: loops are joined, calls of libraries (matrix products, convolutions, attention) are not."""

from __future__ import annotations

from placewright.coarsen.loops import Loops

__all__ = ["LOOPS"]

_ELEMENTWISE = """
_to_copy abs add addcdiv addcmul batch_norm bitwise_and bitwise_not bitwise_or bitwise_xor ceil clamp clamp_max
clamp_min clone contiguous cos div dropout elu eq erf erfc exp expand_as expm1 fill floor floor_divide fmod
full_like ge gelu glu gt hardsigmoid hardswish hardtanh isfinite isinf isnan le leaky_relu lerp log log10 log1p log2
logical_and logical_not logical_or logical_xor lt masked_fill maximum minimum mish mul nan_to_num ne neg new_ones
new_zeros ones_like pow prelu reciprocal relu relu6 remainder round rsqrt rsub selu sigmoid sign silu sin softplus
sqrt square sub tanh threshold to tril triu true_divide type_as where zeros_like
"""

_REDUCTIONS = """
all amax amin any argmax argmin group_norm instance_norm layer_norm linalg_vector_norm log_softmax logsumexp
max mean min native_layer_norm norm prod rms_norm softmax std sum var var_mean
"""

_LOOKUPS = "constant_pad_nd embedding flip gather index index_select pad repeat roll stack"

_LAST = (
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool2d avg_pool1d avg_pool2d cat concat max_pool1d max_pool2d"
)


def _aten(names: str) -> frozenset[str]:
    return frozenset(f"aten.{name}" for name in names.split())


LOOPS = Loops(_aten(_ELEMENTWISE + _LOOKUPS), _aten(_REDUCTIONS), _aten(_LAST))
