"""Workloads in the JSON format of the program dnn-partitioning (arXiv 2006.16423).

The id of a node stands at the end of its operator's name (:func:`node_ids`), so that splits, which name nodes by id,
can be read and written for a problem alone, wherever it came from.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np

from placewright.cluster import Cluster, Device, Link
from placewright.errors import InvalidInput
from placewright.graph import Operator, OperatorGraph, Source
from placewright.io.reading import decode_json, read_bounded
from placewright.objective import MaxLoad, Objective, Offload
from placewright.problem import Problem, Times

__all__ = ["MILLISECONDS", "NEVER", "UNIT_S", "node_ids", "partitioning_from_json", "read_partitioning", "without_id"]

UNIT_S = 1e-3
"""The files state no unit; milliseconds are assumed, and ``Times.source`` says so."""

MILLISECONDS = "given, milliseconds assumed"
"""What ``Times.source`` says."""

NEVER = 1e30
"""The published programs' infinity: a time of at least this means that it can't run there."""

LONGEST = 1e15
"""Milliseconds of any other time; sums of them stay exact enough."""

MOST_BYTES = 2**50
"""Of one operator."""

MOST_DEVICES = 4096

MOST_TABLE = 2**25
"""Values of the table of transfer times: 256 MiB."""

MOST_NAMED = 20
"""Violations that are named one by one."""

COST_TOLERANCE = 1e-6
"""By how much the published program lets the costs of one source differ."""


class NodeDocument(msgspec.Struct, rename="camel"):
    """A node of the published files."""

    id: int
    supported_on_fpga: bool | int
    cpu_latency: float
    fpga_latency: float
    is_backward_node: bool | int = 0
    color_class: int | None = None
    size: float = 0.0
    name: str = ""


class EdgeDocument(msgspec.Struct, rename="camel"):
    """An edge of the published files; ``cost``: time to move the source's output between an accelerator and RAM."""

    source_id: int
    dest_id: int
    cost: float
    size: float = 0.0


class WorkloadDocument(
    msgspec.Struct, rename={"most_accelerators": "maxFPGAs", "most_cores": "maxCPUs", "memory": "maxSizePerFPGA"}
):
    """A workload of the published files."""

    most_accelerators: int
    most_cores: int
    nodes: list[NodeDocument]
    edges: list[EdgeDocument]
    memory: float | None = None


_NUMBER_AT_END = re.compile(r"-?[0-9]+$")


def node_ids(names: Sequence[str]) -> list[int]:
    """Ids by which files of dnn-partitioning name operators: the numbers at the end of the names, or else positions.

    Examples
    --------
    >>> node_ids(["node7", "conv#2"]), node_ids(["node7", "conv"]), node_ids(["a1", "b1"])
    ([7, 2], [0, 1], [0, 1])
    """
    found = [_NUMBER_AT_END.search(name) for name in names]
    ids = [int(match[0]) for match in found if match is not None and len(match[0]) < 17]
    return ids if len(ids) == len(names) == len(set(ids)) else list(range(len(names)))


def _with_id(name: str, number: int) -> str:
    """Name that ends in its node's id: ``node7`` of 7 as it is, ``conv`` of 7 as ``conv#7``."""
    if not name:
        return f"node{number}"
    found = _NUMBER_AT_END.search(name)
    return name if found is not None and found[0] == str(number) else f"{name}#{number}"


def without_id(name: str, number: int) -> str:
    """Undo what reading did to a node's name.

    Examples
    --------
    >>> without_id("conv#7", 7), without_id("node7", 7)
    ('conv', 'node7')
    """
    return name.removesuffix(f"#{number}") or name


def read_partitioning(path: Path | str, objective: Objective | None = None) -> Problem:
    """Read a workload of dnn-partitioning, see :func:`partitioning_from_json`."""
    return partitioning_from_json(read_bounded(path, "workload"), path, objective)


