"""Which operators have a rule for their work, against the lists that torch and ONNX publish of their own."""

from pathlib import Path

import pytest

from placewright.capture import capture, onnx_flops, torch_kinds, unknown_kinds
from placewright.graph import Operator, OperatorGraph, Source

NO_ARITHMETIC_ON_TENSORS = {
    *("ImageDecoder", "RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"),
}
"""ONNX operators on text and files: no network computes with them."""

LAYERS_TEXT = """
linear conv1d conv2d conv3d conv_transpose2d layer_norm group_norm batch_norm instance_norm rms_norm embedding
embedding_bag scaled_dot_product_attention gelu silu relu relu_ leaky_relu_ hardswish_ softmax log_softmax dropout
max_pool2d avg_pool2d adaptive_avg_pool2d pixel_shuffle upsample_bilinear2d upsample_nearest2d einsum matmul lstm
gru cross_entropy_loss nll_loss topk sort cumsum masked_fill index_put_ roll pad stack split chunk _grouped_mm
fft_rfft2 grid_sampler one_hot tril where rsqrt pow add_ mul_ native_dropout linalg_inv baddbmm
"""


def test_every_core_operator_of_torch_has_a_rule() -> None:
    """The 160 operators that torch tags as core, what every other one decomposes into."""
    torch = pytest.importorskip("torch")
    core = set()
    for schema in torch._C._jit_get_all_schemas():
        namespace, _, name = schema.name.partition("::")
        packet = getattr(torch.ops.aten, name, None) if namespace == "aten" else None
        overload = getattr(packet, schema.overload_name or "default", None)
        if overload is not None and torch.Tag.core in overload.tags:
            core.add(name)
    assert len(core) > 150
    assert sorted(n for n in core if not torch_kinds.known_kind(f"aten.{n}")) == []


def test_functions_that_modules_are_written_with_have_a_rule() -> None:
    """What ``torch.nn.functional`` and the layers of published networks call before anything is decomposed."""
    names = LAYERS_TEXT.split()
    assert [n for n in names if not torch_kinds.known_kind(f"aten.{n}")] == []
    assert torch_kinds.known_kind("sym.mul") and torch_kinds.known_kind("higher_order.cond")


def test_an_operator_stands_in_one_table() -> None:
    """Else which count it gets would depend on the order in which they are asked."""
    tables = (
        torch_kinds.COUNTED,
        torch_kinds.MOVES,
        torch_kinds.PER_OUTPUT,
        torch_kinds.OF_INPUT,
        torch_kinds.SORTS,
        torch_kinds.CUBIC,
    )
    names = [name for table in tables for name in table]
    assert sorted({n for n in names if names.count(n) > 1}) == []


def test_every_operator_of_onnx_has_a_rule() -> None:
    """All types of the default domain, of every version, but those on text."""
    onnx = pytest.importorskip("onnx")
    names = {s.name for s in onnx.defs.get_all_schemas_with_history() if s.domain == ""}
    assert len(names) > 190
    assert {n for n in names if not onnx_flops.known_kind(n)} <= NO_ARITHMETIC_ON_TENSORS


def test_capturing_tells_of_unknown_operators(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """One line of warning with their kinds; the operator counts its 12 elements all the same."""
    onnx = pytest.importorskip("onnx")
    helper, fp32 = onnx.helper, onnx.TensorProto.FLOAT
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], max_gram_length=1, max_skip_count=0, min_gram_length=1)
    node.attribute.extend([helper.make_attribute("mode", "TF"), helper.make_attribute("ngram_counts", [0])])
    node.attribute.extend(
        [helper.make_attribute("ngram_indexes", [0, 1, 2]), helper.make_attribute("pool_int64s", [1])]
    )
    inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.INT64, [4, 3])]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", fp32, [4, 3])])
    path = tmp_path / "words.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]).SerializeToString())
    captured = capture(path)
    assert captured.operators[0].flops == 12
    assert [r.getMessage() for r in caplog.records] == [
        "counted one FLOP an element, as nothing is known of their work: TfIdfVectorizer"
    ]


def test_unknown_operators_are_named_once_and_in_order() -> None:
    """By the words of the source that the graph came from."""
    kinds = ["mylib.b", "aten.relu", "mylib.a", "mylib.b", "Conv"]
    operators = [Operator(f"v{k}", kind) for k, kind in enumerate(kinds)]
    torch_graph = OperatorGraph(operators, source=Source("py", "x:y", ""))
    assert unknown_kinds(torch_graph) == ("mylib.b", "mylib.a", "Conv")
    onnx_graph = OperatorGraph(operators, source=Source("onnx", "x.onnx", ""))
    assert unknown_kinds(onnx_graph) == ("mylib.b", "aten.relu", "mylib.a")
