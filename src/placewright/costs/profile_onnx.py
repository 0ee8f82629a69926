"""Cutting an ONNX network into what is measured: each operator as its own small model, and the network in pieces."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from placewright.capture.onnx_file import external_location, load_model, onnx_module
from placewright.capture.onnx_flops import VIEWS
from placewright.capture.onnx_nodes import constant_nodes, node_names, node_order, reads, weight_names, writes
from placewright.capture.onnx_shapes import drop_weights, infer_values
from placewright.capture.onnx_values import Value, value_of_type
from placewright.costs.profile_cuts import sides_of
from placewright.costs.tasks import Answer, Conversion, Input, OnnxPieces, OnnxUnit, OnnxValues, Task
from placewright.errors import InvalidInput
from placewright.graph import OperatorGraph

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

__all__ = ["OnnxNetwork"]

SYNTHETIC_ELEMENTS = 1024
"""Weights above this size are replaced by a constant of the same shape: a time doesn't depend on their values."""

SYNTHETIC_VALUE = 0.01
"""What they are filled with: no denormal, nor near enough to 1 to grow through a network."""

KNOWN_ELEMENTS = 64
"""Integer tensors up to this size may be shapes, so they get the values that the network computes."""

BLOCKED_KINDS = frozenset(
    ("Conv", "FusedConv", "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool", "BatchNormalization")
)
"""Kinds of operators whose results ONNX Runtime may keep in a layout of its own."""

PASSING_KINDS = frozenset(
    ("Concat", "Add", "Sum", "Mul", "Relu", "Clip", "Sigmoid", "Tanh", "Dropout", "Identity", "Resize")
)
"""Kinds that may keep that layout when their inputs have it."""

COMPUTING_VIEWS = frozenset(("Shape", "Size"))
"""Views that make something new of what they read."""

MOST_PIECES = 9
MOST_UNIT_BYTES = 2**31 - 2**20


