"""FLOPs of torch operators that torch's own counter lacks, against counts made by hand."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from placewright.capture.torch_costs import flops  # noqa: E402


def counted(function: Callable[..., Any], *shapes: tuple[int, ...], name: str) -> int:
    """FLOPs of the operators of that name in a traced function of tensors of these shapes."""

    class Module(torch.nn.Module):
        def forward(self, *tensors: Any) -> Any:
            return function(*tensors)

    given = tuple(torch.zeros(s, device="meta") for s in shapes)
    program = torch.export.export(Module(), given, strict=False)
    found = [n for n in program.graph.nodes if n.op == "call_function" and name in str(n.target)]
    assert found, program.graph
    return sum(flops(n) for n in found)


@pytest.mark.parametrize(
    ("function", "shapes", "name", "expected"),
    [
        # 2 x 3 results of 4 multiply-adds
        (lambda a, b: a @ b, ((2, 4), (4, 3)), "matmul", 48),
        # 8 x 8 results of windows of 3 x 3, given as one number and as two
        (lambda x: torch.nn.functional.max_pool2d(x, 3, 1, 1), ((1, 1, 8, 8),), "max_pool2d", 64 * 9),
        (lambda x: torch.nn.functional.avg_pool2d(x, (3, 3), 1, 1), ((1, 1, 8, 8),), "avg_pool2d", 64 * 9),
        # 5 n log2 n of two rows of 8
        (lambda x: torch.fft.fft(x), ((2, 8),), "fft", 5 * 16 * 3),
        # each of 3 x 4 distances: difference, square, sum in 5 dimensions
        (lambda a, b: torch.cdist(a, b, p=1.0), ((3, 5), (4, 5)), "cdist", 3 * 12 * 5),
        (lambda a, x: torch.mv(a, x), ((3, 5), (5,)), "mv", 2 * 15),
        # 16 elements, log2(8) comparisons each
        (lambda x: torch.sort(x, dim=1)[0], ((2, 8),), "sort", 16 * 3),
        # 2 matrices of side 6, n^3 / 3 each
        (lambda a: torch.linalg.cholesky_ex(a)[0], ((2, 6, 6),), "cholesky", 2 * 72),
        (lambda x: x.sum(1), ((4, 6),), "sum", 24),
        (lambda x: x.var(1), ((4, 6),), "var", 4 * 24),
        (lambda x: torch.relu(x), ((4, 6),), "relu", 24),
        (lambda x: torch.sigmoid(x), ((4, 6),), "sigmoid", 8 * 24),
        (lambda x: x.permute(1, 0).contiguous(), ((4, 6),), "contiguous", 0),
    ],
)
def test_count(function: Callable[..., Any], shapes: tuple[tuple[int, ...], ...], name: str, expected: int) -> None:
    """Each gives the count in the comment above its case."""
    assert counted(function, *shapes, name=name) == expected


@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (3, 7), (7, 3)])
def test_causal_attention_counts_the_pairs_that_it_looks_at(queries: int, keys: int) -> None:
    """Query i sees keys 0 to i: counted by a loop, 2 * 2 * 4 FLOP a pair in each of 2 heads."""
    pairs = sum(k <= i for i in range(queries) for k in range(keys))
    shapes = ((1, 2, queries, 4), (1, 2, keys, 4), (1, 2, keys, 4))
    attention = torch.nn.functional.scaled_dot_product_attention
    found = counted(lambda q, k, v: attention(q, k, v, is_causal=True), *shapes, name="attention")
    assert found == 2 * 16 * pairs


def test_one_tensor_may_be_queries_keys_and_values() -> None:
    """Self-attention of a tensor with itself, 5 tokens: 15 pairs."""
    attention = torch.nn.functional.scaled_dot_product_attention
    assert counted(lambda x: attention(x, x, x, is_causal=True), (1, 1, 5, 4), name="attention") == 16 * 15


@pytest.mark.filterwarnings("ignore:The tensor attributes")
def test_a_recurrent_layer_applies_its_weights_at_every_step() -> None:
    """LSTM of width 3 over 2 sequences of 7 steps of 5 numbers: 4 * 3 * (5 + 3) weights, 2 FLOP each, 14 times."""

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(5, 3)

        def forward(self, x: Any) -> Any:
            return self.lstm(x)[0]

    program = torch.export.export(Module(), (torch.zeros(7, 2, 5),), strict=False)
    (node,) = [n for n in program.graph.nodes if n.op == "call_function" and "lstm" in str(n.target)]
    assert flops(node) == pytest.approx(2 * 14 * 4 * 3 * 8, rel=0.01)


def test_an_unknown_operator_counts_its_largest_operand() -> None:
    """Never silently nothing: an operator of a library of its own that returns one number of 24."""
    library = torch.library.Library("placewright_test", "DEF")
    library.define("strange(Tensor x) -> Tensor")
    library.impl("strange", lambda x: x.new_empty(()), "Meta")
    assert counted(lambda x: torch.ops.placewright_test.strange(x), (4, 6), name="strange") == 24
