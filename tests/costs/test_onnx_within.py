"""Conversions of layout inside a network: found where the runtime puts them, and charged to who causes them."""

from pathlib import Path

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

from placewright.capture import capture
from placewright.costs.onnx_bench import OnnxBench
from placewright.costs.profile_onnx import OnnxNetwork


def network(folder: Path, *, turned: bool) -> OnnxNetwork:
    """Two convolutions, with a transposition between them or without."""
    weight = numpy_helper.from_array(np.full((16, 16, 3, 3), 0.01, np.float32), "w")
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 16, 8, 8]) for n in ("x", "y")]
    around = {"pads": [1] * 4, "kernel_shape": [3, 3]}
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"], name="first", **around)]
    if turned:
        nodes.append(helper.make_node("Transpose", ["a"], ["b"], name="turn", perm=[0, 1, 3, 2]))
    nodes.append(helper.make_node("Conv", ["b" if turned else "a", "w"], ["y"], name="second", **around))
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [weight])
    path = folder / "net.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return OnnxNetwork(path, capture(path, fuse="none"))


def test_a_plain_operator_between_convolutions_has_both_of_them_convert(tmp_path: Path) -> None:
    """The first one's result is brought into the plain layout for the transposition, and back for the second."""
    net = network(tmp_path, turned=True)
    within = OnnxBench(1).answer(net.whole()).within
    if not within:
        pytest.skip("the runtime has no layout of its own on this processor")
    charged = {(c.tensor, net.graph.operators[v].name) for c in within if (v := net.converting(c)) is not None}
    assert charged >= {("a", "first"), ("b", "second")}
    assert all(c.seconds > 0 for c in within) and "turn" not in {name for _, name in charged}


def test_convolutions_in_a_row_convert_at_the_ends_alone(tmp_path: Path) -> None:
    """What one makes and the other reads stays as it is; conversions are told once for a network."""
    net = network(tmp_path, turned=False)
    bench = OnnxBench(1)
    assert {c.tensor for c in bench.answer(net.whole()).within} <= {"x", "y"}
    assert bench.answer(net.whole()).within == ()
