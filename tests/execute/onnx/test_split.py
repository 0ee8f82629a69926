"""Cutting an ONNX model along a plan."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from placewright.capture.onnx_nodes import node_names, reads, writes
from placewright.coarsen import duplicate
from placewright.errors import ExecutionError
from placewright.execute.onnx.split import Split, split_model
from placewright.problem import Problem

from ..small_onnx import branching, cluster, masked, plan_of, problem_of


def chain(length: int = 4) -> tuple[onnx.ModelProto, Problem]:
    """x -> r0 -> r1 -> ..."""
    names = ["x", *(f"h{k}" for k in range(length - 1)), "y"]
    nodes = [helper.make_node("Relu", [a], [b], name=f"r{k}") for k, (a, b) in enumerate(itertools.pairwise(names))]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in ("x", "y")]
    model = helper.make_model(helper.make_graph(nodes, "chain", ends[:1], ends[1:]), ir_version=9)
    model.opset_import[0].version = 18
    return model, problem_of(model, cluster(3))


def split(model: onnx.ModelProto, problem: Problem, device_of: list[int], **options: object) -> Split:
    return split_model(model, problem, plan_of(problem, device_of), **options)  # type: ignore[arg-type]


def test_one_device_is_one_call() -> None:
    """The whole network on one device is one call from the inputs to the outputs; nothing is awaited or sent."""
    made = split(*chain(), [1, 1, 1, 1])
    (call,) = made.calls
    assert (call.device, call.operators, call.inputs, call.outputs) == (1, (0, 1, 2, 3), ("x",), ("y",))
    assert call.waits == call.sends == ()


def test_there_and_back_again_cuts_at_each_crossing() -> None:
    """A -> B -> A -> B on a chain is four calls, each waiting for the tensor that the one before sends."""
    made = split(*chain(), [0, 1, 0, 1])
    assert [(c.device, c.operators, c.waits, c.sends) for c in made.calls] == [
        (0, (0,), (), ("h0",)),
        (0, (2,), ("h1",), ("h2",)),
        (1, (1,), ("h0",), ("h1",)),
        (1, (3,), ("h2",), ()),
    ]


def test_a_tensor_travels_once_for_all_its_readers_on_a_device() -> None:
    """Two readers on one device wait once, and the second needs no call of its own."""
    nodes = [helper.make_node("Relu", ["x"], ["h"], name="a")]
    nodes += [helper.make_node("Neg", ["h"], [f"y{k}"], name=f"b{k}") for k in range(2)]
    outputs = [helper.make_tensor_value_info(f"y{k}", TensorProto.FLOAT, [2]) for k in range(2)]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])]
    model = helper.make_model(helper.make_graph(nodes, "fan", inputs, outputs), ir_version=9)
    made = split(model, problem_of(model, cluster(2)), [0, 1, 1])
    assert [(c.operators, c.waits) for c in made.calls] == [((0,), ()), ((1, 2), ("h",))]


def test_calls_follow_the_schedule() -> None:
    """On each device the operators stand in the order of their starts, where the tensors allow it."""
    model = branching(layers=1)
    problem = problem_of(model, cluster(1))
    index = problem.graph.index
    start = [0.0] * len(problem.graph)
    start[index["right0"]] = -1.0
    start[index["mean"]] = -2.0  # can't be: it reads what all others make
    made = split_model(model, problem, plan_of(problem, [0] * len(start), start))
    order = [problem.graph.operators[v].name for v in made.calls[0].operators]
    assert order == ["right0", "left0", "split0", "swap0", "join0", "mean"]


@pytest.mark.parametrize("seed", range(25))
def test_any_placement_gives_calls_that_can_run(seed: int) -> None:
    """In a simulation of workers that block on their waits all calls run, and each value is made where it is read."""
    rng = np.random.default_rng(seed)
    model = branching()
    problem = problem_of(model, cluster(3))
    n = len(problem.graph)
    place = rng.integers(0, 3, n).tolist()
    made = split_model(model, problem, plan_of(problem, place, rng.random(n).tolist()))
    assert sorted(v for c in made.calls for v in c.operators) == list(range(n))
    queues = {i: [c for c in made.calls if c.device == i] for i in range(3)}
    have: dict[int, set[str]] = {i: {"x"} for i in range(3)}
    sent: set[str] = set()
    while any(queues.values()):
        ready = [i for i, queue in queues.items() if queue and set(queue[0].waits) <= sent]
        assert ready, "workers block each other"
        call = queues[ready[0]].pop(0)
        have[call.device].update(call.waits)
        assert set(call.inputs) <= have[call.device]
        assert not set(call.waits) & {n for c in made.calls if c.device == call.device for n in c.outputs}
        have[call.device].update(call.outputs)
        sent.update(call.sends)
        part = onnx.load_model_from_string(made.call_model(call))
        known = set(call.inputs) | {t.name for t in part.graph.initializer}
        for node in part.graph.node:
            assert set(reads(node)) <= known
            known.update(writes(node))
        assert {o.name for o in part.graph.output} == set(call.outputs) <= known
    assert {"y3", "s0", "mean"} <= {n for names in have.values() for n in names}


def test_parts_carry_only_their_own_weights_and_copies_of_shared_constants() -> None:
    """A weight stands in the part that reads it, and a constant node in every part that reads it."""
    shape = numpy_helper.from_array(np.array([3], dtype=np.int64), "shape")
    weight = numpy_helper.from_array(np.ones(3, dtype=np.float32), "w")
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["c"], name="const"),
        helper.make_node("Add", ["x", "c"], ["h"], name="a"),
        helper.make_node("Sum", ["h", "c", "w"], ["y"], name="b"),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in ("x", "y")]
    model = helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], [shape, weight]), ir_version=9)
    problem = problem_of(model, cluster(2))
    assert [v.name for v in problem.graph.operators] == ["a", "b"]
    made = split(model, problem, [0, 1])
    parts = [onnx.load_model_from_string(made.call_model(c)).graph for c in made.calls]
    assert [[n.name for n in g.node] for g in parts] == [["const", "a"], ["const", "b"]]
    assert [[t.name for t in g.initializer] for g in parts] == [["shape"], ["shape", "w"]]


def test_a_loop_body_takes_tensors_from_outside_its_call() -> None:
    """What the graph inside an If reads from outside is an input of its call."""
    branches = [
        helper.make_graph(
            [helper.make_node(kind, ["h"], [f"{kind}.out"])],
            kind,
            [],
            [helper.make_tensor_value_info(f"{kind}.out", TensorProto.FLOAT, [2])],
        )
        for kind in ("Neg", "Abs")
    ]
    nodes = [
        helper.make_node("Relu", ["x"], ["h"], name="a"),
        helper.make_node("If", ["flag"], ["y"], name="choice", then_branch=branches[0], else_branch=branches[1]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]),
        helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, [output]), ir_version=9)
    made = split(model, problem_of(model, cluster(2)), [0, 1])
    assert made.calls[1].inputs == ("flag", "h")
    assert made.calls[1].waits == ("h",)


def test_open_sizes_come_from_the_inputs() -> None:
    """A batch size that the model leaves open is the given input's, or 1."""
    model, problem = chain()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    assert split(model, problem, [0, 1, 0, 1]).values["h1"].shape == (1, 3)
    assert split(model, problem, [0, 1, 0, 1], input_shapes={"x": (7, 3)}).values["h1"].shape == (7, 3)


