"""Fusions of TensorRT, by its developer guide ("Types of fusions"); they were not checked against a run of it.

https://docs.nvidia.com/deeplearning/tensorrt/latest/performance/best-practices.html
"""

from __future__ import annotations

from placewright.coarsen.loops import Loops

__all__ = ["LOOPS", "PATTERNS"]

PATTERNS = """
# convolution and scale, sum and activation; convolution and GELU
Relu|Clip|Sigmoid|Tanh|LeakyRelu|Elu?(Add|Sum(Add?(Mul?(BatchNormalization?(Conv|ConvTranspose(*)))), $y))
Relu|Clip|Sigmoid|Tanh|LeakyRelu|Elu|Gelu?(Add?(Mul?(BatchNormalization?(Conv|ConvTranspose(*)))))
Mul($c=Add?(Mul?(BatchNormalization?(Conv(*)))), Sigmoid($c))
# scale and activation
Relu|Clip|Sigmoid|Tanh(BatchNormalization($x))
# matrix product, bias and activation
Relu|Clip|Sigmoid|Tanh|Gelu?(Add[weights]?(MatMul|Gemm(*)))
# GELU and Softplus
Mul[scalar](Mul($x, Add[scalar](Erf(Div|Mul[scalar]($x)))))
Mul($x, Mul[scalar](Add[scalar](Erf(Div|Mul[scalar]($x)))))
Mul(Mul[scalar]($x), Add[scalar](Tanh(Mul[scalar](Add($x, Mul[scalar](Pow[scalar]($x)))))))
# reduction and division; L1 and L2 norms
Sqrt(ReduceSum(Mul|Pow(*)))
# multi-head attention: scaled products around a softmax
MatMul(Softmax(Add?(Mul|Div[scalar]?(MatMul($q, $k)))), $v)
MatMul(Softmax(Add(Mul|Div[scalar]?(MatMul($q, $k)), $m)), $v)
# shuffles
Reshape?(Transpose(Reshape?(Transpose?($x))))
"""

_POINTWISE = """
Abs Add And Ceil Clip Cos Div Elu Equal Erf Exp Floor Gelu Greater HardSigmoid HardSwish LeakyRelu Less Log Max Min Mul
Neg Not Or PRelu Pow Reciprocal Relu Round Selu Sigmoid Sign Sin Softplus Softsign Sqrt Sub Sum Tanh ThresholdedRelu
Where Xor
"""

LOOPS = Loops(frozenset(_POINTWISE.split()))
"""Point-wise fusion: neighbours that are all element-wise become one."""
