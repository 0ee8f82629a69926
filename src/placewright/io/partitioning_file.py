"""Workloads in the JSON format of the program dnn-partitioning (arXiv 2006.16423)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import numpy as np

from placewright.cluster import Cluster, Device, Link
from placewright.errors import InvalidInput
from placewright.graph import Operator, OperatorGraph, Source
from placewright.io.reading import decode_json, read_bounded
from placewright.objective import MaxLoad, Objective
from placewright.problem import Problem, Times

__all__ = ["read_partitioning"]

UNIT_S = 1e-3
"""The files state no unit; milliseconds are assumed, and ``Times.source`` says so."""


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


def read_partitioning(path: Path | str, objective: Objective | None = None) -> Problem:
    """Read a workload of dnn-partitioning as a max-load problem.

    Accelerators are alike, so are CPU cores. A tensor takes its edge's ``cost`` between any two devices, nothing
    between CPU cores. Times are taken for milliseconds.

    Raises
    ------
    InvalidInput
        With every violation.
    """
    what = f"workload {str(path)!r}"
    document = decode_json(read_bounded(path, "workload"), WorkloadDocument, what)
    k, cores = document.most_accelerators, document.most_cores
    memory = None if document.memory is None else int(document.memory)
    devices = [Device(f"accelerator{i}", kind="accelerator", memory_bytes=memory) for i in range(k)]
    devices += [Device(f"cpu{i}", kind="cpu") for i in range(cores)]
    cluster = Cluster(devices, [Link(0.0, float("inf"), link_class="same-host")])
    seen = Counter(node.name for node in document.nodes)
    name_of = {
        node.id: node.name if node.name and seen[node.name] == 1 else f"{node.name or 'node'}#{node.id}"
        for node in document.nodes
    }
    if len(name_of) < len(document.nodes):
        raise InvalidInput("an id stands twice among the nodes; give each its own", what=what)
    operators = [
        Operator(name_of[v.id], weight_bytes=int(v.size), backward=bool(v.is_backward_node)) for v in document.nodes
    ]
    readers: dict[tuple[int, float], dict[int, float]] = {}
    for edge in document.edges:
        if edge.source_id not in name_of or edge.dest_id not in name_of:
            raise InvalidInput(f"edge {edge.source_id}->{edge.dest_id} names a node that is not there", what=what)
        readers.setdefault((edge.source_id, edge.cost), {})[edge.dest_id] = edge.size
    counts = Counter(source for source, _ in readers)
    cost: dict[str, float] = {}
    tensors = []
    for (source, seconds), targets in readers.items():
        name = name_of[source] if counts[source] == 1 else f"{name_of[source]}@{seconds!r}"
        cost[name] = seconds * UNIT_S
        tensors.append((name, name_of[source], [name_of[t] for t in targets], int(max(targets.values()))))
    classes: dict[int, list[str]] = {}
    for node in document.nodes:
        if node.color_class is not None:
            classes.setdefault(node.color_class, []).append(name_of[node.id])
    colocation = [members for members in classes.values() if len(members) > 1]
    source_of = Source("problem", str(path))
    graph = OperatorGraph.build(operators, tensors, colocation, Path(path).stem, source_of)
    on = {
        name_of[v.id]: [v.fpga_latency * UNIT_S if v.supported_on_fpga else np.inf] * k
        + [v.cpu_latency * UNIT_S] * cores
        for v in document.nodes
    }
    processing = np.array([on[v.name] for v in graph.operators])
    D = len(devices)
    travels = ~np.eye(D, dtype=bool)
    travels[k:, k:] = False
    transfer = np.array([cost[t.name] for t in graph.tensors])[:, None, None] * travels
    times = Times(processing, transfer, source="given, milliseconds assumed")
    return Problem(graph, cluster, times, objective or MaxLoad(), name=Path(path).stem)
