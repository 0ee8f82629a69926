"""ONNX Runtime's own layout of activations: taking its conversions off the ends of a model, and having them apart."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt
import onnx

from placewright.costs.tasks import Input

__all__ = ["MOST_BYTES", "Ends", "Opener", "ends_apart", "filled_bytes", "optimised_inside", "surrounded"]

MOST_BYTES = 2**29
"""Of a model's weights, to have it optimised as a part of a network: it is written and read again."""

SIGNED = frozenset((onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.INT32, onnx.TensorProto.INT64))
"""Element types of the operator that outputs are read by."""


class Opener(Protocol):
    """What opens a session."""

    def __call__(
        self, model: bytes | str, *, optimise: bool, optimised_path: str = "", profile_prefix: str = ""
    ) -> Any:
        """Open one; ``optimised_path``: where the optimised model is written, ``profile_prefix``: and its profile."""
        ...


Maker = Callable[[Input], npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Ends:
    """A model that converts the layout of what it reads or makes, in two parts. Both are optimised already.

    Attributes
    ----------
    stripped : bytes
        The model without the conversions: it reads and makes tensors in the runtime's layout.
    inputs : tuple of Input
        Of both parts; but the tensors that ``conversions`` brings back into the plain layout are outputs of
        ``stripped``.
    conversions : bytes
        Nothing but the conversions.
    inner : bool
        Whether ``stripped`` has conversions within.
    """

    stripped: bytes
    inputs: tuple[Input, ...]
    conversions: bytes
    inner: bool


def ends_apart(
    model: bytes,
    inputs: Sequence[Input],
    open_session: Opener,
    make: Maker,
    *,
    optimised: onnx.ModelProto | None = None,
) -> Ends | None:
    """Optimise a model, unless that is done, and take its conversions off; ``None`` where there are none."""
    if not any(len(i.shape) == 4 for i in inputs):
        return None
    if optimised is None:
        optimised = _optimised(model, open_session)
    else:
        optimised, given = onnx.ModelProto(), optimised
        optimised.CopyFrom(given)
    graph = optimised.graph
    ends = {i.name for i in graph.input}, {o.name for o in graph.output}
    first = [n for n in graph.node if n.op_type == "ReorderInput" and n.input[0] in ends[0]]
    last = [n for n in graph.node if n.op_type == "ReorderOutput" and n.output[0] in ends[1]]
    readers = {name for n in graph.node for name in n.input}
    last = [n for n in last if n.output[0] not in readers]
    if not first and not last:
        return None
    shapes = _blocked_shapes(optimised, [n.output[0] for n in first], inputs, open_session, make)
    conversions = _only(optimised, first, last)
    element = {v.name: v.type.tensor_type.elem_type for v in [*graph.input, *graph.output]}
    for n in first:
        graph.input.append(onnx.helper.make_tensor_value_info(n.output[0], element[n.input[0]], shapes[n.output[0]]))
    for n in last:
        if n.input[0] not in {o.name for o in graph.output}:
            graph.output.append(onnx.helper.make_tensor_value_info(n.input[0], element[n.output[0]], None))
        graph.output.remove(next(o for o in graph.output if o.name == n.output[0]))
    for n in [*first, *last]:
        graph.node.remove(n)
    made = {name for n in graph.node for name in n.output} | {i.name for i in graph.input}
    for o in [o for o in graph.output if o.name not in made]:
        graph.output.remove(o)
    read = {name for n in graph.node for name in n.input}
    for i in [i for i in graph.input if i.name not in read]:
        graph.input.remove(i)
    del graph.value_info[:]
    blocked = [Input(name, "float32", shape) for name, shape in shapes.items()]
    inner = any(n.op_type in ("ReorderInput", "ReorderOutput") for n in graph.node)
    return Ends(optimised.SerializeToString(), (*inputs, *blocked), conversions, inner)


def optimised_inside(
    model: bytes, inputs: Sequence[Input], open_session: Opener, *, blocked: bool = False
) -> onnx.ModelProto | None:
    """Optimise a model as a part of a network: ``None`` where that can't be told from optimising it by itself.

    The runtime fuses nothing behind what makes an output of the network, and a sum of two branches with a convolution
    only where both are in its own layout. So every output is read by an operator that nothing is fused with, and images
    of several come from poolings of one element where ``blocked``; afterwards all these are taken off.
    """
    made = onnx.ModelProto()
    made.ParseFromString(model)
    names = [o.name for o in made.graph.output if o.type.tensor_type.elem_type in SIGNED]
    if len(made.graph.node) < 2 or not names or made.ByteSize() + filled_bytes(made) > MOST_BYTES:
        return None
    images = [i.name for i in inputs if len(i.shape) == 4 and i.dtype == "float32"]
    if blocked and len(images) > 1:
        wrapped, _ = surrounded(model, inputs, [])
        made.ParseFromString(wrapped)
    else:
        images = []
    for o in made.graph.output:
        if o.name in names:
            made.graph.node.append(onnx.helper.make_node("Sign", [o.name], [f"{o.name}/taken"]))
            o.name += "/taken"
    optimised = _optimised(made.SerializeToString(), open_session)
    return optimised if _unwrapped(optimised.graph, names, images) else None


def _optimised(model: bytes, open_session: Opener) -> onnx.ModelProto:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "optimised.onnx"
        open_session(model, optimise=True, optimised_path=str(path))
        return onnx.load(path)


def filled_bytes(model: onnx.ModelProto) -> int:
    """Bytes of the weights that the model fills with one number, and that the optimised one has in full."""
    shapes = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer if t.data_type == 7}
    filled = [n.input[0] for n in model.graph.node if n.op_type == "ConstantOfShape"]
    return sum(8 * int(shapes[name].prod()) for name in filled if name in shapes)


