"""Shapes of all values of an ONNX graph: inferred, folded where they are computed, bounded where data decides them."""

from __future__ import annotations

import copy
import logging
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from placewright.capture.onnx_contrib import STANDARD, contributed_shape
from placewright.capture.onnx_file import external_location, onnx_module
from placewright.capture.onnx_memory import bounded_memory
from placewright.capture.onnx_nodes import kind_of, reads, writes
from placewright.capture.onnx_values import Value, close_dimensions, value_of_tensor, value_of_type
from placewright.errors import InvalidInput

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto, TypeProto

__all__ = ["drop_weights", "infer_values"]

_LOG = logging.getLogger(__name__)

SMALL_ELEMENTS = 1024
"""Only tensors up to this many elements are folded: shapes and indices are smaller, weights are larger."""

LARGEST_VALUE_BYTES = 2**50
"""A single tensor above 1 PiB is a corrupt shape."""

WORKING_BYTES = 2**30
"""Memory that shape inference may take, beside what the model's own size explains."""

_FOLDED_TEXT = """
Abs Add And Cast Ceil Concat ConstantOfShape CumSum Div Equal Expand Flatten Floor Gather GatherElements GatherND
Greater GreaterOrEqual Identity Less LessOrEqual Max Min Mod Mul Neg NonZero Not Or Pow Range ReduceMax ReduceMin
ReduceProd ReduceSum Reshape Round ScatterElements ScatterND Shape Sign Size Slice Split Sqrt Squeeze Sub Sum
Tile Transpose Unsqueeze Where
"""
_FOLDED = frozenset(_FOLDED_TEXT.split())
"""Operators that exporters compute shapes with."""


def drop_weights(model: ModelProto) -> None:
    """Forget the contents of a model's large weights, in place: their types and shapes stay.

    Shape inference copies the whole model several times; this keeps that small.
    """
    for tensor in list(model.graph.initializer) + [
        a.t for node in model.graph.node if node.op_type == "Constant" for a in node.attribute if a.HasField("t")
    ]:
        if math.prod(tensor.dims) > SMALL_ELEMENTS:
            for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
                tensor.ClearField(field)


def infer_values(
    model: ModelProto, order: Sequence[int], names: Sequence[str], dim_overrides: Mapping[str, int] | None = None
) -> dict[str, Value]:
    """Shape and type of every value that is read, or leaves the network.

    Shape inference of the whole graph comes first. Where it leaves values open, they are completed operator by
    operator: small tensors that shapes are computed with are folded by ONNX's reference implementation, and shapes that
    the file states are believed. Where the data decide (NonZero, NonMaxSuppression, Compress, Unique), the largest
    possible shape is taken and a warning logged. ONNX Runtime's symbolic inference is the last resort.

    Parameters
    ----------
    model : ModelProto
        Changed in place: sizes of open dimensions are set, and inferred shapes replace stated ones.
    order : sequence of int
        Positions, in topological order, of the nodes whose values matter.
    names : sequence of str
        Of the nodes.
    dim_overrides : mapping of str to int
        As for :func:`placewright.capture.onnx_values.close_dimensions`.

    Raises
    ------
    InvalidInput
        Naming the operators whose shapes stay open, and what to try.
    """
    close_dimensions(model, dim_overrides)
    try:
        with bounded_memory(WORKING_BYTES + 16 * model.ByteSize()):
            return _infer_values(model, order, names)
    except MemoryError:
        raise InvalidInput(
            f"its shapes take more than {WORKING_BYTES} B to infer, so one of them is corrupt; export it again",
            what=f"ONNX graph {model.graph.name!r}",
        ) from None


