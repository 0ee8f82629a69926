"""What ONNX Runtime really fused: the operators of a model, grouped by the nodes of its optimised model."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnxruntime

from placewright.capture.onnx_nodes import node_names, node_order, reads, writes

__all__ = ["LEVELS", "RuntimeGroups", "optimised", "runtime_groups", "with_weights_apart"]

LEVELS = {
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}

BLOCKED = "_nchwc"
"""Ends the name of a node in the runtime's blocked layout; before it stands the tensor that the plain node made."""


@dataclass(frozen=True)
class RuntimeGroups:
    """What became of a model's operators.

    Attributes
    ----------
    of : mapping of operator name to frozenset of int
        Nodes of the optimised model that compute it; several where it is computed twice. Operators that were removed
        (folded, or the double of another one) have no entry.
    nodes : int
        How many nodes the optimised model has.
    """

    of: Mapping[str, frozenset[int]]
    nodes: int


def optimised(path: Path, level: str) -> onnx.ModelProto:
    """Have the runtime's own optimised model, for the CPU, written and read back; without the weights' values."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "optimised.onnx"
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = LEVELS[level]
        options.optimized_model_filepath = str(written)
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return onnx.load(written, load_external_data=False)


def runtime_groups(path: Path, level: str = "all") -> RuntimeGroups:
    """Map a model's operators to the nodes of the optimised model.

    The runtime keeps a tensor's name as long as the tensor exists. So an optimised node computes all operators that lie
    between its outputs and its inputs in the model. Where the runtime puts tensors of its own between two nodes, these
    count as one node. Names in the blocked layout are first translated back.
    """
    model = onnx.load(path, load_external_data=False)
    plain = _Model(model)
    made = optimised(path, level)
    extended = made if level != "all" else optimised(path, "extended")
    own_name = _translated(made, extended) if level == "all" else {}

    def name_of(tensor: str) -> str:
        return plain.first.get(own_name.get(tensor, tensor), own_name.get(tensor, tensor))

    nodes = [n for n in made.graph.node if n.op_type not in ("ReorderInput", "ReorderOutput")]
    root = list(range(len(nodes)))
    maker = {name_of(t): k for k, n in enumerate(nodes) for t in n.output if t}
    for k, n in enumerate(nodes):
        for t in map(name_of, reads(n)):
            if t in maker and t not in plain.maker:
                _join(root, maker[t], k)
    kept = {name_of(t) for n in nodes for t in (*n.output, *n.input)}
    found: dict[str, set[int]] = {}
    for k, n in enumerate(nodes):
        pending = [t for t in map(name_of, n.output) if t in plain.maker]
        seen: set[int] = set()
        while pending:
            v = plain.maker[pending.pop()]
            if v in seen:
                continue
            seen.add(v)
            found.setdefault(plain.names[v], set()).add(_find(root, k))
            for t in (plain.first.get(r, r) for r in reads(model.graph.node[v])):
                if t in plain.maker and t not in kept:
                    pending.append(t)
    return RuntimeGroups({name: frozenset(rows) for name, rows in found.items()}, len(made.graph.node))


def with_weights_apart(path: Path, copy: Path) -> None:
    """Copy a network of the onnx wheel, so that its made-up weights are not all the same number.

    They all are, which lets the runtime take branches of equal shape for one.
    """
    model = onnx.load(path)
    filled = [n for n in model.graph.node if n.op_type == "ConstantOfShape"]
    for k, node in enumerate(filled):
        value = onnx.helper.make_tensor("value", onnx.TensorProto.FLOAT, [1], [0.01 * (1 + k / 1024)])
        del node.attribute[:]
        node.attribute.append(onnx.helper.make_attribute("value", value))
    onnx.save(model, copy)


class _Model:
    """The model as it was: who makes a tensor, where equal operators are one."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.names = node_names(model)
        self.maker: dict[str, int] = {}
        self.first: dict[str, str] = {}  # tensor of an operator that repeats an earlier one -> that one's
        equal: dict[str, list[str]] = {}
        for t in model.graph.initializer:  # equal weights are one, so operators that read them may be, too
            bare = onnx.TensorProto()
            bare.CopyFrom(t)
            bare.name = ""
            digest = hashlib.sha256(bare.SerializeToString(deterministic=True))
            self.first[t.name] = equal.setdefault(digest.hexdigest(), [t.name])[0]
        for k in node_order(model):
            node = model.graph.node[k]
            digest = hashlib.sha256(f"{node.domain}.{node.op_type}".encode())
            for a in sorted(node.attribute, key=lambda a: a.name):
                digest.update(a.SerializeToString(deterministic=True))
            digest.update("|".join(self.first.get(t, t) for t in node.input).encode())
            earlier = equal.setdefault(digest.hexdigest(), list(writes(node)))
            for mine, other in zip(writes(node), earlier, strict=False):
                if mine != other:
                    self.first[mine] = other
                else:
                    self.maker[mine] = k


def _translated(made: onnx.ModelProto, extended: onnx.ModelProto) -> dict[str, str]:
    """For tensors that are named by the blocked layout: the model's own names."""
    by_name = {n.name: n for n in extended.graph.node if n.name}
    maker = {t: n for n in extended.graph.node for t in n.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for n in extended.graph.node:
        for t in n.input:
            readers.setdefault(t, []).append(n)
    own: dict[str, str] = {}

    def next_of(tensor: str, kinds: Iterable[str]) -> str:
        return next((n.output[0] for n in readers.get(tensor, ()) if n.op_type in kinds), tensor)

    for n in made.graph.node:
        if n.op_type == "ReorderInput":
            own[n.output[0]] = own.get(n.input[0], n.input[0])
        elif n.op_type == "ReorderOutput":
            own.setdefault(n.input[0], n.output[0])
        elif n.output[0] in maker:
            continue  # it kept its name
        elif (tensor := n.name.partition(BLOCKED)[0].removesuffix("_bn")) in maker and BLOCKED in n.name:
            plain = maker[tensor]
            if n.op_type == "Conv":
                if len(n.input) > 3 and n.input[3]:
                    tensor = next_of(tensor, ("Add", "Sum"))
                activation = next((a.s.decode() for a in n.attribute if a.name == "activation"), "")
                if activation and plain.op_type != "FusedConv":
                    tensor = next_of(tensor, ("Clip" if activation == "HardSigmoid" else activation, activation))
            own[n.output[0]] = tensor
        elif n.name in by_name:
            own[n.output[0]] = by_name[n.name].output[0]
    return own


def _find(root: list[int], v: int) -> int:
    while root[v] != v:
        root[v] = root[root[v]]
        v = root[v]
    return v


def _join(root: list[int], a: int, b: int) -> None:
    root[_find(root, a)] = _find(root, b)
