"""Problems as workloads of dnn-partitioning, where that format can say what they say."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice

import msgspec
import numpy as np
import numpy.typing as npt

from placewright.errors import InvalidInput
from placewright.io.partitioning_file import (
    MOST_NAMED,
    NEVER,
    UNIT_S,
    EdgeDocument,
    NodeDocument,
    WorkloadDocument,
    node_ids,
    without_id,
)
from placewright.objective import MaxLoad, Offload, Throughput
from placewright.problem import Problem

__all__ = ["problem_to_partitioning"]


def problem_to_partitioning(problem: Problem) -> str:
    """Make the text of a workload file; times in milliseconds.

    Operators are nodes under their ids (:func:`placewright.io.partitioning_file.node_ids`), colocation classes colours.
    A node has one output: an operator whose tensors have different readers gets a further node for each further tensor,
    which takes no time and shares its device. The objective is not part of the format.

    Raises
    ------
    InvalidInput
        With every reason why the format can't say it: unlike accelerators or CPUs, transfer times that differ by pair,
        CPUs whose memory may not do, cuts that cost, channels.
    """
    violations = list(islice(_inexpressible(problem), MOST_NAMED))
    if violations:
        raise InvalidInput(violations, what="dnn-partitioning can't say this problem")
    graph, devices = problem.graph, problem.cluster.devices
    ids = node_ids([v.name for v in graph.operators])
    accelerators, cores = _kinds(problem)
    allowed, processing = _allowed(problem), problem.times.processing_s
    class_of = {v: k for k, members in enumerate(graph.colocation, start=1) for v in members}
    nodes: list[NodeDocument] = []
    edges: list[EdgeDocument] = []
    fresh, colour = max(ids) + 1, len(graph.colocation) + 1
    first_cost = 0.0
    for v, operator in enumerate(graph.operators):
        supported = bool(accelerators and allowed[v, accelerators[0]])
        on_cpu = bool(cores and allowed[v, cores[0]])
        node = NodeDocument(
            ids[v],
            supported,
            _milliseconds(processing[v, cores[0]]) if on_cpu else NEVER,
            _milliseconds(processing[v, accelerators[0]]) if supported else 0.0,
            operator.backward,
            class_of.get(v),
            float(operator.resident_bytes),
            without_id(operator.name, ids[v]),
        )
        nodes.append(node)
        outputs = _outputs(problem, v)
        if len(outputs) > 1 and node.color_class is None:
            node.color_class, colour = colour, colour + 1
        for k, (readers, tensors) in enumerate(outputs.items()):
            maker = ids[v]
            if k:  # one output a node: another one is that of a node which takes no time and shares the device
                maker, fresh = fresh, fresh + 1
                never = 0.0 if on_cpu else NEVER
                name = f"{graph.tensors[tensors[0]].name} of {node.name}"
                nodes.append(NodeDocument(maker, supported, never, 0.0, operator.backward, node.color_class, 0.0, name))
                edges.append(EdgeDocument(ids[v], maker, first_cost))
            cost = _milliseconds(sum(_transfer_s(problem, u) for u in tensors))
            if not k:
                first_cost = cost
            size = float(sum(graph.tensors[u].size_bytes for u in tensors))
            edges += [EdgeDocument(maker, ids[r], cost, size) for r in readers]
    memory = devices[accelerators[0]].capacity_bytes if accelerators else math.inf
    document = WorkloadDocument(len(accelerators), len(cores), nodes, edges, min(memory, NEVER))
    shown = msgspec.to_builtins(document)
    for node in shown["nodes"]:
        if node["colorClass"] is None:
            del node["colorClass"]
    return msgspec.json.encode(shown).decode().replace("},{", "},\n{") + "\n"


def _outputs(problem: Problem, v: int) -> dict[tuple[int, ...], list[int]]:
    """Tensors of an operator by who reads them; what nobody reads costs nothing."""
    found: dict[tuple[int, ...], list[int]] = {}
    for u in problem.graph.outputs_of[v]:
        if problem.graph.tensors[u].readers:
            found.setdefault(problem.graph.tensors[u].readers, []).append(u)
    return found


def _allowed(problem: Problem) -> npt.NDArray[np.bool_]:
    """(n, D) where operators may run; what colocation forbids besides follows from the colours."""
    return problem.allowed if problem.wishes else np.isfinite(problem.times.processing_s)


def _kinds(problem: Problem) -> tuple[list[int], list[int]]:
    devices = problem.cluster.devices
    return (
        [i for i, d in enumerate(devices) if d.kind != "cpu"],
        [i for i, d in enumerate(devices) if d.kind == "cpu"],
    )


def _milliseconds(seconds: float) -> float:
    """Find the shortest number of milliseconds that reads back as just these seconds."""
    if seconds == 0.0:
        return 0.0
    near = [float(seconds) / UNIT_S]
    for end in (0.0, math.inf):
        x = near[0]
        for _ in range(3):
            x = math.nextafter(x, end)
            near.append(x)
    exact = [x for x in near if x * UNIT_S == seconds]
    return min(exact, key=lambda x: len(repr(x))) if exact else near[0]


def _pairs(problem: Problem) -> npt.NDArray[np.bool_]:
    """(D, D) pairs of devices between which a transfer costs something: all but those of two CPUs."""
    accelerators, _ = _kinds(problem)
    D = len(problem.cluster)
    pays = np.zeros(D, dtype=bool)
    pays[accelerators] = True
    return np.asarray((pays[:, None] | pays[None, :]) & ~np.eye(D, dtype=bool))


def _table(problem: Problem, tensor: int) -> npt.NDArray[np.float64]:
    if problem.transfer_table is not None:
        return np.asarray(problem.transfer_table[tensor])
    return np.asarray(problem.cluster.transfer_table([problem.graph.tensors[tensor].size_bytes])[0])


def _transfer_s(problem: Problem, tensor: int) -> float:
    return float(_table(problem, tensor)[_pairs(problem)].max(initial=0.0))


def _inexpressible(problem: Problem) -> Iterator[str]:
    yield from _unlike(problem)
    graph, devices = problem.graph, problem.cluster.devices
    # Cuts are no part of a load, nor of a call.
    cuts = np.zeros(1) if isinstance(problem.objective, MaxLoad | Throughput | Offload) else problem.cut_s
    if cuts.any():
        v, i = np.argwhere(cuts)[0].tolist()
        yield f"a cut at {graph.operators[v].name!r} costs {cuts[v, i]} s on {devices[i].name!r}; it knows no such cost"
    if problem.cluster.channels:
        yield f"links share the channel {problem.cluster.channels[0]!r}; it knows no channels"
    apart = _pairs(problem)
    for u, tensor in enumerate(graph.tensors):
        times = _table(problem, u)[apart]
        if tensor.readers and times.size and not (np.isfinite(times).all() and (times == times[0]).all()):
            yield (
                f"transfer times of tensor {tensor.name!r} are {times.min():g} to {times.max():g} s, by pair of "
                "devices; make all links alike"
            )
            break
    for tensor in graph.tensors:
        forward = [v for v in tensor.readers if not graph.operators[v].backward]
        if forward and graph.operators[tensor.producer].backward:
            made, read = graph.operators[tensor.producer].name, graph.operators[forward[0]].name
            yield f"forward operator {read!r} reads what the backward {made!r} makes; it knows no such edges"
            break


def _unlike(problem: Problem) -> Iterator[str]:
    """Devices of one kind that differ."""
    devices, allowed, times = problem.cluster.devices, _allowed(problem), problem.times.processing_s
    accelerators, cores = _kinds(problem)
    for kind, here in (("accelerators", accelerators), ("CPUs", cores)):
        for i in here[1:]:
            a, b = devices[here[0]], devices[i]
            if not np.array_equal(_column(allowed, times, here[0]), _column(allowed, times, i)):
                yield f"{kind} {a.name!r} and {b.name!r} have unlike processing times or wishes; it knows one kind"
                break
            if kind == "accelerators" and a.capacity_bytes != b.capacity_bytes:
                yield f"accelerators {a.name!r} and {b.name!r} have unlike memory; it knows one kind"
                break
    if isinstance(problem.objective, Offload):
        if not cores:
            yield "there is no CPU; it has a pool of them always"
        return
    total = int(problem.resident_bytes.sum())
    small = [devices[i] for i in cores if devices[i].capacity_bytes < total]
    if small:
        yield f"CPU {small[0].name!r} has not the memory for the whole network; it limits accelerators alone"


def _column(allowed: npt.NDArray[np.bool_], times: npt.NDArray[np.float64], i: int) -> npt.NDArray[np.float64]:
    return np.where(allowed[:, i], times[:, i], np.inf)
