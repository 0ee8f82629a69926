"""What is fused within a network is fused when it is cut out to be measured, and computes the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from placewright.costs.onnx_bench import OnnxBench
from placewright.costs.onnx_layout import ends_apart, optimised_inside
from placewright.costs.tasks import Input


@pytest.fixture(scope="module")
def bench() -> OnnxBench:
    return OnnxBench(1)


def model(nodes: list[onnx.NodeProto], inputs: list[Input], weights: dict[str, np.ndarray]) -> bytes:
    """Serialise nodes that make ``y``."""
    graph = helper.make_graph(
        nodes,
        "unit",
        [helper.make_tensor_value_info(i.name, TensorProto.FLOAT, i.shape) for i in inputs],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(made.SerializeToString())


def kinds(made: onnx.ModelProto | bytes) -> list[str]:
    """Operators of a model, conversions of layout apart."""
    made = onnx.load_from_string(made) if isinstance(made, bytes) else made
    return [n.op_type for n in made.graph.node if not n.op_type.startswith("Reorder")]


def results(bench: OnnxBench, made: bytes, feeds: dict[str, np.ndarray], *, optimise: bool) -> list[np.ndarray]:
    return list(bench.session(made, optimise=optimise).run(None, feeds))


def test_a_gelu_at_the_end_of_a_model_is_one(bench: OnnxBench) -> None:
    """Eight operators that make an output stay eight; with a reader behind them they are one FastGelu, as inside."""
    nodes = [
        helper.make_node("Mul", ["x", "half"], ["h"]),
        helper.make_node("Pow", ["x", "three"], ["p"]),
        helper.make_node("Mul", ["p", "small"], ["q"]),
        helper.make_node("Add", ["x", "q"], ["s"]),
        helper.make_node("Mul", ["s", "root"], ["t"]),
        helper.make_node("Tanh", ["t"], ["u"]),
        helper.make_node("Add", ["u", "one"], ["v"]),
        helper.make_node("Mul", ["h", "v"], ["y"]),
    ]
    numbers = {"half": 0.5, "three": 3.0, "small": 0.044715, "root": (2 / np.pi) ** 0.5, "one": 1.0}
    inputs = [Input("x", "float32", (1, 4, 8))]
    unit = model(nodes, inputs, {name: np.array(number) for name, number in numbers.items()})
    inside = optimised_inside(unit, inputs, bench.session)
    assert inside is not None and kinds(inside) == ["FastGelu"]
    assert [i.name for i in inside.graph.input] == ["x"] and len(inside.graph.output) == 1
    x = np.linspace(-3, 3, 32, dtype=np.float32).reshape(1, 4, 8)
    (expected,) = results(bench, unit, {"x": x}, optimise=True)
    (found,) = results(bench, inside.SerializeToString(), {"x": x}, optimise=False)
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_a_sum_behind_a_convolution_is_part_of_it(bench: OnnxBench) -> None:
    """By itself the sum's other branch is in the plain layout, so three operators stay; inside both are blocked."""
    nodes = [
        helper.make_node("Conv", ["a", "w"], ["c"]),
        helper.make_node("Add", ["c", "b"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    inputs = [Input("a", "float32", (1, 32, 6, 6)), Input("b", "float32", (1, 32, 6, 6))]
    rng = np.random.default_rng(0)
    unit = model(nodes, inputs, {"w": rng.standard_normal((32, 32, 1, 1))})
    assert ends_apart(unit, inputs, bench.session, bench.array) is not None or pytest.skip("no blocked layout here")
    plain = optimised_inside(unit, inputs, bench.session, blocked=False)
    assert plain is not None and len(kinds(plain)) > 1
    inside = optimised_inside(unit, inputs, bench.session, blocked=True)
    assert inside is not None and kinds(inside) == ["Conv"]
    feeds = {i.name: rng.standard_normal(i.shape).astype(np.float32) for i in inputs}
    (expected,) = results(bench, unit, feeds, optimise=True)
    (found,) = results(bench, inside.SerializeToString(), feeds, optimise=False)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    ends = ends_apart(unit, inputs, bench.session, bench.array, optimised=inside)
    assert ends is not None and not ends.inner and kinds(ends.stripped) == ["Conv"]
    converted = [n.op_type for n in onnx.load_from_string(ends.conversions).graph.node]
    assert sorted(converted) == ["ReorderInput", "ReorderInput", "ReorderOutput"]


def test_what_has_no_number_to_take_the_sign_of_is_left(bench: OnnxBench) -> None:
    """A comparison makes truth values, which no operator of numbers can read."""
    inputs = [Input("x", "float32", (4,))]
    unit = onnx.load_from_string(
        model([helper.make_node("Abs", ["x"], ["z"]), helper.make_node("Greater", ["z", "x"], ["y"])], inputs, {})
    )
    unit.graph.output[0].type.tensor_type.elem_type = TensorProto.BOOL
    assert optimised_inside(unit.SerializeToString(), inputs, bench.session) is None


def test_an_image_that_is_wanted_plain_after_all_is_not_converted_to_and_fro(bench: OnnxBench) -> None:
    """A concatenation of 16 and 24 channels, of which a block of 16 takes only the former: nothing is converted."""
    nodes = [helper.make_node("Concat", ["x", "z"], ["c"], axis=1), helper.make_node("Relu", ["c"], ["y"])]
    inputs = [Input("x", "float32", (1, 16, 4, 4)), Input("z", "float32", (1, 24, 4, 4))]
    unit = model(nodes, inputs, {})
    inside = optimised_inside(unit, inputs, bench.session, blocked=True)
    assert inside is not None and kinds(inside) == ["Concat", "Relu"]
    feeds = {i.name: np.random.default_rng(1).random(i.shape, np.float32) - 0.5 for i in inputs}
    expected = results(bench, unit, feeds, optimise=True)
    np.testing.assert_array_equal(results(bench, inside.SerializeToString(), feeds, optimise=False)[0], expected[0])
