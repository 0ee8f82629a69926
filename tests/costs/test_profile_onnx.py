"""Operators cut out of an ONNX network compute what they compute inside it; the pieces together are the network."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from placewright.capture import capture
from placewright.capture.onnx_flops import VIEWS
from placewright.costs import profile_onnx
from placewright.costs.onnx_bench import OnnxBench
from placewright.costs.onnx_layout import ends_apart, surrounded
from placewright.costs.profile_onnx import OnnxNetwork
from placewright.costs.tasks import Input, OnnxPieces, OnnxUnit
from placewright.errors import InvalidInput
from placewright.graph import Operator, OperatorGraph


def network() -> onnx.ModelProto:
    """Two convolutions, a look-up whose indices come from a Shape, a reshape by a computed shape, and a skip."""
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Transpose", ["w2t"], ["w2"], name="fixed", perm=[1, 0, 2, 3]),
        helper.make_node("Conv", ["b", "w2"], ["c"], name="second"),
        helper.make_node("Add", ["b", "c"], ["d"], name="skip"),
        helper.make_node("Shape", ["d"], ["s"], name="shape"),
        helper.make_node("Gather", ["s", "zero"], ["n"], name="pick"),
        helper.make_node("Concat", ["n", "minus"], ["target"], name="target", axis=0),
        helper.make_node("Reshape", ["d", "target"], ["e"], name="reshape"),
        helper.make_node("Gather", ["table", "index"], ["row"], name="lookup"),
        helper.make_node("MatMul", ["e", "w3"], ["f"], name="product"),
        helper.make_node("Add", ["f", "row"], ["y"], name="last"),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 6, 6]),
            helper.make_tensor_value_info("index", TensorProto.INT64, [2]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 5])],
        [
            weight("w1", 16, 3, 3, 3),
            weight("w2t", 16, 16, 1, 1),
            weight("w3", 16 * 36, 5),
            weight("table", 7, 5),
            numpy_helper.from_array(np.array([0]), "zero"),
            numpy_helper.from_array(np.array([-1]), "minus"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("net") / "net.onnx"
    onnx.save(network(), path)
    return path


@pytest.fixture(scope="module")
def bench() -> OnnxBench:
    return OnnxBench(1)


def prepared(path: Path, bench: OnnxBench, *, fuse: str) -> OnnxNetwork:
    made = OnnxNetwork(path, capture(path, fuse=fuse))
    made.prepare(bench.answer)
    return made


def run(model: bytes, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    wanted = {i.name: feeds[i.name] for i in session.get_inputs()}
    return dict(zip(names, session.run(names, wanted), strict=True))


def every_value(feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every intermediate value of the uncut network, by making all of them outputs."""
    model = network()
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=n) for node in model.graph.node for n in node.output)
    return feeds | run(model.SerializeToString(), feeds)


