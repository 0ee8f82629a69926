"""Fusions of ONNX Runtime: https://onnxruntime.ai/docs/performance/model-optimizations/graph-optimizations.html.

Names of its transformers stand beside the patterns. ``Add`` with one input is a sum with a weight.
"""

from __future__ import annotations

__all__ = ["CPU", "CUDA"]

_LAYOUT = """
# TransposeOptimizer: reshaping between two becomes one
Reshape?(Transpose(Reshape?(Transpose($x))))
"""

_NORMS = """
# SkipLayerNormFusion, LayerNormFusion, SimplifiedLayerNormFusion
LayerNormalization|SimplifiedLayerNormalization(Add($a, $b))
LayerNormalization(Add[weights]($a))
Add[weights]?(Mul[weights]?(Div($d=Sub($x, ReduceMean($x)), Sqrt(Add[scalar](ReduceMean(Pow[scalar]($d)))))))
Add[weights]?(Mul[weights]?(Div($d=Sub($x, ReduceMean($x)), Sqrt(Add[scalar](ReduceMean(Mul($d)))))))
Mul[weights](Div($x, Sqrt(Add[scalar](ReduceMean(Pow[scalar]($x))))))
"""

_GELUS = """
# GeluFusion, FastGeluFusion, QuickGeluFusion
Mul[scalar](Mul($x, Add[scalar](Erf(Div|Mul[scalar]($x)))))
Mul($x, Mul[scalar](Add[scalar](Erf(Div|Mul[scalar]($x)))))
Mul(Mul[scalar]($x), Add[scalar](Erf(Div|Mul[scalar]($x))))
Mul(Mul[scalar]($x), Add[scalar](Tanh(Mul[scalar](Add($x, Mul[scalar](Pow[scalar]($x)))))))
Mul($x, Sigmoid(Mul[scalar]?($x)))
"""

_PRODUCTS = """
# MatMulScaleFusion, MatmulTransposeFusion
MatMul(Mul|Div[scalar]?($a), Mul|Div[scalar]?(Reshape(Transpose[last-two](Reshape($b)))))
MatMul(Mul|Div[scalar]?(Transpose?[last-two]($a)), Mul|Div[scalar]?(Transpose?[last-two]($b)))
"""

_MATMUL_ADD = """
# MatMulAddFusion
Add[weights](MatMul($a))
Add[weights](MatMul[weights](*))
"""

CPU = (
    _LAYOUT,
    """
# ConvBNFusion, ConvMulFusion, ConvAddFusion, ConvActivationFusion; sums of two branches in the blocked layout,
# into which channels that come last are brought on the way
Relu?(Add|Sum(Add?(Mul?(BatchNormalization?(Conv[dense](*)))), $y))
Relu|Clip|Sigmoid|Tanh|LeakyRelu|HardSigmoid?(Add?(Mul?(BatchNormalization?(Conv(Reshape[image](Transpose[last-two]($x)))))))
Relu|Clip|Sigmoid|Tanh|LeakyRelu|HardSigmoid?(Add?(Mul?(BatchNormalization?(Conv(Transpose[image]($x))))))
Relu|Clip|Sigmoid|Tanh|LeakyRelu|HardSigmoid?(Add?(Mul?(BatchNormalization?(Conv(*)))))
# GemmActivationFusion
Relu|Clip|Sigmoid|Tanh|LeakyRelu|Elu|Selu|Softplus|Softsign|ThresholdedRelu|HardSigmoid(Gemm(*))
"""
    + _MATMUL_ADD,
    _NORMS + _GELUS + _PRODUCTS,
)

CUDA = (
    _LAYOUT,
    """
# ConvBNFusion, ConvMulFusion, ConvAddFusion; cuDNN adds the sum of two branches
Relu(Add|Sum(Add?(Mul?(BatchNormalization?(Conv(*)))), $y))
Relu?(Add?(Mul?(BatchNormalization?(Conv(*)))))
# BiasGeluFusion, BiasSoftmaxFusion
Gelu(Add[weights]($x))
Softmax(Add($a, $b))
"""
    + _MATMUL_ADD,
    _NORMS + _GELUS + _PRODUCTS,
)
