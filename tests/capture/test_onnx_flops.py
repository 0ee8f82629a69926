"""FLOPs of ONNX operators against counts made by hand or by loops."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.capture.onnx_flops import operator_flops, operator_traffic_bytes
from placewright.capture.onnx_values import Value


def fp32(*shape: int) -> Value:
    return Value(shape, "fp32", 32)


size = st.integers(1, 4)


@given(batch=size, groups=st.integers(1, 3), c=size, m=size, side=st.integers(3, 6), kernel=st.integers(1, 3))
def test_conv_equals_counting_loops(batch: int, groups: int, c: int, m: int, side: int, kernel: int) -> None:
    """A convolution without padding makes one multiply-add for each result, input channel and kernel position."""
    out = side - kernel + 1
    count = 0
    for _ in product(range(batch), range(groups * m), range(out), range(out)):
        count += 2 * c * kernel * kernel
    flops = operator_flops(
        "Conv",
        {"group": groups},
        [fp32(batch, groups * c, side, side), fp32(groups * m, c, kernel, kernel)],
        [fp32(batch, groups * m, out, out)],
    )
    assert flops == count


@pytest.mark.parametrize(
    ("kind", "attributes", "inputs", "output", "expected"),
    [
        # 8 results, each with a bias: 8 * (2 * 3 + 1)
        ("Gemm", {}, [fp32(2, 3), fp32(3, 4), fp32(4)], fp32(2, 4), 56),
        ("Gemm", {"transA": 1}, [fp32(3, 2), fp32(3, 4), None], fp32(2, 4), 48),
        # batches of 5: 5 * 2 * 4 results of 3 multiply-adds
        ("MatMul", {}, [fp32(5, 2, 3), fp32(3, 4)], fp32(5, 2, 4), 240),
        # each of 2 * 3 * 3 inputs is multiplied with 4 outputs channels' 2 x 2 kernels
        ("ConvTranspose", {}, [fp32(1, 2, 3, 3), fp32(2, 4, 2, 2)], fp32(1, 4, 4, 4), 2 * 18 * 16),
        # b, i, j, k = 5, 2, 3, 4
        ("Einsum", {"equation": b"bij,bjk->bik"}, [fp32(5, 2, 3), fp32(5, 3, 4)], fp32(5, 2, 4), 240),
        ("Einsum", {"equation": b"...ij,jk->...ik"}, [fp32(5, 2, 3), fp32(3, 4)], fp32(5, 2, 4), 240),
        ("MaxPool", {"kernel_shape": [3, 3]}, [fp32(1, 2, 6, 6)], fp32(1, 2, 2, 2), 72),
        ("GlobalAveragePool", {}, [fp32(1, 2, 6, 6)], fp32(1, 2, 1, 1), 72),
        ("Relu", {}, [fp32(3, 4)], fp32(3, 4), 12),
        ("Sum", {}, [fp32(4), fp32(4), fp32(4)], fp32(4), 8),
        ("ReduceMean", {}, [fp32(6, 2)], fp32(1, 2), 12),
        ("Concat", {}, [fp32(3, 4), fp32(3, 4)], fp32(6, 4), 0),
        # 7 steps x 2 samples, 1 direction, hidden 3, input 5, 4 gates: 14 * (2 * 12 * (5 + 3) + 10 * 12)
        ("LSTM", {}, [fp32(7, 2, 5), fp32(1, 12, 5), fp32(1, 12, 3)], fp32(7, 1, 2, 3), 14 * (192 + 120)),
        # 2 heads of 4: Q K^T and P V are 2 * 3 * 5 * 8 each, softmax 5 * 2 heads * 3 * 5
        ("Attention", {}, [fp32(1, 2, 3, 4), fp32(1, 2, 5, 4), fp32(1, 2, 5, 4)], fp32(1, 2, 3, 4), 480 + 150),
        ("com.microsoft.MatMulNBits", {"K": 3, "N": 4}, [fp32(2, 3), None], fp32(2, 4), 48),
        # an operator that nobody knows: one for each element of its largest operand
        ("example.Unknown", {}, [fp32(9), fp32(3)], fp32(3), 9),
    ],
)
def test_formula(kind: str, attributes: dict, inputs: list, output: Value, expected: int) -> None:  # type: ignore[type-arg]
    """Each formula gives the count in the comment above its case."""
    assert operator_flops(kind, attributes, inputs, [output]) == expected


def test_a_known_operator_with_absurd_operands_counts_as_unknown() -> None:
    """A convolution without a kernel is not a crash: 4 elements."""
    assert operator_flops("Conv", {}, [fp32(4)], [fp32(2)]) == 4
    assert operator_flops("MaxPool", {}, [fp32(4)], [fp32(2)]) == 4


def test_traffic() -> None:
    """Inputs, weights and outputs count once; a view moves nothing; a look-up reads only the rows that it returns."""
    assert operator_traffic_bytes("Add", [fp32(4), fp32(1)], [fp32(4)]) == 16 + 4 + 16
    assert operator_traffic_bytes("Reshape", [fp32(4)], [fp32(2, 2)]) == 0
    indices = Value((2,), "int64", 64)
    assert operator_traffic_bytes("Gather", [fp32(1000, 3), indices], [fp32(2, 3)]) == 24 + 24 + 16
