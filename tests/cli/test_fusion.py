"""``--fuse`` and ``--fold`` on the command line: whose rules, what wishes keep apart, and what is refused."""

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


@pytest.mark.parametrize(("option", "value"), [("--fuse", "none"), ("--fold", "none"), ("--costs", "roofline")])
def test_a_problem_file_is_placed_as_it_stands(placewright: Call, problem_file: Path, option: str, value: str) -> None:
    """What would have no effect is refused, not ignored."""
    shown = placewright("plan", problem_file, option, value, "--budget", "0")
    assert shown.code == 2 and f"{option} is for networks that are captured" in shown.line
    shown = placewright("plan", problem_file, "--fold", "all", "--budget", "0")
    assert shown.code == 2 and shown.line == "--fold 'all' is unknown; use one of auto, none"


def test_folding(placewright: Call, devices: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows from weights is named on standard error, listed in the plan, not run, and placed if it is wished."""
    pytest.importorskip("torch")
    (tmp_path / "scaled_network.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.w = torch.nn.Parameter(torch.ones(8, 8))\n"
        "    def forward(self, x):\n"
        "        return torch.softmax(x @ (self.w * 0.1), -1) @ self.w\n"
        "def make():\n"
        "    return Net().eval(), (torch.ones(4, 8),)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    plan = ["plan", "py:scaled_network:make", "--cluster", devices, "--budget", "0", "-o", "plan.json", "--json"]
    folded, placed = placewright(*plan), placewright(*plan, "--fold", "none")
    assert "computed once, from weights alone: mul (1 operators); --fold none places them" in folded.err
    assert "computed once" not in placed.err
    assert (
        folded.json["placement"].keys() == placed.json["placement"].keys() == {"mul", "matmul", "softmax", "matmul_1"}
    )
    assert placewright(*plan).code == 0
    ran = placewright("run", "plan.json", "--model", "py:scaled_network:make", "--runs", "1", "--json")
    assert ran.code == 0 and ran.json["measurements"][0]["max_relative_error"] <= 1e-6


def test_constants_of_an_onnx_file_are_always_folded(placewright: Call, devices: Path, tmp_path: Path) -> None:
    """A transposed weight is a weight: no operator with either value of ``--fold``, and the plan runs."""
    nodes = [
        onnx.helper.make_node("Transpose", ["w"], ["wt"], name="turn"),
        onnx.helper.make_node("MatMul", ["x", "wt"], ["a"], name="product"),
        onnx.helper.make_node("Relu", ["a"], ["y"], name="relu"),
    ]
    weight = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [4, 3], [0.5] * 12)
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", [2, 3]), ("y", [2, 4]))
    ]
    graph = onnx.helper.make_graph(nodes, "net", ends[:1], ends[1:], [weight])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), "t.onnx")
    for fold in ("auto", "none"):
        shown = placewright(
            "plan", "t.onnx", "--cluster", devices, "--fold", fold, "--fuse", "none", "--budget", "0", "--json"
        )
        assert shown.code == 0 and set(shown.json["placement"]) == {"product", "relu"}
