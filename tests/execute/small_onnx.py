"""Small ONNX models with branches, the problem that is captured from one, and a plan with a given placement."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from placewright.capture.onnx_nodes import constant_nodes, node_names, node_order, reads, weight_names, writes
from placewright.cluster import Cluster, Device, Link
from placewright.graph import Operator, OperatorGraph
from placewright.plan import Plan, Schedule
from placewright.problem import Problem

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def branching(width: int = 8, layers: int = 4, seed: int = 0) -> onnx.ModelProto:
    """Layers of three unlike branches, with a skip over each layer, a late read of the input, and three outputs."""
    rng = np.random.default_rng(seed)
    nodes, weights = [], []

    def weight(name: str) -> str:
        array = (rng.standard_normal((width, width)) / np.sqrt(width)).astype(np.float32)
        weights.append(numpy_helper.from_array(array, name))
        return name

    last = "x"
    for k in range(layers):
        nodes += [
            helper.make_node("MatMul", [last, weight(f"w{k}")], [f"a{k}"], name=f"left{k}"),
            helper.make_node("Tanh", [last], [f"b{k}"], name=f"right{k}"),
            helper.make_node("Split", [f"a{k}"], [f"s{k}", f"t{k}"], name=f"split{k}", axis=1, num_outputs=2),
            helper.make_node("Concat", [f"t{k}", f"s{k}"], [f"c{k}"], name=f"swap{k}", axis=1),
            helper.make_node("Sum", [f"b{k}", f"c{k}", last, "x"], [f"y{k}"], name=f"join{k}"),
        ]
        last = f"y{k}"
    nodes.append(helper.make_node("ReduceMean", [last], ["mean"], name="mean"))
    graph = helper.make_graph(
        nodes,
        "branching",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, width])],
        [
            helper.make_tensor_value_info(last, TensorProto.FLOAT, [4, width]),
            helper.make_tensor_value_info("s0", TensorProto.FLOAT, [4, width // 2]),
            helper.make_tensor_value_info("mean", TensorProto.FLOAT, [1, 1]),
        ],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def masked(layers: int = 4, width: int = 3) -> onnx.ModelProto:
    """ids -> cast -> mask, which each of a chain of layers adds to its product."""
    nodes = [
        helper.make_node("Cast", ["ids"], ["c"], name="cast", to=TensorProto.FLOAT),
        helper.make_node("Neg", ["c"], ["m"], name="mask"),
    ]
    for k in range(layers):
        nodes.append(helper.make_node("MatMul", [f"h{k - 1}" if k else "x", "w"], [f"p{k}"], name=f"product{k}"))
        nodes.append(helper.make_node("Add", ["m", f"p{k}"], [f"h{k}"], name=f"layer{k}"))
    inputs = [
        helper.make_tensor_value_info("ids", TensorProto.INT64, [2, width]),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, width]),
    ]
    outputs = [helper.make_tensor_value_info(f"h{layers - 1}", TensorProto.FLOAT, [2, width])]
    weight = (np.random.default_rng(0).standard_normal((width, width)) / np.sqrt(width)).astype(np.float32)
    graph = helper.make_graph(nodes, "masked", inputs, outputs, [numpy_helper.from_array(weight, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def cluster(count: int, cores: tuple[tuple[int, ...], ...] = (), **options: float) -> Cluster:
    """Like CPU devices, joined by one class of links."""
    devices = [
        Device(f"cpu{i}", kind="cpu", cores=cores[i] if cores else (), threads=1, **options)  # type: ignore[arg-type]
        for i in range(count)
    ]
    return Cluster(devices, [Link(1e-6, 1e10, link_class="same-host")])


def problem_of(model: onnx.ModelProto, on: Cluster) -> Problem:
    """One operator a node that is not constant; every time is 1 ms."""
    graph, names, constant = model.graph, node_names(model), constant_nodes(model)
    order = [k for k in node_order(model) if k not in constant]
    index = {k: v for v, k in enumerate(order)}
    tensors = []
    for k in order:
        for value in writes(graph.node[k]):
            readers = [names[r] for r in index if value in reads(graph.node[r])]
            tensors.append((value, names[k], readers, 4))
    assert not weight_names(graph) & {t[0] for t in tensors}
    captured = OperatorGraph.build([Operator(names[k], graph.node[k].op_type) for k in order], tensors, name=graph.name)
    return Problem(captured, on, np.full((len(order), len(on)), 1e-3))


def plan_of(problem: Problem, device_of: list[int], start_s: list[float] | None = None) -> Plan:
    """Place operators; they start in their own order unless told otherwise."""
    start = np.arange(len(device_of), dtype=float) if start_s is None else np.array(start_s)
    return Plan(np.array(device_of), Schedule(start, start + 1.0), 1.0)


def saved(model: onnx.ModelProto, folder: Path, name: str = "model.onnx") -> Path:
    """Write a model."""
    path = folder / name
    path.write_bytes(model.SerializeToString())
    return path