def test_inputs_of_another_size_than_captured_are_refused() -> None:
    """The error names the first tensor that differs, and both of its shapes."""
    model, problem = chain()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    tensors = [replace(t, shape=(2, 3), dtype="fp32") for t in problem.graph.tensors]
    captured = Problem(type(problem.graph)(problem.graph.operators, tensors), problem.cluster, np.full((4, 3), 1e-3))
    assert split(model, captured, [0, 1, 1, 1], dim_overrides={"batch": 2}).values["x"].shape == (2, 3)
    with pytest.raises(ExecutionError, match=r"tensor 'h0' was captured with the shape \[2, 3\], .* shape \[5, 3\]"):
        split(model, captured, [0, 1, 1, 1], dim_overrides={"batch": 5})


def test_what_is_no_tensor_can_not_be_handed_over() -> None:
    """A sequence inside a call is fine; between two the error names it."""
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["both"], name="a"),
        helper.make_node("ConcatFromSequence", ["both"], ["y"], name="b", axis=0),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [s]) for n, s in (("x", 2), ("y", 4))]
    model = helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:]), ir_version=9)
    problem = problem_of(model, cluster(2))
    assert len(split(model, problem, [0, 0]).calls) == 1
    with pytest.raises(ExecutionError, match=r"value 'both' \(sequence\) can't be handed from one call to another"):
        split(model, problem, [0, 1])


