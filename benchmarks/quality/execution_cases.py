"""The problems that the execution benchmark plans: networks on testbeds as they were measured there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from placewright.objective import Objective
from placewright.posing.pose import pose
from placewright.problem import Times

__all__ = ["HANDED_BYTES", "SIZES_BYTES", "as_measured", "links_of", "profiled", "tight"]

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
    return pw.Problem(problem.graph, Cluster(devices, links), times, objective, name=problem.name)


def _sides_s(problem: pw.Problem, handovers: Sequence[Sequence[float]]) -> npt.NDArray[np.float64]:
    """Seconds of a whole core at one side of a cut, by operator: half of what its largest tensors take in and out."""
    reads, makes = np.zeros(len(problem.graph)), np.zeros(len(problem.graph))
    for t in problem.graph.tensors:
        makes[t.producer] = max(makes[t.producer], t.size_bytes)
        for v in t.readers:
            reads[v] = max(reads[v], t.size_bytes)
    sending, receiving = (np.asarray(row) for row in handovers)
    # Beyond the largest size that was measured it grows as before.
    slopes = [(row[-1] - row[-2]) / (HANDED_BYTES[-1] - HANDED_BYTES[-2]) for row in (sending, receiving)]
    out, into = (
        np.interp(sizes, HANDED_BYTES, row) + slope * np.maximum(0, sizes - HANDED_BYTES[-1])
        for sizes, row, slope in ((makes, sending, slopes[0]), (reads, receiving, slopes[1]))
    )
    return np.asarray((out + into) / 2 + CALL_S)


def tight(problem: pw.Problem, description: Description) -> dict[str, int]:
    """Memory of the hosts, in the proportions of the description, so that no host holds the network alone."""
    alone = evaluate(problem, np.zeros(len(problem.graph), dtype=np.int64))
    live = max(u.activation_bytes + u.workspace_bytes for u in alone.devices)
    weights = sum(v.resident_bytes for v in problem.graph.operators)
    total = sum(h.memory_bytes or 1 for h in description.hosts)
    return {h.name: round((h.memory_bytes or 1) / total * ROOM * weights) + live for h in description.hosts}
