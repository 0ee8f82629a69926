"""ONNX models as operator graphs: published figures, and small models whose graph can be written down by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from placewright.capture import capture  # noqa: E402
from placewright.capture.onnx_model import capture_onnx, constant_nodes, node_names  # noqa: E402
from placewright.errors import InvalidInput  # noqa: E402
from placewright.graph import OperatorGraph  # noqa: E402

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


def model_of(nodes: list, inputs: dict, outputs: list[str], weights: dict | None = None, opset: int = 17) -> object:  # type: ignore[type-arg]
    """A model with fp32 inputs (name -> shape), outputs without shapes, and weights (name -> array)."""
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def captured(tmp_path: Path, model: object, **options: object) -> OperatorGraph:
    onnx.save(model, tmp_path / "m.onnx")
    return capture_onnx(tmp_path / "m.onnx", **options)  # type: ignore[arg-type]


def edges(graph: OperatorGraph) -> dict[str, tuple[str, list[str]]]:
    """Tensor -> (producer, readers) by name."""
    ops = graph.operators
    return {t.name: (ops[t.producer].name, [ops[r].name for r in t.readers]) for t in graph.tensors}


# Published: multiply-adds of one 224 x 224 image in thousand millions (so FLOPs are twice that), and parameters in
# millions. ResNet-50: He et al. 2016, and torchvision 4.09. VGG-19: Simonyan & Zisserman 2015, table 2: 144 million
# parameters. SqueezeNet 1.1: its authors, 0.35 and 1.24. GoogLeNet: Szegedy et al. 2015, table 1: about 1.5 and 7
# (without the auxiliary heads). DenseNet-121: Huang et al. 2017, 2.87 and 7.98. AlexNet (two groups): 61 million.
@pytest.mark.parametrize(
    ("name", "multiply_adds", "parameters"),
    [
        ("resnet50", 4.1, 25.6),
        ("vgg19", 19.6, 143.7),
        ("squeezenet", 0.35, 1.24),
        ("inception_v1", 1.45, 7.0),
        ("densenet121", 2.87, 8.0),
        ("bvlc_alexnet", 0.66, 61.0),
        ("inception_v2", 2.03, 11.2),
        ("shufflenet", 0.13, 1.4),
        ("zfnet512", 1.5, 87.3),
    ],
)
def test_published_figures(name: str, multiply_adds: float, parameters: float) -> None:
    """FLOPs and weights of the networks that onnx carries are within 5 % of what their authors state."""
    graph = capture(LIGHT / f"light_{name}.onnx")
    assert sum(v.flops for v in graph.operators) / 2e9 == pytest.approx(multiply_adds, rel=0.05)
    assert sum(v.weight_bytes for v in graph.operators) / 4e6 == pytest.approx(parameters, rel=0.05)
    assert graph.source is not None and len(graph.source.sha256) == 64


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_shapes_equal_a_real_run(name: str, tmp_path: Path) -> None:
    """Every tensor has the shape and size that ONNX Runtime gives it."""
    runtime = pytest.importorskip("onnxruntime")
    path = LIGHT / f"light_{name}.onnx"
    graph = capture(path, fuse="none")
    model = onnx.load(path)
    del model.graph.output[:]
    model.graph.output.extend(helper.make_empty_tensor_value_info(t.name) for t in graph.tensors)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    given = next(i for i in session.get_inputs())
    values = session.run([t.name for t in graph.tensors], {given.name: np.zeros(given.shape, np.float32)})
    for tensor, value in zip(graph.tensors, values, strict=True):
        assert (tensor.shape, tensor.size_bytes) == (value.shape, value.nbytes), tensor.name


def test_constant_subgraphs_are_weights(tmp_path: Path) -> None:
    """A weight that nodes compute from constants counts at its reader, is no operator, and can be found again."""
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["zeros"]),  # 4 x 4 floats
        helper.make_node("Transpose", ["zeros"], ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["h"], name="block.linear"),
        helper.make_node("RandomNormal", [], ["noise"], shape=[1, 4]),  # not constant: drawn anew each time
        helper.make_node("Add", ["h", "noise"], ["y"]),
    ]
    model = model_of(nodes, {"x": [1, 4]}, ["y"], {"shape": np.array([4, 4], np.int64)})
    graph = captured(tmp_path, model)
    assert {v.name: v.weight_bytes for v in graph.operators} == {"block.linear": 64, "RandomNormal_3": 0, "Add_4": 0}
    assert constant_nodes(model) == {0, 1}  # type: ignore[arg-type]
    assert edges(graph) == {
        "h": ("block.linear", ["Add_4"]),
        "noise": ("RandomNormal_3", ["Add_4"]),
        "y": ("Add_4", []),
    }


def test_a_large_shared_weight_ties_its_readers(tmp_path: Path) -> None:
    """128 x 128 floats are 64 KiB: counted once, readers colocated, also through a reshape; a small one is copied."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Reshape", ["w", "shape"], ["v"], name="seen"),
        helper.make_node("MatMul", ["a", "v"], ["b"], name="second"),
        helper.make_node("Add", ["a", "small"], ["c"], name="third"),
        helper.make_node("Sub", ["b", "small"], ["d"], name="fourth"),
        helper.make_node("Mul", ["c", "d"], ["y"], name="last"),
    ]
    weights = {
        "w": np.zeros((128, 128), np.float32),
        "shape": np.array([128, 128], np.int64),
        "small": np.zeros(128, np.float32),
    }
    graph = captured(tmp_path, model_of(nodes, {"x": [1, 128]}, ["y"], weights))
    names = [v.name for v in graph.operators]
    assert [[names[v] for v in members] for members in graph.colocation] == [["first", "second"]]
    expected = {"first": 65536, "second": 0, "third": 512, "fourth": 512, "last": 0}
    assert {v.name: v.weight_bytes for v in graph.operators} == expected