def partitioning_from_json(data: bytes, path: Path | str, objective: Objective | None = None) -> Problem:
    """Make a problem of a workload of dnn-partitioning; max-load, contiguous, unless another objective is given.

    Accelerators are alike, so are CPU cores, and only accelerators have a memory limit. A tensor takes its edges'
    ``cost`` between any two devices, nothing between CPU cores. Under offload one CPU device stands for the pool, and
    ``maxCPUs`` says nothing, as in the published programs. Times are taken for milliseconds; one of at least 1e30,
    the published programs' infinity, means that the node can't run there.

    Parameters
    ----------
    data : bytes
    path : path
        Where they came from.
    objective : Objective, optional

    Raises
    ------
    InvalidInput
        With every violation.
    """
    what = f"workload {str(path)!r}"
    document = decode_json(data, WorkloadDocument, what)
    if isinstance(objective, Offload) and document.most_cores >= 0:
        document.most_cores = 1
    violations = list(islice(_violations(document), MOST_NAMED + 1))
    if violations:
        more = ["and there are more like these"] if len(violations) > MOST_NAMED else []
        raise InvalidInput([*violations[:MOST_NAMED], *more], what=what)
    name = Path(path).stem
    graph, cost = _graph(document, name, Source("problem", str(path), hashlib.sha256(data).hexdigest()), what)
    k, cores = document.most_accelerators, document.most_cores
    memory = _memory_bytes(document)
    devices = [Device(f"accelerator{i}", kind="accelerator", memory_bytes=memory) for i in range(k)]
    devices += [Device(f"cpu{i}", kind="cpu") for i in range(cores)]
    cluster = Cluster(devices, [Link(0.0, float("inf"), link_class="same-host")])
    on = {
        _with_id(v.name, v.id): [_seconds(v.fpga_latency) if v.supported_on_fpga else math.inf] * k
        + [_seconds(v.cpu_latency)] * cores
        for v in document.nodes
    }
    travels = ~np.eye(k + cores, dtype=bool)
    travels[k:, k:] = False
    transfer = np.array([cost[t.name] for t in graph.tensors], dtype=np.float64)[:, None, None] * travels
    times = Times(np.array([on[v.name] for v in graph.operators]), transfer, source=MILLISECONDS)
    return Problem(graph, cluster, times, objective or MaxLoad(), name=name)


def _graph(document: WorkloadDocument, name: str, source: Source, what: str) -> tuple[OperatorGraph, dict[str, float]]:
    """Operators and tensors, and the seconds that each tensor takes."""
    name_of = {v.id: _with_id(v.name, v.id) for v in document.nodes}
    operators = [
        Operator(name_of[v.id], weight_bytes=math.ceil(v.size), backward=bool(v.is_backward_node))
        for v in document.nodes
    ]
    first: dict[int, EdgeDocument] = {}
    readers: dict[int, dict[str, None]] = {}
    size: dict[int, float] = {}
    for edge in document.edges:
        first.setdefault(edge.source_id, edge)
        readers.setdefault(edge.source_id, {})[name_of[edge.dest_id]] = None
        size[edge.source_id] = max(size.get(edge.source_id, 0.0), edge.size)
    tensors = [(name_of[v], name_of[v], list(targets), math.ceil(size[v])) for v, targets in readers.items()]
    classes: dict[int, list[str]] = {}
    for node in document.nodes:
        if node.color_class is not None:
            classes.setdefault(node.color_class, []).append(name_of[node.id])
    colocation = [members for members in classes.values() if len(members) > 1]
    try:
        graph = OperatorGraph.build(operators, tensors, colocation, name, source)
    except InvalidInput as error:  # a cycle
        raise InvalidInput(error.violations, what=what) from None
    return graph, {name_of[v]: edge.cost * UNIT_S for v, edge in first.items()}


def _seconds(milliseconds: float) -> float:
    return math.inf if milliseconds >= NEVER else milliseconds * UNIT_S


def _memory_bytes(document: WorkloadDocument) -> int | None:
    """Whole bytes of an accelerator; ``None`` without a limit, or with one above the sum of all sizes."""
    limit = document.memory
    if limit is None or (limit > MOST_BYTES and limit >= sum(v.size for v in document.nodes)):
        return None
    return math.floor(min(limit, MOST_BYTES))