def _infer_values(model: ModelProto, order: Sequence[int], names: Sequence[str]) -> dict[str, Value]:
    onnx = onnx_module()
    stated = {v.name: copy.copy(v.type) for v in [*model.graph.value_info, *model.graph.output]}
    del model.graph.value_info[:]
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape") if output.type.HasField("tensor_type") else None
    refusal = ""
    try:
        model.graph.CopyFrom(onnx.shape_inference.infer_shapes(model, data_prop=True).graph)
    except MemoryError:
        raise
    except Exception as failure:  # InferenceError, or ValueError where the model breaks the standard
        refusal = _one_line(failure)
    graph = model.graph
    kinds: dict[str, TypeProto] = {v.name: v.type for v in [*graph.output, *graph.value_info, *graph.input]}
    kinds |= {t.name: onnx.helper.make_tensor_type_proto(t.data_type, list(t.dims)) for t in model.graph.initializer}
    for sparse in model.graph.sparse_initializer:
        kinds[sparse.values.name] = onnx.helper.make_tensor_type_proto(sparse.values.data_type, list(sparse.dims))
    made = {name for k in order for name in writes(graph.node[k])}
    # An output that no operator makes (a weight, an input) needs no inference.
    needed = {name for k in order for name in reads(graph.node[k])} | ({o.name for o in model.graph.output} & made)
    values = {name: value for name, kind in kinds.items() if (value := value_of_type(kind)) is not None}
    values |= {t.name: value for t in model.graph.initializer if (value := value_of_tensor(t)) is not None}
    completion = _Completion(model, kinds, values, stated, needed)
    if not needed <= values.keys():
        completion.run(order)
    if completion.unknown and not needed <= values.keys():
        _symbolic(model, values)
    reasons = [
        f"operator {names[k]!r} ({kind_of(model.graph.node[k])}): the shape of its output {name!r} can't be inferred"
        + (f" ({completion.failures[name]})" if name in completion.failures else "")
        for k in order
        for name in writes(model.graph.node[k])
        if name in needed and name not in values and all(r in values for r in reads(model.graph.node[k]))
    ]
    if reasons or not needed <= values.keys():
        more = f"; and {len(reasons) - 5} more" if len(reasons) > 5 else ""
        told = f" ({refusal})" if refusal else ""
        raise InvalidInput(
            "; ".join(reasons[:5] or ["shapes can't be inferred"])
            + more
            + told
            + "; give sizes of the inputs by dim_overrides, state the value's shape in the file's value_info, or fold "
            "constants first with onnxsim",
            what=f"ONNX graph {model.graph.name!r}",
        )
    huge = [f"value {n!r} of shape {v.shape} takes {v.size_bytes} B" for n, v in values.items() if _is_huge(v)]
    if huge:
        raise InvalidInput(
            f"{huge[0]}, above the limit of {LARGEST_VALUE_BYTES} B; correct the shapes or give smaller sizes by "
            "dim_overrides",
            what=f"ONNX graph {model.graph.name!r}",
        )
    return values


def _is_huge(value: Value) -> bool:
    return value.size_bytes > LARGEST_VALUE_BYTES