def test_a_table_that_all_layers_read_ties_nothing(tmp_path: Path) -> None:
    """64 KiB beside 8 MiB of other weights are below 1 %: each reader gets its copy, and can be placed alone."""
    nodes = [
        helper.make_node("MatMul", ["x", "big1"], ["a"], name="m1"),
        helper.make_node("MatMul", ["a", "table"], ["b"], name="t1"),
        helper.make_node("MatMul", ["b", "big2"], ["c"], name="m2"),
        helper.make_node("MatMul", ["c", "table"], ["y"], name="t2"),
    ]
    weights = {name: np.zeros((128, 128), np.float32) for name in ("table", "big2")}
    weights["big1"] = np.zeros((16384, 128), np.float32)
    graph = captured(tmp_path, model_of(nodes, {"x": [1, 16384]}, ["y"], weights))
    assert graph.colocation == ()
    assert [v.weight_bytes for v in graph.operators if v.name in ("t1", "t2")] == [65536, 65536]


def test_names_are_unique_and_stable() -> None:
    """A name is kept where it can be; a missing or second one comes from type, name and position, past taken ones."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"], name="act"),
        helper.make_node("Relu", ["b"], ["c"], name="act"),
        helper.make_node("Relu", ["c"], ["d"], name="act_2"),
        helper.make_node("Relu", ["d"], ["y"], name="Relu_0"),
    ]
    names = node_names(model_of(nodes, {"x": [4]}, ["y"]))  # type: ignore[arg-type]
    assert names == ["Relu_0_", "act", "act_2_", "act_2", "Relu_0"]


def test_unsorted_nodes_are_sorted(tmp_path: Path) -> None:
    """Nodes in any order give the same graph as sorted ones."""
    nodes = [
        helper.make_node("Neg", ["b"], ["y"], name="last"),
        helper.make_node("Abs", ["a"], ["b"], name="middle"),
        helper.make_node("Relu", ["x"], ["a"], name="first"),
    ]
    mixed = captured(tmp_path, model_of(nodes, {"x": [4]}, ["y"]))
    ordered = captured(tmp_path, model_of(nodes[::-1], {"x": [4]}, ["y"]))
    assert (mixed.operators, mixed.tensors) == (ordered.operators, ordered.tensors)
    assert [v.name for v in mixed.operators] == ["first", "middle", "last"]


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([("Add", ["x", "b"], ["a"], "one"), ("Relu", ["a"], ["b"], "two")], "form a cycle: 'one' -> 'two' -> 'one'"),
        ([("Relu", ["ghost"], ["b"], "one")], "operator 'one' reads 'ghost'"),
        ([("Relu", ["x"], ["b"], "one"), ("Abs", ["x"], ["b"], "two")], "made by operator 'two' and by operator 'one'"),
        ([("Relu", ["x"], ["a"], "one")], "output 'b' is made by no operator"),
        ([("MatMul", ["x", "odd"], ["b"], "one")], "operator 'one' (MatMul)"),
        ([("Shape", [], ["a"], "one"), ("Add", ["x", "a"], ["b"], "two")], "operator 'one' (Shape)"),
        ([("Identity", ["odd"], ["b"], "one")], "nothing to place"),
        ([], "no operators"),
    ],
)
def test_unsound_graphs_are_refused(tmp_path: Path, nodes: list, said: str) -> None:  # type: ignore[type-arg]
    """What is wrong is named: a cycle, values that nobody or two make, shapes that can't be, nothing to do."""
    made = [helper.make_node(kind, i, o, name=name) for kind, i, o, name in nodes]
    with pytest.raises(InvalidInput) as caught:
        captured(tmp_path, model_of(made, {"x": [4]}, ["b"], {"odd": np.array([3, 5], np.int64)}))
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_operators_that_no_output_needs_are_left_out(tmp_path: Path) -> None:
    """A dead branch costs nothing, as in a runtime."""
    nodes = [helper.make_node("Relu", ["x"], ["y"], name="live"), helper.make_node("Abs", ["y"], ["z"], name="dead")]
    graph = captured(tmp_path, model_of(nodes, {"x": [4]}, ["y"]))
    assert [v.name for v in graph.operators] == ["live"]
    assert [(t.name, t.output, t.readers) for t in graph.tensors] == [("y", True, ())]