class OnnxNetwork:
    """A network and the tasks that measure it.

    Parameters
    ----------
    path : path
        Its external data are not read.
    graph : OperatorGraph
        Captured from it, fused or not.
    dim_overrides : mapping, optional
        As it was captured with.

    Raises
    ------
    InvalidInput
        If the graph has operators that the model has not.
    """

    def __init__(self, path: str | Path, graph: OperatorGraph, dim_overrides: Mapping[str, int] | None = None) -> None:
        onnx = onnx_module()
        self.path, self.graph = Path(path), graph
        self.model, _ = load_model(path)
        names, order = node_names(self.model), node_order(self.model)
        self._rank = {k: r for r, k in enumerate(order)}
        self._constant = constant_nodes(self.model)
        self._maker = {name: k for k, node in enumerate(self.model.graph.node) for name in writes(node)}
        self._weights = {t.name: t for t in self.model.graph.initializer}
        self._fixed = weight_names(self.model.graph)
        position = {name: k for k, name in enumerate(names)}
        absent = [name for v in graph.operators for name in v.part_names if name not in position]
        if absent:
            raise InvalidInput(
                f"operator {absent[0]!r} is not in the model {self.path.name!r}; give the model that the graph was "
                "captured from"
            )
        self._nodes = [sorted((position[p] for p in v.part_names), key=self._rank.__getitem__) for v in graph.operators]
        shaped = copy.deepcopy(self.model)
        drop_weights(shaped)
        self._values: dict[str, Value] = infer_values(shaped, _alive(shaped, order), names, dim_overrides)
        self._element = {
            value.dtype: number
            for number in onnx.TensorProto.DataType.values()
            if (value := value_of_type(onnx.helper.make_tensor_type_proto(number, []))) is not None
        }
        self._readers: dict[str, list[int]] = {}
        for k, node in enumerate(self.model.graph.node):
            for name in reads(node):
                self._readers.setdefault(name, []).append(k)
        self._outputs = {o.name for o in self.model.graph.output}
        self._known: dict[str, Input] = {}
        self._blocked = self._blocked_tensors()

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The network's inputs, made up."""
        names = [i.name for i in self.model.graph.input if i.name not in self._fixed]
        return tuple(self._input(name, range(len(self.model.graph.node))) for name in names)

    def prepare(self, ask: Callable[[Task], Answer]) -> None:
        """Have the small integer tensors computed that operators read: shapes and indices must be true ones."""
        wanted = sorted(
            {
                name
                for nodes in self._nodes
                for name in self._read_from_outside(nodes)
                if name in self._maker and (v := self._values[name]).dtype in ("int64", "int32", "bool")
                if v.elements <= KNOWN_ELEMENTS and len(v.shape) <= 1
            }
        )
        for name in wanted:
            if (shape := self._stated_shape(name)) is not None:
                values = b"".join(n.to_bytes(8, "little", signed=True) for n in shape)
                self._known[name] = Input(name, "int64", (len(shape),), values=values)
        computed = [name for name in wanted if name not in self._known]
        if computed:
            answer = ask(OnnxValues(self.inputs, self._ancestors(computed)))
            self._known |= {v.name: v for v in answer.values}

    def unit(self, operator: int) -> Task:
        """Make the task that times one operator.

        Raises
        ------
        InvalidInput
            If it can't be cut out.
        """
        nodes = self._nodes[operator]
        names = self._read_from_outside(nodes)
        for name in (*names, *self._made_for_outside(nodes)):
            if not self._values[name].is_tensor:
                raise InvalidInput(f"tensor {name!r} is a sequence, which can't be made up")
        model = self._model(nodes, names, self._made_for_outside(nodes), synthetic=True)
        if len(model) > MOST_UNIT_BYTES:
            raise InvalidInput(f"its weights of {len(model)} B don't fit a model file")
        inputs = tuple(self._input(n, nodes) for n in names if n not in self._known)
        view = bool(inputs) and all(self.model.graph.node[k].op_type in VIEWS - COMPUTING_VIEWS for k in nodes)
        return OnnxUnit(inputs, model, blocked=not self._blocked.isdisjoint(names), view=view)

    def whole(self) -> Task:
        """Make the task that times the network."""
        return OnnxUnit(self.inputs, path=str(self.path.resolve()), whole=True)

    def converting(self, conversion: Conversion) -> int | None:
        """Operator that is charged for a conversion inside the network: it makes the tensor, or wants it blocked."""
        place = {k: v for v, nodes in enumerate(self._nodes) for k in nodes}
        if not conversion.for_reader:
            return place.get(self._maker.get(conversion.tensor, -1))
        readers = [k for k in self._readers.get(conversion.tensor, ()) if k in place]
        blocked = [k for k in readers if self.model.graph.node[k].op_type in BLOCKED_KINDS]
        return next((place[k] for k in (*blocked, *readers)), None)

    def pieces(self) -> tuple[Task, list[int]] | None:
        """Make the task that times the network in pieces, and say which operators are at sides of its cuts.

        ``None`` when it can't be cut.

        Cuts lie where the fewest tensors cross, evenly along the order of the operators.
        """
        if any(external_location(t) is not None for t in self.model.graph.initializer):
            return None
        places = _narrow_places(self.graph)
        if not places:
            return None
        chosen = sorted({places[round(k * (len(places) - 1) / MOST_PIECES)] for k in range(1, MOST_PIECES)})
        models = []
        for begin, end in zip([0, *chosen], [*chosen, len(self.graph)], strict=True):
            nodes = sorted((k for v in range(begin, end) for k in self._nodes[v]), key=self._rank.__getitem__)
            models.append(self._model(nodes, self._read_from_outside(nodes), self._made_for_outside(nodes)))
        return OnnxPieces(self.inputs, str(self.path.resolve()), tuple(models)), sides_of(self.graph, chosen)

    def _blocked_tensors(self) -> set[str]:
        """Tensors that may be in the runtime's own layout within the network; the runtime has the last word."""
        blocked: set[str] = set()
        for k in sorted(self._rank, key=self._rank.__getitem__):
            node = self.model.graph.node[k]
            passes = node.op_type in PASSING_KINDS and not blocked.isdisjoint(reads(node))
            if passes or node.op_type in BLOCKED_KINDS:
                blocked.update(writes(node))
        return blocked

    def _read_from_outside(self, nodes: Sequence[int]) -> list[str]:
        inside = {name for k in nodes for name in writes(self.model.graph.node[k])}
        names = dict.fromkeys(name for k in nodes for name in reads(self.model.graph.node[k]))
        return [
            n for n in names if n not in inside and n not in self._fixed and self._maker.get(n) not in self._constant
        ]

    def _made_for_outside(self, nodes: Sequence[int]) -> list[str]:
        inside = set(nodes)
        return [
            name
            for k in nodes
            for name in writes(self.model.graph.node[k])
            if name in self._outputs or any(r not in inside for r in self._readers.get(name, ()))
        ]

    def _input(self, name: str, nodes: Iterable[int]) -> Input:
        value = self._values[name]
        if name in self._known:
            return self._known[name]
        below = min((b for k in nodes for b in self._bounds(self.model.graph.node[k], name)), default=2)
        return Input(name, _numpy_name(self._element[value.dtype]), value.shape, below)

    def _bounds(self, node: NodeProto, name: str) -> Iterator[int]:
        """How large an index may be that a node reads."""
        at = 1 if node.op_type in ("Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND") else -1
        if 0 < at < len(node.input) and node.input[at] == name and node.input[0] in self._values:
            shape = self._values[node.input[0]].shape
            axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
            yield min(shape, default=1) if node.op_type.endswith("ND") else shape[axis]

    def _model(
        self, nodes: Sequence[int], inputs: Sequence[str], outputs: Sequence[str], *, synthetic: bool = False
    ) -> bytes:
        """Serialise some nodes with the weights that they read; ``synthetic``: large weights without their values."""
        onnx = onnx_module()
        graph = self.model.graph
        chosen, pending = set(nodes), [name for k in nodes for name in reads(graph.node[k])]
        needed: dict[str, None] = {}
        while pending:
            name = pending.pop()
            maker = self._maker.get(name, -1)
            if name in self._fixed:
                needed[name] = None
            elif maker in self._constant and maker not in chosen:
                chosen.add(maker)
                pending += reads(graph.node[maker])
        made = onnx.ModelProto(ir_version=self.model.ir_version)
        made.opset_import.extend(self.model.opset_import)
        made.functions.extend(self.model.functions)
        made.graph.name = "unit"
        for name in sorted(needed):
            tensor = self._weights.get(name)
            if tensor is not None and synthetic and _replaceable(tensor):
                made.graph.node.append(_filled(tensor))
                made.graph.initializer.append(_shape_of(tensor))
            elif tensor is not None:
                made.graph.initializer.append(tensor)
        made.graph.sparse_initializer.extend(t for t in graph.sparse_initializer if t.values.name in needed)
        made.graph.node.extend(graph.node[k] for k in sorted(chosen, key=self._rank.__getitem__))
        for name in inputs:
            value = self._values[name]
            if synthetic and name in self._known:
                known = self._known[name]
                tensor = onnx.TensorProto(name=name, data_type=self._element[value.dtype], dims=known.shape)
                tensor.raw_data = known.values
                made.graph.initializer.append(tensor)
            else:
                kind = self._element[value.dtype]
                made.graph.input.append(onnx.helper.make_tensor_value_info(name, kind, value.shape))
        for name in outputs:
            info = onnx.ValueInfoProto(name=name)
            info.type.tensor_type.elem_type = self._element[self._values[name].dtype]
            made.graph.output.append(info)
        return bytes(made.SerializeToString())

    def _stated_shape(self, name: str) -> tuple[int, ...] | None:
        """Value of what a Shape operator makes; ``None`` for what another one makes."""
        node = self.model.graph.node[self._maker[name]]
        if node.op_type != "Shape":
            return None
        ends = {a.name: a.i for a in node.attribute}
        shape = self._values[node.input[0]].shape
        return shape[ends.get("start", 0) : ends.get("end", len(shape))]

    def _ancestors(self, wanted: Sequence[str]) -> bytes:
        """Model that computes some values; where it asks for a shape, the shape is put in, so it stays small."""
        onnx = onnx_module()
        graph, chosen, pending = self.model.graph, set[int](), list(wanted)
        shapes: list[TensorProto] = []
        while pending:
            name = pending.pop()
            k = self._maker.get(name, -1)
            if k < 0 or k in chosen:
                continue
            chosen.add(k)
            if (shape := self._stated_shape(name)) is not None:
                shapes.append(onnx.helper.make_tensor(name, onnx.TensorProto.INT64, [len(shape)], shape))
            else:
                pending += reads(graph.node[k])
        kept = sorted((k for k in chosen if graph.node[k].op_type != "Shape"), key=self._rank.__getitem__)
        inputs = [i.name for i in graph.input if i.name not in self._fixed and self._is_read(i.name, kept)]
        made = onnx.ModelProto()
        made.ParseFromString(self._model(kept, inputs, wanted))
        made.graph.initializer.extend(shapes)
        return bytes(made.SerializeToString())

    def _is_read(self, name: str, nodes: Sequence[int]) -> bool:
        inside = set(nodes)
        return any(k in inside for k in self._readers.get(name, ()))


