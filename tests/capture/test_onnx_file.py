"""ONNX files are untrusted: whatever is wrong with one ends in one line that says what and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402

from placewright.capture import capture  # noqa: E402
from placewright.capture.onnx_file import load_model  # noqa: E402
from placewright.capture.onnx_model import capture_onnx  # noqa: E402
from placewright.errors import InvalidInput  # noqa: E402
from placewright.graph import OperatorGraph  # noqa: E402

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
SQUEEZENET = (LIGHT / "light_squeezenet.onnx").read_bytes()


def relu_model(**changes: object) -> onnx.ModelProto:
    """x of 4 floats -> MatMul with a weight that lies in an external file -> y."""
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4, 4], data_location=TensorProto.EXTERNAL)
    entry = weight.external_data.add()
    entry.key, entry.value = "location", str(changes.get("location", "w.bin"))
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
        [weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def refusal(path: Path) -> str:
    """The one line that capturing a bad file ends in."""
    with pytest.raises(InvalidInput) as caught:
        capture(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(SQUEEZENET) - 1))
def test_every_truncation_is_refused(tmp_path: Path, length: int) -> None:
    """No beginning of a model is taken for a model."""
    path = tmp_path / "cut.onnx"
    path.write_bytes(SQUEEZENET[:length])
    refusal(path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_random_bytes_are_refused(tmp_path: Path, content: bytes) -> None:
    """Bytes that are no model end in a refusal, not in protobuf's error."""
    path = tmp_path / "noise.onnx"
    path.write_bytes(content)
    refusal(path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, len(SQUEEZENET) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes_give_a_graph_or_a_refusal(tmp_path: Path, changes: list[tuple[int, int]]) -> None:
    """A corrupted model is captured or refused in one line; nothing else happens."""
    content = bytearray(SQUEEZENET)
    for position, value in changes:
        content[position] = value
    path = tmp_path / "changed.onnx"
    path.write_bytes(content)
    try:
        assert isinstance(capture(path), OperatorGraph)
    except InvalidInput as refused:
        assert "\n" not in str(refused)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("absent.onnx", None, "No such file"),
        ("empty.onnx", b"", "no ONNX model"),
        ("model.tflite", b"", ".onnx file, a .pt2 file, or py:package.module:function"),
    ],
)
def test_what_is_no_model_is_named(tmp_path: Path, name: str, content: bytes | None, said: str) -> None:
    """A missing file, an empty one and an unknown form are told apart."""
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert said in refusal(tmp_path / name)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    """A folder with a model's name is no model."""
    (tmp_path / "folder.onnx").mkdir()
    assert "regular file" in refusal(tmp_path / "folder.onnx")


@pytest.mark.parametrize(
    "location", ["/etc/passwd", "../secret", "a/../../secret", "C:\\secret", "\\\\host\\secret", "..\\secret", ""]
)
def test_external_data_outside_the_folder_is_refused(tmp_path: Path, location: str) -> None:
    """Whichever way a path is written, it may not leave the model's folder."""
    onnx.save(relu_model(location=location), tmp_path / "out.onnx")
    assert "weight 'w'" in refusal(tmp_path / "out.onnx")


def test_external_data_behind_a_link_is_refused(tmp_path: Path) -> None:
    """A symbolic link out of the model's folder is no way around that."""
    (tmp_path / "model").mkdir()
    (tmp_path / "secret").write_bytes(bytes(64))
    (tmp_path / "model" / "w.bin").symlink_to(tmp_path / "secret")
    onnx.save(relu_model(), tmp_path / "model" / "linked.onnx")
    assert "outside the model's folder" in refusal(tmp_path / "model" / "linked.onnx")


@pytest.mark.parametrize("location", ["w.bin", "weights/w.bin", "weights/../w.bin"])
def test_absent_external_data_is_fine(tmp_path: Path, location: str) -> None:
    """Only shapes matter: 4 x 4 floats are 64 B, whether their file is there or not."""
    onnx.save(relu_model(location=location), tmp_path / "lone.onnx")
    assert [v.weight_bytes for v in capture_onnx(tmp_path / "lone.onnx").operators] == [64]


def test_a_weight_that_is_too_short_is_refused(tmp_path: Path) -> None:
    """A weight whose bytes don't fill its shape is named with both sizes."""
    model = relu_model()
    weight = model.graph.initializer[0]
    weight.ClearField("external_data")
    weight.data_location = TensorProto.DEFAULT
    weight.raw_data = bytes(60)
    onnx.save(model, tmp_path / "short.onnx")
    assert "it holds 60 B, its shape (4, 4) needs 64 B" in refusal(tmp_path / "short.onnx")


def test_a_shape_beyond_any_memory_is_refused(tmp_path: Path) -> None:
    """A corrupt shape takes no memory and gives no absurd graph."""
    model = relu_model()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2**60
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 2**60
    onnx.save(model, tmp_path / "huge.onnx")
    assert "above the limit" in refusal(tmp_path / "huge.onnx")


def test_malformed_text_is_refused(tmp_path: Path) -> None:
    """A name that is not UTF-8 would break whatever shows it."""
    model = relu_model()
    onnx.save(model, tmp_path / "text.onnx")
    content = (tmp_path / "text.onnx").read_bytes()
    (tmp_path / "text.onnx").write_bytes(content.replace(b"product", b"prod\xff\xfet"))
    assert "UTF-8" in refusal(tmp_path / "text.onnx") or "no ONNX model" in refusal(tmp_path / "text.onnx")
    model.graph.node[0].op_type = "Mat\nMul"
    onnx.save(model, tmp_path / "text.onnx")
    assert "unprintable" in refusal(tmp_path / "text.onnx")


def test_all_violations_are_reported(tmp_path: Path) -> None:
    """Two bad locations in one file are both named."""
    model = relu_model(location="/one")
    other = model.graph.initializer.add()
    other.CopyFrom(model.graph.initializer[0])
    other.name, other.external_data[0].value = "w2", "../two"
    onnx.save(model, tmp_path / "twice.onnx")
    with pytest.raises(InvalidInput) as caught:
        load_model(tmp_path / "twice.onnx")
    assert len(caught.value.violations) == 2


def test_an_operator_set_of_the_future_is_refused(tmp_path: Path) -> None:
    """The remedy is a newer onnx, and it is said."""
    model = relu_model()
    model.opset_import[0].version = 999
    onnx.save(model, tmp_path / "future.onnx")
    assert "install a newer onnx" in refusal(tmp_path / "future.onnx")