def test_outputs_and_optional_inputs(tmp_path: Path) -> None:
    """A node with two outputs makes a tensor for each that is read or leaves; an empty input is none."""
    nodes = [
        helper.make_node("Split", ["x"], ["a", "b", "c"], name="split", num_outputs=3),
        helper.make_node("Clip", ["a", "", "top"], ["d"], name="clip"),
        helper.make_node("Add", ["d", "b"], ["y"], name="add"),
    ]
    graph = captured(tmp_path, model_of(nodes, {"x": [6]}, ["y"], {"top": np.float32(6).reshape(())}, opset=18))
    assert edges(graph) == {"a": ("split", ["clip"]), "b": ("split", ["add"]), "d": ("clip", ["add"]), "y": ("add", [])}
    assert {t.name: t.shape for t in graph.tensors} == {"a": (2,), "b": (2,), "d": (2,), "y": (2,)}


def test_a_branch_is_one_operator(tmp_path: Path) -> None:
    """An If reads what its branches take from outside, and counts the dearer one: 2 x 2 x 2 multiply-adds."""
    then = helper.make_graph(
        [helper.make_node("MatMul", ["h", "w"], ["t"])],
        "then",
        [],
        [helper.make_tensor_value_info("t", TensorProto.FLOAT, [2, 2])],
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["h"], ["e"])],
        "else",
        [],
        [helper.make_tensor_value_info("e", TensorProto.FLOAT, [2, 2])],
    )
    nodes = [
        helper.make_node("Relu", ["x"], ["h"], name="relu"),
        helper.make_node("ReduceSum", ["x"], ["sum"], name="sum", keepdims=0),
        helper.make_node("Cast", ["sum"], ["c"], name="cast", to=TensorProto.BOOL),
        helper.make_node("If", ["c"], ["y"], name="choice", then_branch=then, else_branch=other),
    ]
    graph = captured(tmp_path, model_of(nodes, {"x": [2, 2]}, ["y"], {"w": np.zeros((2, 2), np.float32)}))
    assert edges(graph)["h"] == ("relu", ["choice"])
    choice = graph.operators[graph.index["choice"]]
    assert (choice.flops, choice.weight_bytes) == (16, 16)


def test_a_sequence_stays_on_one_device(tmp_path: Path) -> None:
    """What is no tensor can't travel: its maker and readers are colocated."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="relu"),
        helper.make_node("SplitToSequence", ["a", "two"], ["s"], name="make", axis=0),
        helper.make_node("ConcatFromSequence", ["s"], ["b"], name="read", axis=0),
    ]
    model = model_of(nodes, {"x": [4, 3]}, [], {"two": np.array(2, np.int64)})
    model.graph.output.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, [4, 3]))  # type: ignore[attr-defined]
    graph = captured(tmp_path, model)
    assert [[graph.operators[v].name for v in c] for c in graph.colocation] == [["make", "read"]]
    assert {t.name: t.size_bytes for t in graph.tensors}["s"] >= 48


def test_equal_signatures_mean_equal_work(tmp_path: Path) -> None:
    """Names don't matter; shapes, attributes, types and which inputs are weights do."""
    w = {"w": np.zeros((4, 4), np.float32), "v": np.zeros((4, 4), np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="one"),
        helper.make_node("MatMul", ["a", "v"], ["b"], name="same"),
        helper.make_node("MatMul", ["b", "x"], ["c"], name="no weight"),
        helper.make_node("LeakyRelu", ["c"], ["d"], name="leaky", alpha=0.1),
        helper.make_node("LeakyRelu", ["d"], ["y"], name="leakier", alpha=0.2),
    ]
    graph = captured(tmp_path, model_of(nodes, {"x": [4, 4]}, ["y"], w))
    signature = {v.name: v.signature for v in graph.operators}
    assert signature["one"] == signature["same"]
    assert len({signature[n] for n in ("one", "no weight", "leaky", "leakier")}) == 4


def test_unknown_domains_are_captured(tmp_path: Path) -> None:
    """An operator that nobody knows gets its stated shape and generic costs, and its domain stays in its kind."""
    nodes = [
        helper.make_node("Magic", ["x"], ["a"], name="magic", domain="example"),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    model = model_of(nodes, {"x": [4]}, ["y"])
    model.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT16, [8]))  # type: ignore[attr-defined]
    model.opset_import.append(helper.make_opsetid("example", 1))  # type: ignore[attr-defined]
    magic, relu = captured(tmp_path, model).operators
    assert (magic.kind, magic.flops, magic.traffic_bytes, magic.dtype) == ("example.Magic", 8, 16 + 16, "fp16")
    assert (relu.flops, relu.dtype) == (8, "fp16")
