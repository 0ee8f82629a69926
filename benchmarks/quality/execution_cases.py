"""The problems that the execution benchmark plans: networks on testbeds as they were measured there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
from benchmarks.testbed.description import Description

import placewright as pw
from placewright.cluster import Cluster, Device, Link
from placewright.evaluate import evaluate
from placewright.execute.probe.link_fit import fit_link
from placewright.objective import Makespan, MaxLoad, Objective
from placewright.posing.pose import pose
from placewright.problem import Times

__all__ = ["HANDED_BYTES", "SIZES_BYTES", "as_measured", "busy_share", "links_of", "profiled", "tight"]

SIZES_BYTES = tuple(64 * 4**k for k in range(8))
"""64 B to 1 MiB."""

HANDED_BYTES = (64, 2**16, 2**18, 2**20)

CALL_S = 5e-5
"""Of a whole core, at one side of a cut besides the message: another call of a module, packing or unpacking."""

ROOM = 1.5
"""Memory of all devices of a tight testbed together, over the network's weights."""


def profiled(description: Description, model: str) -> pw.Problem:
    """Capture and profile a network for the hosts, whose shares divide what one core takes."""
    rows = [
        f"  - {{name: {h.name}, kind: cpu, host: {h.name}, cores: [{h.core}], threads: 1, cpu_share: {h.share}}}"
        for h in description.hosts
    ]
    links = ["links:", "  - {class: between-hosts, bandwidth: 1 GB/s, latency: 50 us}"]
    with TemporaryDirectory(prefix="placewright-") as folder:
        path = Path(folder) / "cluster.yaml"
        path.write_text("\n".join(["devices:", *rows, *links]) + "\n")
        posed = pose(model, path, costs="profile", on_progress=None)
    hosts = [Device(h.name, kind="host", host=h.name) for h in description.hosts]  # which the kernel holds, not a rest
    return pw.Problem(
        posed.graph, Cluster(hosts, posed.cluster.links), Times(posed.times.processing_s, source="profiled")
    )


def links_of(description: Description, rows: Sequence[Any]) -> tuple[Link, ...]:
    """Links through the times that were measured between each two hosts."""
    names = [h.name for h in description.hosts]
    return tuple(fit_link(SIZES_BYTES, fitted, checked).link((names[i], names[j])) for i, j, fitted, checked in rows)


def as_measured(
    problem: pw.Problem,
    description: Description,
    links: tuple[Link, ...],
    alone_s: Mapping[str, float],
    handovers: Sequence[Sequence[float]],
    objective: Objective,
    memory: Mapping[str, int],
) -> pw.Problem:
    """Make the problem of a network on a testbed.

    Parameters
    ----------
    problem : Problem
        As profiled.
    description : Description
    links : tuple of Link
        As measured.
    alone_s : mapping
        Seconds of the whole network on each host alone, within its share: its operators are scaled to sum up to that.
    handovers : (sending, receiving)
        Seconds of a whole core that a message takes at either end, by the sizes of :data:`HANDED_BYTES`.
    objective : Objective
        A max-load under which transfers overlap computing gets the busy share that follows from links and handovers.
    memory : mapping
        Of each host.
    """
    devices = [Device(h.name, kind="host", host=h.name, memory_bytes=memory[h.name]) for h in description.hosts]
    processing = np.array(problem.times.processing_s)
    for i, h in enumerate(description.hosts):
        processing[:, i] *= alone_s[h.name] / processing[:, i].sum()
    sides = _sides_s(problem, handovers)
    cut_s = np.stack([sides / h.share for h in description.hosts], axis=1)
    times = Times(processing, source="profiled", cut_s=cut_s)
    measured = pw.Problem(problem.graph, Cluster(devices, links), times, Makespan(), name=problem.name)
    if isinstance(objective, MaxLoad) and objective.overlap != "none":
        objective = replace(objective, busy_share=busy_share(measured, description, handovers))
    return pw.Problem(problem.graph, measured.cluster, times, objective, name=problem.name)


def busy_share(problem: pw.Problem, description: Description, handovers: Sequence[Sequence[float]]) -> float:
    """Part of a transfer's time that it takes a host's share of its core: over all tensors and links, the mean end."""
    sizes = np.array([t.size_bytes for t in problem.graph.tensors])
    out, into = (_handed_s(sizes, row) for row in handovers)
    of_host = float(np.mean([1.0 / h.share for h in description.hosts]))
    D = len(problem.cluster)
    apart = ~np.eye(D, dtype=bool)
    travel = problem.cluster.transfer_table(sizes, list(range(D)), list(range(D)))[:, apart].mean(axis=1)
    return min(1.0, of_host * float((out + into).sum()) / 2 / float(travel.sum()))


def _handed_s(sizes: npt.ArrayLike, row: Sequence[float]) -> npt.NDArray[np.float64]:
    """Seconds of a whole core for messages of any size; beyond the largest that was measured it grows as before."""
    sizes, row = np.asarray(sizes, dtype=np.float64), np.asarray(row)
    slope = (row[-1] - row[-2]) / (HANDED_BYTES[-1] - HANDED_BYTES[-2])
    return np.asarray(np.interp(sizes, HANDED_BYTES, row) + slope * np.maximum(0, sizes - HANDED_BYTES[-1]))


def _sides_s(problem: pw.Problem, handovers: Sequence[Sequence[float]]) -> npt.NDArray[np.float64]:
    """Seconds of a whole core at one side of a cut, by operator: half of what its largest tensors take in and out."""
    reads, makes = np.zeros(len(problem.graph)), np.zeros(len(problem.graph))
    for t in problem.graph.tensors:
        makes[t.producer] = max(makes[t.producer], t.size_bytes)
        for v in t.readers:
            reads[v] = max(reads[v], t.size_bytes)
    out, into = _handed_s(makes, handovers[0]), _handed_s(reads, handovers[1])
    return np.asarray((out + into) / 2 + CALL_S)


def tight(problem: pw.Problem, description: Description) -> dict[str, int]:
    """Memory of the hosts, in the proportions of the description, so that no host holds the network alone."""
    alone = evaluate(problem, np.zeros(len(problem.graph), dtype=np.int64))
    live = max(u.activation_bytes + u.workspace_bytes for u in alone.devices)
    weights = sum(v.resident_bytes for v in problem.graph.operators)
    total = sum(h.memory_bytes or 1 for h in description.hosts)
    return {h.name: round((h.memory_bytes or 1) / total * ROOM * weights) + live for h in description.hosts}