def _violations(document: WorkloadDocument) -> Iterator[str]:
    yield from _wrong_devices(document)
    if not document.nodes:
        yield "nodes: it has no nodes; there is nothing to place"
    counts = Counter(v.id for v in document.nodes)
    for number, count in counts.items():
        if count > 1:
            yield f"nodes: the id {number} stands {count} times; give each node its own"
    for v in document.nodes:
        yield from _wrong_node(v)
    backward = {v.id: bool(v.is_backward_node) for v in document.nodes}
    cost: dict[int, float] = {}
    for e in document.edges:
        edge = f"edge {e.source_id} -> {e.dest_id}"
        absent = [number for number in (e.source_id, e.dest_id) if number not in counts]
        if absent:
            yield f"{edge}: there is no node with the id {absent[0]}; add it or correct the id"
        elif e.source_id == e.dest_id:
            yield f"{edge}: a node can't read its own output; remove it"
        elif backward[e.source_id] and not backward[e.dest_id]:
            yield f"{edge}: goes from a backward node to a forward one; correct isBackwardNode or remove it"
        if not 0 <= e.cost <= LONGEST:
            yield f"{edge}: cost {e.cost} is not between 0 and {LONGEST:g} ms"
        elif abs(cost.setdefault(e.source_id, e.cost) - e.cost) > COST_TOLERANCE:
            yield (
                f"{edge}: cost {e.cost}, but {cost[e.source_id]} on another edge of node {e.source_id}; a node has one "
                "output, so give its edges the same cost"
            )
        if not 0 <= e.size <= MOST_BYTES:
            yield f"{edge}: size {e.size} is not between 0 and {MOST_BYTES} bytes"


def _wrong_devices(document: WorkloadDocument) -> Iterator[str]:
    k, cores = document.most_accelerators, document.most_cores
    for key, count in (("maxFPGAs", k), ("maxCPUs", cores)):
        if count < 0:
            yield f"{key} {count} is below 0; give at least 0"
    sources = len({e.source_id for e in document.edges})
    if k >= 0 and cores >= 0 and k + cores == 0:
        yield "maxFPGAs and maxCPUs are both 0; there must be a device"
    elif max(k, cores, k + cores) > MOST_DEVICES:
        yield f"maxFPGAs {k} and maxCPUs {cores} are more than {MOST_DEVICES} devices together; give fewer"
    elif max(sources, len(document.nodes)) * (k + cores) ** 2 > MOST_TABLE:
        yield (
            f"maxFPGAs {k} and maxCPUs {cores} are too many for {len(document.nodes)} nodes: the transfer times of all "
            f"pairs of devices would be more than {MOST_TABLE:,} values; give fewer"
        )
    if document.memory is not None and not document.memory >= 0:
        yield f"maxSizePerFPGA {document.memory} is below 0; give at least 0"


def _wrong_node(v: NodeDocument) -> Iterator[str]:
    node = f"node {v.id}" + (f" ({v.name[:60]!r})" if v.name else "")
    if abs(v.id) >= 10**15:
        yield f"{node}: the id has more than 15 digits; give a shorter one"
    times = {"cpuLatency": v.cpu_latency}
    if v.supported_on_fpga:  # else it says nothing
        times["fpgaLatency"] = v.fpga_latency
    for key, time in times.items():
        if not 0 <= time <= LONGEST and not time >= NEVER:
            yield f"{node}: {key} {time} is not between 0 and {LONGEST:g} ms, nor at least {NEVER:g} for never"
    if not 0 <= v.size <= MOST_BYTES:
        yield f"{node}: size {v.size} is not between 0 and {MOST_BYTES} bytes"
    for key, flag in (("supportedOnFpga", v.supported_on_fpga), ("isBackwardNode", v.is_backward_node)):
        if flag not in (0, 1):
            yield f"{node}: {key} {flag} is neither true nor false; give 0 or 1"