@pytest.mark.parametrize("fuse", ["none", "auto"])
def test_each_unit_computes_what_its_operator_computes_inside_the_network(
    path: Path, bench: OnnxBench, fuse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its weights kept, and fed with the network's own values, every unit returns the network's own results."""
    monkeypatch.setattr(profile_onnx, "SYNTHETIC_ELEMENTS", 10**9)
    net = prepared(path, bench, fuse=fuse)
    rng = np.random.default_rng(1)
    values = every_value({"x": rng.random((2, 3, 6, 6), dtype=np.float32), "index": np.array([6, 0])})
    compared = 0
    for v in range(len(net.graph)):
        task = net.unit(v)
        assert isinstance(task, OnnxUnit)
        for name, result in run(task.model, values).items():
            np.testing.assert_allclose(result, values[name], rtol=1e-4, atol=1e-4)
            compared += 1
    assert compared >= len(net.graph)


def test_shapes_and_indices_that_are_made_up_are_valid(path: Path, bench: OnnxBench) -> None:
    """Every unit runs on made-up inputs: the reshape's target is the true one, look-ups stay inside their table."""
    net = prepared(path, bench, fuse="none")
    operators = {v.name: k for k, v in enumerate(net.graph.operators)}
    lookup = net.unit(operators["lookup"])
    assert isinstance(lookup, OnnxUnit)
    assert [i.below for i in lookup.inputs] == [7]
    reshape = net.unit(operators["reshape"])
    assert isinstance(reshape, OnnxUnit)
    assert [i.name for i in reshape.inputs] == ["d"]
    assert run(reshape.model, {"d": np.zeros((2, 16, 6, 6), np.float32)})["e"].shape == (2, 576)
    for v in range(len(net.graph)):
        answer = bench.answer(net.unit(v))
        assert (answer.runs >= 5 or net.graph.operators[v].kind in VIEWS) and answer.seconds >= 0


def test_large_weights_are_not_carried_but_keep_their_shape(path: Path, bench: OnnxBench) -> None:
    """The product's 11,520 bytes of weights are described in a few; its result keeps its shape."""
    net = prepared(path, bench, fuse="none")
    product = net.unit([v.name for v in net.graph.operators].index("product"))
    assert isinstance(product, OnnxUnit)
    assert len(product.model) < 2000 < 4 * 576 * 5
    assert run(product.model, {"e": np.ones((2, 576), np.float32)})["f"].shape == (2, 5)


def test_the_pieces_in_turn_compute_the_network(path: Path, bench: OnnxBench) -> None:
    """Feeding each piece with what the earlier ones made gives the uncut network's output."""
    net = prepared(path, bench, fuse="none")
    made = net.pieces()
    assert made is not None
    task, sides = made
    assert isinstance(task, OnnxPieces) and len(task.pieces) >= 3 and len(sides) >= 2 * (len(task.pieces) - 1)
    feeds = {"x": np.random.default_rng(2).random((2, 3, 6, 6), dtype=np.float32), "index": np.array([1, 5])}
    values = dict(feeds)
    for piece in task.pieces:
        values |= run(piece, values)
    np.testing.assert_allclose(values["y"], every_value(feeds)["y"], rtol=1e-4, atol=1e-4)
    assert bench.answer(task).runs >= 7


def test_layout_conversions_at_the_ends_are_taken_off_and_had_apart(path: Path, bench: OnnxBench) -> None:
    """The second convolution alone converts its input and output; what is timed as the operator converts neither.

    Stripped model and conversions, one after the other, compute what the model computes.
    """
    net = prepared(path, bench, fuse="none")
    second = net.unit([v.name for v in net.graph.operators].index("second"))
    assert isinstance(second, OnnxUnit)
    ends = ends_apart(second.model, second.inputs, bench.session, bench.array)
    if ends is None:
        pytest.skip("this processor's runtime has no blocked layout")
    kinds = [n.op_type for n in onnx.load_from_string(ends.stripped).graph.node]
    assert "Conv" in kinds and not any(kind.startswith("Reorder") for kind in kinds) and not ends.inner
    kinds = [n.op_type for n in onnx.load_from_string(ends.conversions).graph.node]
    assert sorted(kinds) == ["ReorderInput", "ReorderOutput"]
    given = {"b": np.random.default_rng(3).random((2, 16, 6, 6), dtype=np.float32)}
    blocked = {i.name: bench.array(i) for i in ends.inputs if i.name != "b"}
    made = plainly(ends.stripped, blocked, bench)
    converted = plainly(ends.conversions, given | made, bench)
    made = plainly(ends.stripped, {name: converted[name] for name in blocked}, bench)
    result = plainly(ends.conversions, given | made, bench)
    np.testing.assert_allclose(result["c"], run(second.model, given)["c"], rtol=1e-4, atol=1e-4)


def plainly(model: bytes, feeds: dict[str, np.ndarray], bench: OnnxBench) -> dict[str, np.ndarray]:
    """Run a model as it is, without optimising it."""
    session = bench.session(model, optimise=False)
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, {i.name: feeds[i.name] for i in session.get_inputs()}), strict=True))


def test_what_passes_a_blocked_layout_on_has_conversions_between_poolings(path: Path, bench: OnnxBench) -> None:
    """The sum alone converts nothing; between poolings of one element it computes the same and converts at its ends."""
    net = prepared(path, bench, fuse="none")
    places = {v.name: k for k, v in enumerate(net.graph.operators)}
    skip = net.unit(places["skip"])
    assert isinstance(skip, OnnxUnit) and skip.blocked
    assert ends_apart(skip.model, skip.inputs, bench.session, bench.array) is None
    wrapped, inputs = surrounded(skip.model, skip.inputs, ["d"])
    rng = np.random.default_rng(4)
    shape = skip.inputs[0].shape
    given = {i.name: rng.random(shape, dtype=np.float32) for i in skip.inputs}
    result = run(wrapped, {f"{name}/given": array for name, array in given.items()})["d/taken"]
    np.testing.assert_allclose(result, sum(given.values()), rtol=1e-6)
    ends = ends_apart(wrapped, inputs, bench.session, bench.array)
    if ends is not None:  # where the runtime has a blocked layout; how long they take is a clock's word, and may be 0
        assert not ends.inner
        kinds = [n.op_type for n in onnx.load_from_string(ends.conversions).graph.node]
        assert set(kinds) == {"ReorderInput", "ReorderOutput"}
        assert bench.answer(skip).conversions_s >= 0


def test_only_what_follows_convolutions_may_be_blocked(path: Path, bench: OnnxBench) -> None:
    """The convolutions' results and sums of them are; the reshaped one, and what a look-up makes, are not."""
    net = prepared(path, bench, fuse="none")
    blocked = {v.name for k, v in enumerate(net.graph.operators) if getattr(net.unit(k), "blocked", False)}
    assert blocked >= {"relu", "second", "skip", "reshape"}
    assert blocked.isdisjoint({"first", "product", "lookup", "last"})


def test_a_graph_of_another_model_is_refused(path: Path) -> None:
    """The operator that is missing is named with the remedy."""
    with pytest.raises(InvalidInput, match=r"'stranger'.*captured from"):
        OnnxNetwork(path, OperatorGraph([Operator("stranger")]))


def test_made_up_tensors_are_the_ones_that_are_asked_for(bench: OnnxBench) -> None:
    """Floats lie in [0, 1), integers below their bound, and given values come back unchanged."""
    floats = bench.array(Input("f", "float16", (50,)))
    integers = bench.array(Input("i", "int32", (200,), below=3))
    given = bench.array(Input("g", "int64", (2,), values=np.array([4, -1]).tobytes()))
    assert floats.dtype == np.float16 and floats.min() >= 0 and floats.max() <= 1
    assert set(integers.tolist()) == {0, 1, 2}
    assert given.tolist() == [4, -1]