def _unwrapped(graph: onnx.GraphProto, outputs: Sequence[str], images: Sequence[str]) -> bool:
    """Take off what was put around a model, and say whether it was all found where it was put."""
    maker = {t: n for n in graph.node for t in n.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for n in graph.node:
        for t in n.input:
            readers.setdefault(t, []).append(n)
    for name in outputs:
        last = maker.get(f"{name}/taken")
        if last is None or last.op_type != "Sign" or last.input[0] not in maker:
            return False
        output = next(o for o in graph.output if o.name == f"{name}/taken")
        output.name = last.input[0]
        graph.node.remove(last)
    for name in images:
        first = readers.get(f"{name}/given", [])
        if len(first) == 1 and first[0].op_type == "ReorderInput":
            pooling = readers.get(first[0].output[0], [])
            if len(pooling) != 1 or pooling[0].op_type != "MaxPool":
                return False
            back = readers.get(pooling[0].output[0], [])
            if len(back) == 1 and back[0].op_type == "ReorderOutput" and back[0].output[0] == name:
                for n in (first[0], back[0]):  # the model wants the plain layout after all
                    graph.node.remove(n)
            else:
                first[0].input[0], first[0].output[0] = name, pooling[0].output[0]
            graph.node.remove(pooling[0])
        elif len(first) == 1 and first[0].op_type == "MaxPool" and first[0].output[0] == name:
            graph.node.remove(first[0])
        else:
            return False
        next(i for i in graph.input if i.name == f"{name}/given").name = name
    del graph.value_info[:]
    return True


def surrounded(model: bytes, inputs: Sequence[Input], outputs: Sequence[str]) -> tuple[bytes, tuple[Input, ...]]:
    """Put a pooling of one element, which has the runtime's layout, before every image that is read and behind outputs.

    What keeps the layout of its neighbours (a concatenation, a sum), but does not ask for it, then has it.
    """
    made = onnx.ModelProto()
    made.ParseFromString(model)
    graph = made.graph
    images = {i.name for i in inputs if len(i.shape) == 4 and i.dtype == "float32"}
    nodes = list(graph.node)
    before = [_pooling(f"{i.name}/given", i.name) for i in graph.input if i.name in images]
    behind = [_pooling(o.name, f"{o.name}/taken") for o in graph.output if o.name in outputs]
    for i in graph.input:
        i.name += "/given" if i.name in images else ""
    for o in graph.output:
        o.name += "/taken" if o.name in outputs else ""
    del graph.node[:]
    graph.node.extend([*before, *nodes, *behind])
    renamed = [Input(f"{i.name}/given", i.dtype, i.shape) if i.name in images else i for i in inputs]
    return made.SerializeToString(), tuple(renamed)


def _pooling(given: str, made: str) -> onnx.NodeProto:
    return onnx.helper.make_node("MaxPool", [given], [made], kernel_shape=[1, 1])


def _only(optimised: onnx.ModelProto, first: Sequence[onnx.NodeProto], last: Sequence[onnx.NodeProto]) -> bytes:
    """Model of the conversions alone."""
    info = {v.name: v for v in [*optimised.graph.input, *optimised.graph.output]}
    anything = {
        name: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        for name in [*(n.output[0] for n in first), *(n.input[0] for n in last)]
    }
    made = onnx.ModelProto(ir_version=optimised.ir_version)
    made.opset_import.extend(optimised.opset_import)
    made.graph.name = "conversions"
    made.graph.node.extend([*first, *last])
    inputs = dict.fromkeys([n.input[0] for n in first])
    inputs |= dict.fromkeys(n.input[0] for n in last)
    made.graph.input.extend(info.get(name) or anything[name] for name in inputs)
    made.graph.output.extend(anything[n.output[0]] for n in first)
    made.graph.output.extend(info[n.output[0]] for n in last)
    return bytes(made.SerializeToString())


def _blocked_shapes(
    optimised: onnx.ModelProto, names: Sequence[str], inputs: Sequence[Input], open_session: Opener, make: Maker
) -> dict[str, tuple[int, ...]]:
    """Shapes of the converted inputs: the runtime is asked, since the size of a block is the processor's."""
    if not names:
        return {}
    probe = onnx.ModelProto()
    probe.CopyFrom(optimised)
    del probe.graph.output[:]
    probe.graph.output.extend(onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in names)
    session = open_session(probe.SerializeToString(), optimise=False)
    wanted = {i.name for i in session.get_inputs()}
    results = session.run(list(names), {i.name: make(i) for i in inputs if i.name in wanted})
    return {name: tuple(r.shape) for name, r in zip(names, results, strict=True)}
