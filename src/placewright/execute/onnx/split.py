"""Split an ONNX model along a plan: which operators each worker runs together as one session call, and on what.

A call is a run of consecutive operators of one device's order. A new one begins where an operator reads a tensor that
another device made and that has not arrived yet, and after an operator whose tensor another device waits for, so that
it leaves at once. Any placement works: the calls form no cycle, since every device follows one topological order.

A node that stands in several operators (:mod:`placewright.coarsen.duplicates`) runs once on each device that has one
of them: with the first of them there, which hands its tensors to the others.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from placewright.capture.onnx_nodes import constant_nodes, node_names, node_order, reads, weight_names, writes
from placewright.capture.onnx_shapes import drop_weights, infer_values
from placewright.capture.onnx_values import value_of_type
from placewright.errors import ExecutionError
from placewright.plan import Plan
from placewright.problem import Problem

if TYPE_CHECKING:
    import onnx

__all__ = ["Call", "Split", "Value", "split_model"]


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor that is handed from one call to another, or into or out of the network.

    Attributes
    ----------
    name : str
        As in the model.
    element_type : int
        ``onnx.TensorProto.DataType``.
    shape : tuple of int
        As captured.
    size_bytes : int
    """

    name: str
    element_type: int
    shape: tuple[int, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Call:
    """One session call.

    Attributes
    ----------
    device : int
        Index in the cluster.
    operators : tuple of int
        Indices in the problem's graph, in the device's order.
    inputs, outputs : tuple of str
        Values that it reads and makes; weights are inside its model.
    waits : tuple of str
        Of ``inputs`` those that another device makes and that have not arrived for an earlier call.
    sends : tuple of str
        Of ``outputs`` those that another device reads.
    """

    device: int
    operators: tuple[int, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    waits: tuple[str, ...]
    sends: tuple[str, ...]


@dataclass(frozen=True)
class Split:
    """All calls of a plan, each device's in its order, and the values between them.

    Attributes
    ----------
    calls : tuple of Call
    values : mapping of name to Value
        Of every input and output of every call.
    inputs, outputs : tuple of str
        Of the network.
    unplaced_outputs : tuple of str
        Outputs that no placed operator makes: constants and inputs that are passed through.
    """

    calls: tuple[Call, ...]
    values: Mapping[str, Value]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    unplaced_outputs: tuple[str, ...]
    model: onnx.ModelProto
    nodes_of: tuple[tuple[int, ...], ...]
    constants: frozenset[int]

    def call_model(self, call: Call) -> bytes:
        """Serialise the model of one call: its nodes, the constants and weights that they read, names kept."""
        nodes = [k for v in call.operators for k in self.nodes_of[v]]
        return self._model(nodes, call.inputs, call.outputs)

    def unplaced_model(self) -> bytes:
        """Serialise the model that makes the unplaced outputs."""
        return self._model([], (), [o for o in self.unplaced_outputs if o not in self.inputs])

    def _model(self, nodes: Iterable[int], inputs: Iterable[str], outputs: Iterable[str]) -> bytes:
        import onnx

        graph = self.model.graph
        maker = {name: k for k in self.constants for name in writes(graph.node[k])}
        rank = {k: position for position, k in enumerate(node_order(self.model))}
        chosen = set(nodes)
        needed = {name for k in chosen for name in reads(graph.node[k])} | set(outputs)
        pending = [maker[name] for name in needed if name in maker]
        while pending:  # constant nodes are copied into every model that reads them
            k = pending.pop()
            if k not in chosen:
                chosen.add(k)
                names = reads(graph.node[k])
                needed.update(names)
                pending += [maker[name] for name in names if name in maker]
        types = {t.name: t.data_type for t in graph.initializer}
        made = onnx.ModelProto()
        made.ir_version = self.model.ir_version
        made.opset_import.extend(self.model.opset_import)
        made.functions.extend(self.model.functions)
        made.graph.name = graph.name or "part"
        made.graph.node.extend(graph.node[k] for k in sorted(chosen, key=rank.__getitem__))
        made.graph.initializer.extend(t for t in graph.initializer if t.name in needed)
        made.graph.sparse_initializer.extend(t for t in graph.sparse_initializer if t.values.name in needed)
        for name in inputs:
            value = self.values[name]
            made.graph.input.append(onnx.helper.make_tensor_value_info(name, value.element_type, value.shape))
        for name in outputs:  # no shape: what the run really gives is compared with what was captured
            kind = self.values[name].element_type if name in self.values else types.get(name, 0)
            info = onnx.ValueInfoProto(name=name)
            if kind:
                info.type.tensor_type.elem_type = kind
            made.graph.output.append(info)
        return bytes(made.SerializeToString())


def split_model(
    model: onnx.ModelProto,
    problem: Problem,
    plan: Plan,
    *,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
    dim_overrides: Mapping[str, int] | None = None,
    cut_after: Collection[int] = (),
    give_out: bool = False,
) -> Split:
    """Cut a model along a plan.

    Parameters
    ----------
    model : onnx.ModelProto
        External data need not be loaded.
    problem : Problem
        Captured from the same model.
    plan : Plan
    input_shapes : mapping, optional
        Shapes of the network's inputs, where the model leaves sizes open.
    dim_overrides : mapping of str to int, optional
        Sizes of open dimensions by name, as for :func:`placewright.capture.onnx_model.capture_onnx`.
    cut_after : collection of int
        Operators that end a call though nothing asks for it: for measuring what a cut costs.
    give_out : bool
        Calls give out all that their operators make, as if others read it: for looking for a difference.

    Raises
    ------
    ExecutionError
        If the problem is not this model's or was captured for other sizes, or a value between calls is no tensor.
    """
    graph = model.graph
    alive = _alive(model, node_order(model))
    nodes_of, constants = _nodes_of(model, problem, set(alive))
    place = [int(i) for i in plan.device_of]
    count = Counter(k for nodes in nodes_of for k in nodes)
    owner = {k: v for v, nodes in enumerate(nodes_of) for k in nodes if count[k] == 1}
    weights = weight_names(graph)
    inputs = tuple(i.name for i in graph.input if i.name not in weights)
    outputs = tuple(o.name for o in graph.output)
    made_by = {name: v for k, v in owner.items() for name in writes(graph.node[k])}
    reads_of = [{name for k in nodes for name in reads(graph.node[k])} for nodes in nodes_of]
    order = _order([[made_by[n] for n in names if made_by.get(n, v) != v] for v, names in enumerate(reads_of)], plan)
    nodes_of, copied_by = _once_a_device(model, nodes_of, place, order, {k for k, times in count.items() if times > 1})

    def maker(name: str, reader: int) -> int | None:
        return made_by.get(name, copied_by.get((place[reader], name)))

    # What each operator reads from outside itself: tensors of other operators and the network's inputs, no weights.
    taken = [
        tuple(
            dict.fromkeys(
                name
                for k in nodes
                for name in reads(graph.node[k])
                if maker(name, v) not in (None, v) or name in inputs
            )
        )
        for v, nodes in enumerate(nodes_of)
    ]
    readers: dict[str, list[int]] = {}
    for v, names in enumerate(taken):
        for name in names:
            readers.setdefault(name, []).append(v)
    groups = _groups(order, place, taken, readers, made_by, set(cut_after))
    group_of = {v: g for g, group in enumerate(groups) for v in group}

    made_in: list[list[str]] = [[] for _ in groups]
    for name, v in made_by.items():
        if name in outputs or any(group_of[r] != group_of[v] for r in readers.get(name, ())):
            made_in[group_of[v]].append(name)
    for (device, name), v in copied_by.items():
        if any(place[r] == device and group_of[r] != group_of[v] for r in readers.get(name, ())):
            made_in[group_of[v]].append(name)
    arrived: set[tuple[int, str]] = set()
    calls: list[Call] = []
    for g, group in enumerate(groups):
        device = place[group[0]]
        read = dict.fromkeys(n for v in group for n in taken[v] if (made := maker(n, v)) is None or group_of[made] != g)
        waits = [n for n in read if n in made_by and place[made_by[n]] != device and (device, n) not in arrived]
        arrived.update((device, n) for n in waits)
        sends = [n for n in made_in[g] if n in made_by and any(place[r] != device for r in readers.get(n, ()))]
        calls.append(Call(device, tuple(group), tuple(read), tuple(made_in[g]), tuple(waits), tuple(sends)))
    if give_out:
        inside = [tuple(n for v in c.operators for k in nodes_of[v] for n in writes(graph.node[k])) for c in calls]
        calls = [
            replace(c, outputs=(given := tuple(n for n in row if n in made_by)), sends=given)
            for c, row in zip(calls, inside, strict=True)
        ]
    unplaced = tuple(o for o in outputs if o not in made_by)
    crossing = dict.fromkeys([*inputs, *(n for c in calls for n in (*c.inputs, *c.outputs))])
    values = _values(model, crossing, alive, input_shapes or {}, dim_overrides)
    _compare(problem, values)
    return Split(tuple(calls), values, inputs, outputs, unplaced, model, nodes_of, constants)


def _nodes_of(
    model: onnx.ModelProto, problem: Problem, alive: set[int]
) -> tuple[tuple[tuple[int, ...], ...], frozenset[int]]:
    constants = frozenset(constant_nodes(model))
    position = {name: k for k, name in enumerate(node_names(model))}
    nodes_of, seen = [], set(constants)
    for v in problem.graph.operators:
        absent = [name for name in v.part_names if name not in position]
        if absent:
            raise ExecutionError(
                f"operator {v.name!r} stands for the node {absent[0]!r}, which the model does not have; "
                "run the plan with the model that it was made for"
            )
        nodes_of.append(tuple(sorted(position[name] for name in v.part_names if position[name] not in constants)))
        seen.update(nodes_of[-1])
    left = next((name for name, k in position.items() if k in alive and k not in seen), None)
    if left is not None:
        raise ExecutionError(
            f"the model's node {left!r} belongs to no operator of the plan; "
            "run the plan with the model that it was made for"
        )
    return tuple(nodes_of), constants


def _once_a_device(
    model: onnx.ModelProto,
    nodes_of: Sequence[tuple[int, ...]],
    place: Sequence[int],
    order: Sequence[int],
    copied: Collection[int],
) -> tuple[tuple[tuple[int, ...], ...], dict[tuple[int, str], int]]:
    """Leave copied nodes to the first operator of each device that has them, and tell who makes their values there."""
    kept = list(nodes_of)
    first: dict[tuple[int, int], int] = {}
    for v in order if copied else ():
        kept[v] = tuple(k for k in nodes_of[v] if k not in copied or first.setdefault((place[v], k), v) == v)
    made = {(i, name): v for (i, k), v in first.items() for name in writes(model.graph.node[k])}
    return tuple(kept), made


def _order(predecessors: list[list[int]], plan: Plan) -> list[int]:
    """Topological order of all operators; among the ready ones the earliest in the schedule, then the first."""
    start = plan.schedule.start_s
    following: list[list[int]] = [[] for _ in predecessors]
    waiting = [len(set(row)) for row in predecessors]
    for v, row in enumerate(predecessors):
        for u in set(row):
            following[u].append(v)
    ready = [(float(start[v]), v) for v, count in enumerate(waiting) if count == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        _, v = heapq.heappop(ready)
        order.append(v)
        for w in following[v]:
            waiting[w] -= 1
            if waiting[w] == 0:
                heapq.heappush(ready, (float(start[w]), w))
    return order


def _groups(
    order: list[int],
    place: list[int],
    taken: list[tuple[str, ...]],
    readers: Mapping[str, list[int]],
    made_by: Mapping[str, int],
    cut_after: set[int],
) -> list[list[int]]:
    """Operators of each call, each device's calls in its order."""
    sending = {v for name, v in made_by.items() if any(place[r] != place[v] for r in readers.get(name, ()))}
    groups: dict[int, list[list[int]]] = {}
    arrived: set[tuple[int, str]] = set()
    closed: set[int] = set()
    for v in order:
        device = place[v]
        fresh = {(device, n) for n in taken[v] if n in made_by and place[made_by[n]] != device} - arrived
        arrived |= fresh
        rows = groups.setdefault(device, [])
        if not rows or fresh or device in closed:
            rows.append([])
        rows[-1].append(v)
        closed.discard(device)
        if v in sending or v in cut_after:
            closed.add(device)
    return [group for device in sorted(groups) for group in groups[device]]


def _values(
    model: onnx.ModelProto,
    names: Iterable[str],
    alive: list[int],
    input_shapes: Mapping[str, tuple[int, ...]],
    dim_overrides: Mapping[str, int] | None,
) -> dict[str, Value]:
    """Types and shapes of values, found as the capture finds them."""
    import onnx

    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    drop_weights(copied)
    for given in copied.graph.input:
        for d, size in zip(given.type.tensor_type.shape.dim, input_shapes.get(given.name, ()), strict=False):
            if not d.HasField("dim_value"):
                d.dim_value = size
    found = infer_values(copied, alive, node_names(copied), dim_overrides)
    graph = copied.graph
    types = {i.name: i.type.tensor_type.elem_type for i in (*graph.value_info, *graph.output, *graph.input)}
    values: dict[str, Value] = {}
    for name in names:
        value = found[name] if name in found else value_of_type(next(i.type for i in graph.input if i.name == name))
        element_type = types.get(name, 0)
        if value is None or not value.is_tensor or not element_type or value.dtype == "string" or value.bits < 8:
            raise ExecutionError(
                f"value {name!r} ({value.dtype if value else 'unknown type'}) can't be handed from one call to "
                "another; place all operators on one device that make and read it, and those between them"
            )
        values[name] = Value(name, element_type, value.shape, value.size_bytes)
    return values


def _alive(model: onnx.ModelProto, order: list[int]) -> list[int]:
    """Positions of the nodes that an output depends on, in topological order."""
    wanted, alive = {o.name for o in model.graph.output}, []
    for k in reversed(order):
        node = model.graph.node[k]
        if not wanted.isdisjoint(writes(node)):
            alive.append(k)
            wanted.update(reads(node))
    return alive[::-1]


def _compare(problem: Problem, values: Mapping[str, Value]) -> None:
    """Refuse inputs of other sizes than those that the plan was made for."""
    for t in problem.graph.tensors:
        if t.name in values and t.dtype and t.shape != values[t.name].shape:
            raise ExecutionError(
                f"tensor {t.name!r} was captured with the shape {list(t.shape)}, but with these inputs it has the "
                f"shape {list(values[t.name].shape)}; give inputs of the sizes that were planned for, or plan again"
            )