def _alive(model: ModelProto, order: Sequence[int]) -> list[int]:
    wanted = {o.name for o in model.graph.output}
    alive = set()
    for k in reversed(order):
        if not wanted.isdisjoint(writes(model.graph.node[k])):
            alive.add(k)
            wanted.update(reads(model.graph.node[k]))
    return [k for k in order if k in alive]


def _narrow_places(graph: OperatorGraph) -> list[int]:
    """Positions in the order before which the fewest tensors cross."""
    crossing = [0] * (len(graph) + 1)
    for t in graph.tensors:
        if t.readers:
            crossing[t.producer + 1] += 1
            crossing[t.readers[-1] + 1] -= 1
    counts = []
    running = 0
    for k in range(len(graph)):
        running += crossing[k]
        counts.append(running)
    inner = counts[1:]
    least = min((c for c in inner if c > 0), default=0)
    return [k for k, c in enumerate(counts) if k > 0 and c == least] if least else []


def _replaceable(tensor: TensorProto) -> bool:
    count = 1
    for d in tensor.dims:
        count *= d
    floats = {onnx_module().TensorProto.FLOAT, onnx_module().TensorProto.FLOAT16, onnx_module().TensorProto.DOUBLE}
    return external_location(tensor) is not None or (tensor.data_type in floats and count > SYNTHETIC_ELEMENTS)


def _shape_of(tensor: TensorProto) -> TensorProto:
    onnx = onnx_module()
    made: TensorProto = onnx.helper.make_tensor(
        f"{tensor.name}/shape", onnx.TensorProto.INT64, [len(tensor.dims)], list(tensor.dims)
    )
    return made


def _filled(tensor: TensorProto) -> NodeProto:
    onnx = onnx_module()
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    value = SYNTHETIC_VALUE if dtype.kind == "f" else 0
    filling = onnx.helper.make_tensor("value", tensor.data_type, [1], [value])
    made: NodeProto = onnx.helper.make_node("ConstantOfShape", [f"{tensor.name}/shape"], [tensor.name], value=filling)
    return made


def _numpy_name(element_type: int) -> str:
    return str(onnx_module().helper.tensor_dtype_to_np_dtype(element_type))
