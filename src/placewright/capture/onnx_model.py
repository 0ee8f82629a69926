"""An ONNX model as an operator graph: nodes are operators, what doesn't depend on the inputs is weights."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placewright.capture.onnx_file import load_model, onnx_module
from placewright.capture.onnx_flops import VIEWS, operator_flops, operator_traffic_bytes
from placewright.capture.onnx_nodes import (
    bodies,
    constant_nodes,
    kind_of,
    node_names,
    node_order,
    reads,
    weight_names,
    writes,
)
from placewright.capture.onnx_shapes import drop_weights, infer_values
from placewright.capture.onnx_values import Value, value_of_tensor, value_of_type
from placewright.errors import InvalidInput
from placewright.graph import Operator, OperatorGraph, Source, Tensor

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

__all__ = ["capture_onnx", "constant_nodes", "node_names"]

TIED_BYTES = 64 * 1024
"""A weight of at least this size that several operators read keeps them together; a smaller one is copied."""

TIED_SHARE = 0.01
"""The same, as a share of all weights: a table of sines must not tie all layers of a large network together."""

_INTEGER_ARITHMETIC = frozenset({"ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul"})


def capture_onnx(path: str | Path, *, dim_overrides: Mapping[str, int] | None = None) -> OperatorGraph:
    """Operator graph of an ONNX file, at the granularity of its nodes.

    Initialisers, and nodes whose outputs don't depend on the network's inputs, are weights: their bytes count at the
    operators that read them. A large weight that several operators read (at least 64 KiB and 1 % of all weights)
    makes them a colocation class, and the first counts its bytes. Nodes that no output depends on are left out. A
    node with sub-graphs (If, Loop, Scan) is one operator. Readers and maker of what is no tensor (sequences) are a
    colocation class, too.

    Parameters
    ----------
    path : str or Path
        External data are not read, but must lie in the file's folder.
    dim_overrides : mapping of str to int
        Sizes of the open dimensions of the inputs, by the dimension's name or ``input:axis``. A warning is logged for
        those that are left out (see :func:`placewright.capture.onnx_values.close_dimensions`).

    Returns
    -------
    OperatorGraph
        Operators are named as :func:`node_names` names nodes, tensors as ONNX values.

    Raises
    ------
    InvalidInput
        If the file is no sound ONNX model, or shapes can't be inferred.
    MissingExtra
        If ``onnx`` is not installed.
    """
    model, sha256 = load_model(path)
    drop_weights(model)
    names, order = node_names(model), node_order(model)
    constant = constant_nodes(model)
    alive = _alive(model, order)
    kept = [k for k in order if k in alive and k not in constant]
    if not kept:
        raise InvalidInput(
            "no output depends on an input through an operator; there is nothing to place",
            what=f"ONNX model {Path(path).name!r}",
        )
    values = infer_values(model, [k for k in order if k in alive], names, dim_overrides)
    _size_sequences(model, order, values)
    fixed = weight_names(model.graph) | {name for k in constant for name in writes(model.graph.node[k])}
    weights = _Weights(model, constant, kept, fixed, values)
    versions = {o.domain or "ai.onnx": o.version for o in model.opset_import}
    operators = [_operator(model.graph.node[k], names[k], values, fixed, weights.bytes_of[k], versions) for k in kept]
    tensors, sequences = _tensors(model, kept, values)
    return OperatorGraph.build(
        operators,
        tensors,
        [[names[k] for k in tied] for tied in weights.tied] + [[operators[k].name for k in s] for s in sequences],
        name=Path(path).stem,
        source=Source("onnx", str(path), sha256),
    )


def _alive(model: ModelProto, order: Sequence[int]) -> set[int]:
    """Positions of the nodes that an output depends on."""
    wanted = {o.name for o in model.graph.output}
    alive: set[int] = set()
    for k in reversed(order):
        node = model.graph.node[k]
        if not wanted.isdisjoint(writes(node)):
            alive.add(k)
            wanted.update(reads(node))
    return alive


def _size_sequences(model: ModelProto, order: Sequence[int], values: dict[str, Value]) -> None:
    """Give what is no tensor the bytes of what it is made from."""
    for k in order:
        node = model.graph.node[k]
        for name in writes(node):
            if name in values and not values[name].is_tensor:
                size = sum(values[r].size_bytes for r in reads(node) if r in values)
                values[name] = Value((size,), "sequence", 8)


class _Weights:
    """Bytes of weights that each operator accounts for, and the operators that a large one ties together."""

    def __init__(
        self,
        model: ModelProto,
        constant: set[int],
        kept: Sequence[int],
        fixed: set[str],
        values: Mapping[str, Value],
    ) -> None:
        nodes = model.graph.node
        origin: dict[str, str] = {}
        for k in sorted(constant):  # a reshaped weight is the same bytes
            if nodes[k].op_type in VIEWS and nodes[k].op_type not in ("Shape", "Size") and nodes[k].input:
                origin.update(dict.fromkeys(writes(nodes[k])[:1], nodes[k].input[0]))
        readers: dict[str, list[int]] = {}
        self.bytes_of: dict[int, int] = {}
        for k in kept:
            own: dict[str, None] = {}
            for name in reads(nodes[k]):
                if name in fixed:
                    while name in origin:
                        name = origin[name]
                    own[name] = None
            for name in own:
                readers.setdefault(name, []).append(k)
            self.bytes_of[k] = sum(_held_bytes(body) for body in bodies(nodes[k]))
        size = {name: values[name].size_bytes if name in values else 0 for name in readers}
        limit = max(TIED_BYTES, TIED_SHARE * sum(size.values()))
        self.tied: list[list[int]] = []
        for name, where in readers.items():
            tied = len(where) > 1 and size[name] >= limit
            if tied:
                self.tied.append(where)
            for k in where[:1] if tied else where:
                self.bytes_of[k] += size[name]


def _held_bytes(body: GraphProto) -> int:
    """Bytes of the weights that a sub-graph holds itself."""
    held = list(body.initializer)
    held += [a.t for node in body.node if node.op_type == "Constant" for a in node.attribute if a.HasField("t")]
    own = sum(value.size_bytes for t in held if (value := value_of_tensor(t)) is not None)
    return own + sum(_held_bytes(inner) for node in body.node for inner in bodies(node))


def _operator(
    node: NodeProto,
    name: str,
    values: Mapping[str, Value],
    fixed: set[str],
    weight_bytes: int,
    versions: Mapping[str, int],
) -> Operator:
    kind = kind_of(node)
    work = _Work.of(node, values)
    read = reads(node)
    traffic = operator_traffic_bytes(kind, [values.get(n) for n in read], [values.get(n) for n in writes(node)])
    main = work.outputs[0] if work.outputs else None
    dtype = "int8" if kind in _INTEGER_ARITHMETIC else main.dtype if main is not None else ""
    version = versions.get(node.domain or "ai.onnx", 0)
    digest = hashlib.sha256(f"{kind}@{version}".encode())
    for attribute in sorted(node.attribute, key=lambda a: a.name):
        digest.update(attribute.SerializeToString(deterministic=True))
    for n in (*node.input, "->", *node.output, *read[len(set(node.input) - {""}) :]):
        value = values.get(n)
        digest.update(f"|{value.shape}{value.dtype}{'w' * (n in fixed)}".encode() if value else b"|-")
    return Operator(
        name=name,
        kind=kind,
        flops=operator_flops(kind, work.attributes, work.inputs, work.outputs) if not work.body else work.body,
        traffic_bytes=traffic,
        weight_bytes=weight_bytes,
        dtype=dtype,
        signature=digest.hexdigest()[:16],
    )


@dataclass(frozen=True, slots=True)
class _Work:
    """A node as the cost formulas see it."""

    attributes: Mapping[str, Any]
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value | None, ...]
    body: int
    """FLOPs of its sub-graphs: of the dearest branch of an If, of one round of a Loop, of all rounds of a Scan."""

    @classmethod
    def of(cls, node: NodeProto, values: Mapping[str, Value]) -> _Work:
        onnx = onnx_module()
        attributes = {
            a.name: onnx.helper.get_attribute_value(a) for a in node.attribute if a.type not in (a.GRAPH, a.GRAPHS)
        }
        inputs = tuple(values.get(name) if name else None for name in node.input)
        outputs = tuple(values.get(name) if name else None for name in node.output)
        body = max((_body_flops(graph, values) for graph in bodies(node)), default=0)
        if node.op_type == "Scan" and inputs and inputs[-1] is not None and inputs[-1].shape:
            body *= inputs[-1].shape[0]
        return cls(attributes, inputs, outputs, body)


def _body_flops(body: GraphProto, outer: Mapping[str, Value]) -> int:
    """FLOPs of one pass through a sub-graph, as far as its shapes are known."""
    values = dict(outer)
    for v in [*body.input, *body.value_info, *body.output]:
        if (value := value_of_type(v.type)) is not None:
            values[v.name] = value
    values |= {t.name: value for t in body.initializer if (value := value_of_tensor(t)) is not None}
    total = 0
    for node in body.node:
        work = _Work.of(node, values)
        total += work.body or operator_flops(kind_of(node), work.attributes, work.inputs, work.outputs)
    return total


def _tensors(
    model: ModelProto, kept: Sequence[int], values: Mapping[str, Value]
) -> tuple[list[Tensor], list[tuple[int, ...]]]:
    """Tensors between the kept nodes, which are counted from 0; and makers and readers of what is no tensor."""
    nodes = model.graph.node
    readers: dict[str, list[int]] = {}
    for position, k in enumerate(kept):
        for name in reads(nodes[k]):
            readers.setdefault(name, []).append(position)
    leaving = {o.name for o in model.graph.output}
    tensors: list[Tensor] = []
    sequences: list[tuple[int, ...]] = []
    for position, k in enumerate(kept):
        for name in writes(nodes[k]):
            if name not in readers and name not in leaving:
                continue
            value = values[name]
            tensors.append(
                Tensor(
                    name,
                    position,
                    tuple(readers.get(name, ())),
                    value.size_bytes,
                    value.shape if value.is_tensor else (),
                    value.dtype,
                    name in leaving,
                )
            )
            if not value.is_tensor:
                sequences.append((position, *readers.get(name, ())))
    return tensors, sequences
