"""The optimum of small makespan problems by trying everything: every placement, every order of all actions.

A schedule that starts each action as early as its order allows is fixed by the sequence of its actions (operators and
transfers) sorted by start. So the sequences whose starts don't fall are enough; a branch is left when an action plus
the longest way below it can't beat the best. Written to be obvious; shares nothing with the package's kernels.
"""

from __future__ import annotations

import itertools

import numpy as np
from numba import njit

from placewright.problem import Problem

INF = float("inf")


def optimum(problem: Problem) -> float:
    """Least makespan of any placement that respects devices, classes and weights; ``inf`` when there is none."""
    graph, cluster = problem.graph, problem.cluster
    n, D = len(graph), len(cluster)
    units: dict[int, list[int]] = {}
    for v, k in enumerate(graph.unit_of):
        units.setdefault(k, []).append(v)
    choices = [
        [i for i in range(D) if all(np.isfinite(problem.times.processing_s[v, i]) for v in members)]
        for members in units.values()
    ]
    best = INF
    for chosen in itertools.product(*choices):
        device = [0] * n
        for members, i in zip(units.values(), chosen, strict=True):
            for v in members:
                device[v] = i
        room = [d.capacity_bytes for d in cluster.devices]
        for v in range(n):
            room[device[v]] -= graph.operators[v].weight_bytes
        if min(room) >= 0:
            best = min(best, _best_order(problem, device, best))
    return best


def _best_order(problem: Problem, device: list[int], best: float) -> float:
    """Least makespan of one placement, or ``best`` when that is not beaten."""
    graph, cluster = problem.graph, problem.cluster
    n = len(graph)
    # Actions: the operators, then one per tensor and device that must receive it.
    transfers = [
        (u, j)
        for u, t in enumerate(graph.tensors)
        for j in sorted({device[v] for v in t.readers} - {device[t.producer]})
    ]
    m = n + len(transfers)
    length = np.zeros(m)
    needs = np.zeros((m, m), dtype=np.bool_)
    resources: list[set[str]] = [set() for _ in range(m)]
    for v in range(n):
        i = device[v]
        cut = problem.times.cut_s
        overhead = cluster.devices[i].cut_overhead_s if cut is None else cut[v, i]
        reads_elsewhere = any(v in t.readers and device[t.producer] != i for t in graph.tensors)
        read_elsewhere = any(t.producer == v and any(device[r] != i for r in t.readers) for t in graph.tensors)
        length[v] = problem.times.processing_s[v, i] + overhead * reads_elsewhere + overhead * read_elsewhere
        resources[v] = {f"device {i}"}
    for a, (u, j) in enumerate(transfers, start=n):
        t = graph.tensors[u]
        i = device[t.producer]
        length[a] = problem.transfer_s(u, i, j)
        needs[a, t.producer] = True
        for v in t.readers:
            if device[v] == j:
                needs[v, a] = True
        if length[a] > 0 and problem.objective.contention != "none":
            pair = {f"link {i}-{j}"} if problem.objective.contention == "link" else {f"out {i}", f"in {j}"}
            resources[a] = pair | {f"channel {k}" for k in cluster.channels_of[i, j].tolist() if k >= 0}
    for t in graph.tensors:
        for v in t.readers:
            needs[v, t.producer] = True
    names = sorted(set().union(*resources))
    uses = np.array([[name in r for name in names] for r in resources], dtype=np.bool_).reshape(m, len(names))
    tail = np.zeros(m)
    if not np.isfinite(length).all():
        return best
    topological = sorted(range(m), key=lambda a: (a, 0) if a < n else (graph.tensors[transfers[a - n][0]].producer, 1))
    for a in reversed(topological):
        below = [length[b] + tail[b] for b in range(m) if needs[b, a]]
        tail[a] = max(below, default=0.0)
    return float(_search(length, needs, uses, tail, np.full(m, -1.0), np.zeros(len(names)), 0.0, 0.0, 0, best))


@njit(cache=True)
def _search(length, needs, uses, tail, finish, free, last, makespan, done, best):  # type: ignore[no-untyped-def]
    m = len(length)
    if done == m:
        return min(best, makespan)
    for a in range(m):
        if finish[a] >= 0.0:
            continue
        start = 0.0
        ready = True
        for b in range(m):
            if needs[a, b]:
                if finish[b] < 0.0:
                    ready = False
                    break
                start = max(start, finish[b])
        if not ready:
            continue
        for r in range(len(free)):
            if uses[a, r]:
                start = max(start, free[r])
        end = start + length[a]
        if start < last or end + tail[a] >= best:
            continue
        kept = free.copy()
        for r in range(len(free)):
            if uses[a, r]:
                free[r] = end
        finish[a] = end
        best = min(best, _search(length, needs, uses, tail, finish, free, start, max(makespan, end), done + 1, best))
        finish[a] = -1.0
        free[:] = kept
    return best
