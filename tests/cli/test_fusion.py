"""``--fuse`` on the command line: whose rules, and what wishes keep apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import Call

onnx = pytest.importorskip("onnx")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Conv, Relu and MaxPool in a row."""
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w"], ["a"], name="conv"),
        onnx.helper.make_node("Relu", ["a"], ["b"], name="relu"),
        onnx.helper.make_node("MaxPool", ["b"], ["y"], name="pool", kernel_shape=[2, 2]),
    ]
    weight = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [4, 3, 1, 1], [0.5] * 12)
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 3, 8, 8]), ("y", [1, 4, 7, 7]))
    ]
    graph = onnx.helper.make_graph(nodes, "net", ends[:1], ends[1:], [weight])
    path = tmp_path / "net.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    path = tmp_path / "devices.yaml"
    path.write_text(
        "devices: [{name: one, model: rtx-3090}, {name: two, model: rtx-3090}]\n"
        "links: [{class: same-host, bandwidth: 5 GB/s, latency: 20 us}]\n"
    )
    return path


@pytest.mark.parametrize(("rules", "operators"), [("auto", 2), ("onnxruntime", 2), ("inductor", 3), ("none", 3)])
def test_by_whose_rules(placewright: Call, model: Path, devices: Path, rules: str, operators: int) -> None:
    """The problem has one operator for convolution and Relu where the rules merge them; plans name all parts."""
    import placewright as pw

    shown = placewright("convert", model, "--cluster", devices, "--fuse", rules, "-o", "problem.json")
    assert shown.code == 0 and len(pw.read_problem("problem.json").graph) == operators
    shown = placewright("plan", model, "--cluster", devices, "--fuse", rules, "--budget", "0", "--json")
    assert shown.code == 0 and set(shown.json["placement"]) == {"conv", "relu", "pool"}


def test_unknown_rules(placewright: Call, model: Path, devices: Path) -> None:
    """Rules that are none end before the model is read."""
    shown = placewright("plan", model, "--cluster", devices, "--fuse", "tvm", "--budget", "0")
    assert shown.code == 2 and "'tvm' are unknown; use one of auto, onnxruntime" in shown.line


def test_wishes_keep_parts_apart(placewright: Call, model: Path, devices: Path) -> None:
    """A pin moves all that is fused with what it names, unless another pin sends that elsewhere."""
    plan = ["plan", model, "--cluster", devices, "--budget", "0", "--json"]
    shown = placewright(*plan, "--pin", "conv=two")
    assert shown.json["placement"]["conv"] == shown.json["placement"]["relu"] == "two"
    shown = placewright(*plan, "--pin", "conv=two", "--pin", "relu=one")
    assert shown.code == 0
    assert (shown.json["placement"]["conv"], shown.json["placement"]["relu"]) == ("two", "one")