def test_nodes_that_no_output_needs_may_be_missing() -> None:
    """The capture leaves them out, and so does the run."""
    model, problem = chain()
    model.graph.node.append(helper.make_node("Neg", ["h0"], ["nobody"], name="dead"))
    (call,) = split(model, problem, [0, 0, 0, 0]).calls
    assert call.outputs == ("y",)


def test_a_plan_of_another_model_is_refused() -> None:
    """Both an operator that the model lacks and a node that the plan lacks are named."""
    _, problem = chain()
    longer, _ = chain(5)
    with pytest.raises(ExecutionError, match="node 'r4' belongs to no operator"):
        split(longer, problem, [0, 0, 0, 0])
    shorter, _ = chain(3)
    with pytest.raises(ExecutionError, match="operator 'r3' stands for the node 'r3', which the model does not have"):
        split(shorter, problem, [0, 0, 0, 0])


def test_fused_operators_bring_all_their_parts() -> None:
    """An operator that stands for several nodes is cut as one."""
    model, problem = chain()
    assert node_names(model) == ["r0", "r1", "r2", "r3"]
    first, _, _, last = problem.graph.operators
    tensors = [("h0", "r0", ["both"], 24), ("h2", "both", ["r3"], 24)]
    graph = type(problem.graph).build([first, replace(first, name="both", parts=("r1", "r2")), last], tensors)
    fused = Problem(graph, problem.cluster, np.full((3, 3), 1e-3))
    made = split(model, fused, [0, 1, 0])
    parts = [[n.name for n in onnx.load_model_from_string(made.call_model(c)).graph.node] for c in made.calls]
    assert parts == [["r0"], ["r3"], ["r1", "r2"]]


def duplicated() -> tuple[onnx.ModelProto, Problem]:
    """Cast and mask, of 1 ms each, are parts of the four layers, which like their products take 1 s."""
    single = problem_of(model := masked(), cluster(2))
    times = np.where(np.arange(len(single.graph))[:, None] < 2, 1e-3, 1.0)
    return model, duplicate(Problem(single.graph, single.cluster, np.tile(times, 2)), 2e-3)


def test_what_stands_in_several_operators_runs_once_on_each_device() -> None:
    """The first call of a device makes the mask and hands it to the device's later calls; it never travels."""
    model, problem = duplicated()
    layers = [v for v in problem.graph.operators if v.parts]
    assert [v.parts for v in layers] == [("cast", "mask", f"layer{k}") for k in range(4)]
    made = split(model, problem, [0, 0, 1, 1, 0, 0, 1, 1])
    assert [(c.device, c.inputs, c.outputs, c.waits, c.sends) for c in made.calls] == [
        (0, ("x", "ids"), ("h0", "m"), (), ("h0",)),
        (0, ("h1", "m"), ("h2",), ("h1",), ("h2",)),
        (1, ("h0", "ids"), ("h1", "m"), ("h0",), ("h1",)),
        (1, ("h2", "m"), ("h3",), ("h2",), ()),
    ]
    nodes = [{n.name for n in onnx.load_from_string(made.call_model(c)).graph.node} for c in made.calls]
    assert nodes == [
        {"cast", "mask", "product0", "layer0"},
        {"product2", "layer2"},
        {"cast", "mask", "product1", "layer1"},
        {"product3", "layer3"},
    ]


def test_one_call_makes_what_its_operators_share_once() -> None:
    """All on one device is one call with each node once."""
    model, problem = duplicated()
    (call,) = (made := split(model, problem, [1] * 8)).calls
    assert (call.inputs, call.outputs) == (("x", "ids"), ("h3",))
    nodes = [n.name for n in onnx.load_from_string(made.call_model(call)).graph.node]
    assert len(nodes) == len(set(nodes)) == 10