class _Completion:
    """One pass over the nodes in topological order that fills in open types, with folded small tensors at hand."""

    def __init__(
        self,
        model: ModelProto,
        kinds: dict[str, TypeProto],
        values: dict[str, Value],
        stated: Mapping[str, TypeProto],
        needed: set[str],
    ) -> None:
        self.model, self.kinds, self.values, self.stated, self.needed = model, kinds, values, stated, needed
        self.versions = {o.domain or "ai.onnx": o.version for o in model.opset_import}
        self.data: dict[str, npt.NDArray[Any]] = {}
        self.failures: dict[str, str] = {}
        self.unknown = False  # whether an operator was met that onnx has no schema for
        for tensor in model.graph.initializer:
            self._keep(tensor.name, tensor)

    def run(self, order: Sequence[int]) -> None:
        """Go over the nodes once."""
        for k in order:
            node = self.model.graph.node[k]
            if any(name in self.needed and name not in self.values for name in writes(node)):
                self._infer(node)
            for position, name in enumerate(node.output):
                if name in self.needed and name not in self.values:
                    self._believe(node, position, name)
            if kind_of(node) in _FOLDED or node.op_type == "Constant":
                self._fold(node)

    def _keep(self, name: str, tensor: TensorProto) -> None:
        if external_location(tensor) is None and math.prod(tensor.dims) <= SMALL_ELEMENTS:
            try:
                self.data[name] = onnx_module().numpy_helper.to_array(tensor)
            except Exception as failure:  # contents that don't fit the shape, in whichever way
                _LOG.debug("weight %r can't be read: %s", name, failure)

    def _infer(self, node: NodeProto) -> None:
        onnx = onnx_module()
        wanted = reads(node)
        if not all(name in self.values for name in wanted):
            return
        schema = self._schema(node)
        if schema is None:
            self.unknown = True
            self._contributed(node, [self.kinds[name] for name in wanted])
            return
        try:
            outputs = onnx.shape_inference.infer_node_outputs(
                schema,
                node,
                {name: self.kinds[name] for name in wanted},
                {n: onnx.numpy_helper.from_array(self.data[n], n) for n in node.input if n in self.data},
                opset_imports=list(self.model.opset_import),
                ir_version=self.model.ir_version,
            )
        except MemoryError:
            raise
        except Exception as failure:  # a shape that breaks the operator's rules, told in one of several ways
            self.failures |= dict.fromkeys(writes(node), _one_line(failure))
            return
        for name, kind in outputs.items():
            self._know(name, kind)

    def _schema(self, node: NodeProto) -> Any:
        """Find a node's schema, in the newest operator set if its own lacks it; ``None`` when onnx has none."""
        defs = onnx_module().defs
        standard = STANDARD.get(kind_of(node))
        domain = "" if standard or node.domain == "ai.onnx" else node.domain
        kind = standard or node.op_type
        version = self.versions.get(domain or "ai.onnx", 1)
        for arguments in ((kind, version, domain), (kind, domain)):
            try:
                return defs.get_schema(*arguments)
            except defs.SchemaError:
                continue
        return None

    def _contributed(self, node: NodeProto, types: list[TypeProto]) -> None:
        try:
            shape = contributed_shape(node, types)
        except ValueError as failure:  # shapes that can't be broadcast
            self.failures |= dict.fromkeys(writes(node), _one_line(failure))
            return
        if shape is not None and writes(node):
            element = types[0].tensor_type.elem_type
            self._know(writes(node)[0], onnx_module().helper.make_tensor_type_proto(element, shape))

    def _believe(self, node: NodeProto, position: int, name: str) -> None:
        """Take what the file states of a value, or the largest shape that it can have."""
        if name in self.stated:
            self._know(name, self.stated[name])
        if name not in self.values and (bound := self._largest(node, position)) is not None:
            kind = onnx_module().helper.make_tensor_type_proto(*bound)
            _LOG.warning("operator %r (%s): its data decide the shape; %s is taken", node.name, node.op_type, bound[1])
            self._know(name, kind)

    def _largest(self, node: NodeProto, position: int) -> tuple[int, list[int]] | None:
        given = [self.values.get(name) for name in node.input]
        first = given[0] if given else None
        if first is None:
            return None
        integer, element = onnx_module().TensorProto.INT64, self.kinds[node.input[0]].tensor_type.elem_type
        if node.op_type == "NonZero":
            return integer, [len(first.shape), first.elements]
        if node.op_type == "NonMaxSuppression" and len(given) > 1 and given[1] is not None and len(given[1].shape) == 3:
            limit = self.data.get(node.input[2]) if len(node.input) > 2 else None
            boxes = min(int(limit.flat[0]), first.shape[1]) if limit is not None and limit.size else first.shape[1]
            return integer, [given[1].shape[0] * given[1].shape[1] * boxes, 3]
        axis = next((a.i for a in node.attribute if a.name == "axis"), None)
        if node.op_type == "Compress":
            return element, [first.elements] if axis is None else list(first.shape)
        if node.op_type == "Unique":
            flat = [first.elements] if axis is None else list(first.shape)
            return (element, flat) if position == 0 else (integer, [first.elements])
        return None

    def _know(self, name: str, kind: TypeProto) -> None:
        value = value_of_type(kind)
        if value is not None:
            self.kinds[name], self.values[name] = kind, value
        else:
            self.kinds.setdefault(name, kind)

    def _fold(self, node: NodeProto) -> None:
        """Compute a node's outputs when all inputs are at hand and the outputs are small."""
        onnx = onnx_module()
        outputs = [self.values.get(name) for name in writes(node)]
        if not outputs or not (node.input or node.op_type == "Constant"):
            return
        if any(o is not None and o.elements > SMALL_ELEMENTS for o in outputs):
            return
        if node.op_type == "Constant":
            for a in node.attribute:
                if a.name == "value":
                    self._keep(writes(node)[0], a.t)
                elif a.name in ("value_int", "value_ints", "value_float", "value_floats"):
                    dtype = np.int64 if a.name.startswith("value_int") else np.float32
                    self.data[writes(node)[0]] = np.array(onnx.helper.get_attribute_value(a), dtype=dtype)
            return
        if node.op_type in ("Shape", "Size"):
            given = self.values.get(node.input[0])
            if given is None:
                return
            ends = {a.name: a.i for a in node.attribute}
            shape = given.shape[ends.get("start", 0) : ends.get("end", len(given.shape))]
            made = np.array(shape if node.op_type == "Shape" else given.elements, dtype=np.int64)
            self.data[writes(node)[0]] = made
            return
        inputs = {name: self.data.get(name) for name in node.input if name}
        if any(v is None for v in inputs.values()) or (None in outputs and node.op_type != "NonZero"):
            return
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                unknown = [onnx.helper.make_empty_tensor_value_info(n) for n in (*inputs, *writes(node))]
                graph = onnx.helper.make_graph([node], "fold", unknown[: len(inputs)], unknown[len(inputs) :])
                single = onnx.helper.make_model(graph, opset_imports=list(self.model.opset_import))
                from onnx.reference import ReferenceEvaluator

                results = ReferenceEvaluator(single).run(None, inputs)
        except Exception as failure:  # the reference implementation lacks an operator or a type
            _LOG.debug("operator %r (%s): %s", node.name, node.op_type, _one_line(failure))
            return
        for name, result in zip(writes(node), results, strict=True):
            self.data[name] = np.asarray(result)
            self._know(name, onnx.helper.make_tensor_type_proto(self._element(name, result), list(result.shape)))

    def _element(self, name: str, result: npt.NDArray[Any]) -> int:
        known = self.kinds.get(name)
        onnx = onnx_module()
        return (known.tensor_type.elem_type if known is not None else 0) or int(
            onnx.helper.np_dtype_to_tensor_dtype(result.dtype)
        )


def _symbolic(model: ModelProto, values: dict[str, Value]) -> None:
    """Complete ``values`` by ONNX Runtime's own inference, which knows its contributed operators."""
    try:
        from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

        # Step by step: its own infer_shapes writes what it could not complete into the working folder.
        inference = SymbolicShapeInference(2**31 - 1, True, False, 0)
        inference._preprocess(model)
        complete = False
        while inference.run_:
            complete = inference._infer_impl()
        inference._update_output_from_vi()
        if not complete:
            _LOG.debug("symbolic shape inference: incomplete")
            return
        graph = inference.out_mp_.graph
    except Exception as failure:  # not installed, or it gives up in one of many ways
        _LOG.debug("symbolic shape inference: %s", _one_line(failure))
        return
    for v in [*graph.value_info, *graph.output]:
        value = value_of_type(v.type)
        if value is not None and v.name not in values:
            values[v.name] = value


def _one_line(failure: Exception) -> str:
    return " ".join(str(failure).split())[:200]
