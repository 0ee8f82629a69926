"""Shapes of ONNX values: open dimensions, shapes that the model computes, and shapes that only the data decide."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from placewright.capture import onnx_shapes  # noqa: E402
from placewright.capture.onnx_model import capture_onnx  # noqa: E402
from placewright.capture.onnx_values import Value, close_dimensions  # noqa: E402
from placewright.errors import InvalidInput  # noqa: E402


def model_of(nodes: list[Any], shape: list[Any], outputs: list[str], weights: dict[str, Any] | None = None) -> Any:
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def shapes(tmp_path: Path, model: Any, **overrides: int) -> dict[str, tuple[int, ...]]:
    onnx.save(model, tmp_path / "m.onnx")
    graph = capture_onnx(tmp_path / "m.onnx", dim_overrides=overrides)
    return {t.name: t.shape for t in graph.tensors}


SPLIT_HEADS = [
    helper.make_node("Relu", ["x"], ["a"]),
    helper.make_node("Shape", ["a"], ["s"]),
    helper.make_node("Gather", ["s", "zero"], ["batch"]),
    helper.make_node("Gather", ["s", "one"], ["length"]),
    helper.make_node("Unsqueeze", ["batch", "axis"], ["b1"]),
    helper.make_node("Unsqueeze", ["length", "axis"], ["l1"]),
    helper.make_node("Mul", ["l1", "two"], ["l2"]),
    helper.make_node("Concat", ["b1", "l2", "rest"], ["target"], axis=0),
    helper.make_node("Reshape", ["a", "target"], ["r"]),
    helper.make_node("Range", ["start", "length", "step"], ["positions"]),
    helper.make_node("Cast", ["positions"], ["p"], to=TensorProto.FLOAT),
]
NUMBERS = {
    "zero": np.array(0),
    "one": np.array(1),
    "axis": np.array([0]),
    "two": np.array([2]),
    "rest": np.array([-1]),
    "start": np.array(0),
    "step": np.array(1),
}


def test_computed_shapes_are_folded(tmp_path: Path) -> None:
    """A reshape to (batch, 2 * length, -1) and a range of the length get the shapes that a run would give."""
    model = model_of(SPLIT_HEADS, ["batch", "length", 6], ["r", "p"], NUMBERS)
    found = shapes(tmp_path, model, batch=3, length=5)
    assert found["r"] == (3, 10, 3)
    assert found["positions"] == found["p"] == (5,)


def test_computed_shapes_equal_a_real_run(tmp_path: Path) -> None:
    """The same model in ONNX Runtime agrees on every tensor."""
    runtime = pytest.importorskip("onnxruntime")
    model = model_of(SPLIT_HEADS, ["batch", "length", 6], ["r", "p"], NUMBERS)
    found = shapes(tmp_path, model, batch=2, length=7)
    del model.graph.output[:]
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in found)
    model.ir_version = 8
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    values = session.run(list(found), {"x": np.zeros((2, 7, 6), np.float32)})
    assert found == {name: value.shape for name, value in zip(found, values, strict=True)}


def test_open_dimensions_are_closed_and_said(caplog: pytest.LogCaptureFixture) -> None:
    """Names give typical sizes, a sum is added up, an override wins, and the guesses are logged."""
    model = model_of([], ["batch", "past + length + 1", None, "d"], [])
    with caplog.at_level(logging.WARNING):
        inputs = close_dimensions(model, {"past": 7, "d": 9})
    # rank 4: the axis without a name is taken for a side of an image
    assert inputs == {"x": Value((1, 7 + 128 + 1, 224, 9), "fp32", 32)}
    assert "batch=1, length=128, x:2=224" in caplog.text


def test_closed_dimensions_are_silent(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is logged when nothing was guessed."""
    with caplog.at_level(logging.WARNING):
        close_dimensions(model_of([], ["n", 4], []), {"n": 2})
    assert not caplog.text


@pytest.mark.parametrize(
    ("overrides", "said"), [({"bath": 2}, "no dimension is called 'bath'; open are: batch"), ({"batch": -1}, "below 0")]
)
def test_wrong_overrides_are_refused(overrides: dict[str, int], said: str) -> None:
    """A misspelt or negative override is named, with what there is."""
    with pytest.raises(InvalidInput, match=said):
        close_dimensions(model_of([], ["batch", 4], []), overrides)


