"""A problem with more devices of a kind that is there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from placewright.cluster import Cluster
from placewright.problem import Problem, Times

__all__ = ["with_copies"]


def with_copies(problem: Problem, device: int, count: int) -> Problem:
    """Add ``count`` copies of a device behind the others, linked as that one is; without any the problem is the same.

    Between accelerators and their copies transfers take what the rules for links say, or else what they take from that
    device to the nearest before it; between a CPU and its copies nothing: all is in RAM.

    Examples
    --------
    >>> from placewright import Device, Operator, OperatorGraph
    >>> one = Problem(OperatorGraph([Operator("a")]), Cluster([Device("c", kind="cpu")]), [[2.0]])
    >>> [d.name for d in with_copies(one, 0, 2).cluster.devices]
    ['c', 'c+1', 'c+2']
    """
    if count <= 0:
        return problem
    cluster, times, D, last = problem.cluster, problem.times, len(problem.cluster), device
    taken = [*range(D), *[last] * count]
    devices = list(cluster.devices)
    names = {d.name for d in devices}
    for k in range(count):
        name = f"{devices[last].name}+{k + 1}"
        while name in names:
            name += "+"
        names.add(name)
        devices.append(replace(devices[last], name=name))
    larger = Cluster(devices, cluster.links)
    return Problem(
        problem.graph,
        larger,
        Times(times.processing_s[:, taken], _transfer_s(problem, larger, taken, last), times.source),
        problem.objective,
        [replace(wish) for wish in problem.wishes],
        problem.name,
    )


def _transfer_s(problem: Problem, larger: Cluster, taken: list[int], last: int) -> npt.NDArray[np.float64]:
    """(T, D + count, D + count) transfer times; a copy is linked to others as the last accelerator is.

    Between copies they are what the rules for links say, or else those from the last accelerator to the one before it.
    """
    D, table, cluster = len(problem.cluster), problem.times.transfer_s, problem.cluster
    sizes = [t.size_bytes for t in problem.graph.tensors]
    between = larger.transfer_table(sizes, [last], [D])[:, 0, 0]
    if table is None:
        table = cluster.transfer_table(sizes)
    others = [i for i in range(D) if i != last]
    if cluster.devices[last].kind == "cpu":
        between = np.zeros(len(table))
    elif others and (problem.times.transfer_s is not None or not np.isfinite(between).all()):
        nearest = [i for i in others if cluster.devices[i].kind != "cpu"] or others
        between = table[:, last, nearest[-1]]
    copied = table[:, taken][:, :, taken].copy()
    copies = [last, *range(D, len(taken))]
    for i in copies:
        for j in copies:
            copied[:, i, j] = between if i != j else 0.0
    return copied