def test_data_dependent_shapes_are_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """At most all 12 of 3 x 4 elements are not 0; the bound is used downstream, and logged."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("NonZero", ["a"], ["where"], name="find"),
        helper.make_node("Transpose", ["where"], ["y"]),
    ]
    with caplog.at_level(logging.WARNING):
        assert shapes(tmp_path, model_of(nodes, [3, 4], ["y"])) == {"a": (3, 4), "where": (2, 12), "y": (12, 2)}
    assert "its data decide the shape" in caplog.text


def test_stale_intermediate_shapes_are_not_believed(tmp_path: Path) -> None:
    """What inference finds goes before what the file states of a value in between."""
    model = model_of([helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Abs", ["a"], ["y"])], [3], ["y"])
    model.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, [99]))
    assert shapes(tmp_path, model) == {"a": (3,), "y": (3,)}


def test_stated_shapes_fill_gaps(tmp_path: Path) -> None:
    """An output whose operator nobody knows has the shape that the file states."""
    model = model_of([helper.make_node("Magic", ["x"], ["y"], domain="example")], [3], [])
    model.opset_import.append(helper.make_opsetid("example", 1))
    model.graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [5]))
    assert shapes(tmp_path, model) == {"y": (5,)}


def test_an_open_shape_names_its_operator(tmp_path: Path) -> None:
    """Only the operator where inference stops is named, not those behind it."""
    nodes = [
        helper.make_node("Magic", ["x"], ["a"], name="magic", domain="example"),
        helper.make_node("Relu", ["a"], ["y"], name="behind"),
    ]
    model = model_of(nodes, [3], ["y"])
    model.opset_import.append(helper.make_opsetid("example", 1))
    with pytest.raises(InvalidInput) as caught:
        shapes(tmp_path, model)
    assert "operator 'magic' (example.Magic)" in str(caught.value) and "behind" not in str(caught.value)
    assert "dim_overrides" in str(caught.value)


def test_a_shape_of_too_many_dimensions_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes that ask for 2**40 dimensions end in one line before memory runs out."""
    pytest.importorskip("resource")
    monkeypatch.setattr(onnx_shapes, "WORKING_BYTES", 2**26)  # the same, sooner
    one = helper.make_tensor("one", TensorProto.INT64, [1], [1])
    nodes = [
        helper.make_node("ConstantOfShape", ["many"], ["ones"], value=one),
        helper.make_node("Add", ["ones", "step"], ["target"]),
        helper.make_node("Expand", ["x", "target"], ["y"]),
    ]
    model = model_of(nodes, [1], ["y"], {"many": np.array([2**40]), "step": np.array([1])})
    with pytest.raises(InvalidInput, match="to infer, so one of them is corrupt"):
        shapes(tmp_path, model)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (("FusedMatMul", {"transA": 1, "transB": 1}), (2, 3, 4)),
        (("Gelu", {}), (2, 5, 3)),
        (("MatMulNBits", {"K": 3, "N": 7}), (2, 5, 7)),
    ],
)
def test_contributed_operators(tmp_path: Path, node: tuple[str, dict[str, int]], expected: tuple[int, ...]) -> None:
    """What ONNX Runtime's optimiser makes is known: (2, 5, 3) transposed times (4, 5) transposed is (2, 3, 4)."""
    kind, attributes = node
    inputs = ["x", "w"] if kind != "Gelu" else ["x"]
    made = helper.make_node(kind, inputs, ["y"], domain="com.microsoft", **attributes)
    model = model_of([made], [2, 5, 3], ["y"], {"w": np.zeros((4, 5), np.float32)})
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    assert shapes(tmp_path, model) == {"y": expected}


def test_an_operator_newer_than_the_operator_set(tmp_path: Path) -> None:
    """Optimisers write LayerNormalization into models of older operator sets; its newest schema is taken."""
    nodes = [helper.make_node("LayerNormalization", ["x", "scale"], ["y"])]
    model = model_of(nodes, [2, 4], ["y"], {"scale": np.ones(4, np.float32)})
    model.opset_import[0].version = 14
    assert shapes(tmp_path, model) == {"y": (2, 4)}


def test_an_input_without_a_shape_is_refused(tmp_path: Path) -> None:
    """Nothing can be inferred from an input of unknown rank."""
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], [3], ["y"])
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(InvalidInput, match="input 'x' has no shape"):
        shapes(tmp_path, model)


def test_sizes_below_a_byte_are_packed() -> None:
    """Five 4-bit elements take three bytes."""
    assert Value((5,), "int4", 4).size_bytes == 3


def test_shapes_that_stay_open_leave_no_files_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime's inference would write what it can't complete, with its weights, into the working folder."""
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    nodes = [
        helper.make_node("NobodyKnows", ["x"], ["a"], domain="com.example"),
        helper.make_node("MatMul", ["a", "w"], ["y"]),
    ]
    model = model_of(nodes, [2, 64], ["y"], {"w": np.ones((64, 64), dtype=np.float32)})
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    onnx_shapes._symbolic(model, {})
    assert list(tmp_path.iterdir()) == []
