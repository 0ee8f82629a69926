"""The optimum of small max-load problems by trying every placement of the units and every choice of replicas.

Written from the model's text: loads by operator and tensor, contiguity by taking away what nothing comes before. It
shares nothing with the package's arrays, judge or solvers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numba import njit

from placewright.problem import Problem

INF = float("inf")
OVERLAPS = ("none", "transfers", "full")


def optimum(problem: Problem) -> float:
    """Least max-load in seconds of any placement that breaks no rule; ``inf`` when there is none."""
    given, D = _arrays(problem), len(problem.cluster)
    unit_of = problem.graph.unit_of
    best = INF
    for stages in _partitions(problem) if problem.objective.replicate else [[(i,) for i in range(D)]]:
        copies = np.zeros(D, dtype=np.int64)
        for stage in stages:
            copies[stage[0]] = len(stage)
        best = _best(np.zeros(max(unit_of) + 1, dtype=np.int64), copies, best, *given)
    return float(best)


def value_of(problem: Problem, device_of: Sequence[int], replicas: Sequence[Sequence[int]] = ()) -> float:
    """Max-load of one placement that keeps units together, ``inf`` when it breaks a rule.

    Replicas are taken to be legal, and operators to lie on the first device of a replicated stage.
    """
    copies = np.ones(len(problem.cluster), dtype=np.int64)
    for stage in replicas:
        copies[list(stage)] = 0
        copies[stage[0]] = len(stage)
    unit_of = problem.graph.unit_of
    device = np.zeros(max(unit_of) + 1, dtype=np.int64)
    for v, i in enumerate(device_of):
        device[unit_of[v]] = i
    return float(_value(device, copies, INF, *_arrays(problem)))


def alike(problem: Problem, i: int, j: int) -> bool:
    """Whether exchanging two devices changes nothing: times, memory, kind, links, channels and bandwidth of copies."""
    cluster, D = problem.cluster, len(problem.cluster)
    a, b = cluster.devices[i], cluster.devices[j]
    compute, may = _compute(problem)
    if a.capacity_bytes != b.capacity_bytes or (a.kind == "cpu") != (b.kind == "cpu"):
        return False
    if (may[:, i] != may[:, j]).any() or (compute[:, :, i] != compute[:, :, j])[:, may[:, i]].any():
        return False
    swap = {i: j, j: i}
    for x in range(D):
        for y in range(D):
            x2, y2 = swap.get(x, x), swap.get(y, y)
            if (cluster.channels_of[x, y] != cluster.channels_of[x2, y2]).any():
                return False
            if problem.times.transfer_s is None and cluster.latency_s[x, y] != cluster.latency_s[x2, y2]:
                return False
            bandwidth_matters = problem.times.transfer_s is None or _sync_bandwidth_is_of_links(problem)
            if bandwidth_matters and cluster.seconds_per_byte[x, y] != cluster.seconds_per_byte[x2, y2]:
                return False
            for u in range(len(problem.graph.tensors)):
                if problem.transfer_s(u, x, y) != problem.transfer_s(u, x2, y2):
                    return False
    return True


def _sync_bandwidth_is_of_links(problem: Problem) -> bool:
    objective = problem.objective
    trains = any(v.backward for v in problem.graph.operators)
    return objective.replicate and trains and objective.sync_bandwidth_bytes_per_s is None


def _partitions(problem: Problem) -> Iterator[list[tuple[int, ...]]]:
    """All ways to part the devices into stages of alike ones."""
    D = len(problem.cluster)
    same = [[alike(problem, i, j) for j in range(D)] for i in range(D)]

    def extend(i: int, stages: list[tuple[int, ...]]) -> Iterator[list[tuple[int, ...]]]:
        if i == D:
            yield stages
            return
        yield from extend(i + 1, [*stages, (i,)])
        for k, stage in enumerate(stages):
            if same[stage[0]][i]:
                yield from extend(i + 1, [*stages[:k], (*stage, i), *stages[k + 1 :]])

    yield from extend(0, [])


def _compute(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """(passes, U, D) seconds and (U, D) whether a unit may run on a device."""
    graph, devices = problem.graph, problem.cluster.devices
    unit_of, passes = graph.unit_of, 2 if problem.objective.training == "separate" else 1
    compute = np.zeros((passes, max(unit_of) + 1, len(devices)))
    may = np.ones((max(unit_of) + 1, len(devices)), dtype=np.bool_)
    for v, operator in enumerate(graph.operators):
        for i, device in enumerate(devices):
            seconds = problem.times.processing_s[v, i]
            may[unit_of[v], i] &= bool(np.isfinite(seconds))
            compute[passes - 1 if operator.backward else 0, unit_of[v], i] += seconds
            for wish in problem.wishes:
                if fnmatchcase(operator.name, wish.pattern):
                    may[unit_of[v], i] &= fnmatchcase(device.name, wish.device) != wish.forbid
    return compute, may


def _arrays(problem: Problem) -> tuple[Any, ...]:
    objective, graph, cluster = problem.objective, problem.graph, problem.cluster
    unit_of, D, T = graph.unit_of, len(cluster), len(graph.tensors)
    n_units = max(unit_of) + 1
    compute, may = _compute(problem)
    held, weights = np.zeros(n_units), np.zeros(n_units)
    for v, operator in enumerate(graph.operators):
        weights[unit_of[v]] += operator.weight_bytes
        held[unit_of[v]] += operator.weight_bytes + operator.kv_cache_bytes
    producer, phase = np.zeros(T, dtype=np.int64), np.zeros(T, dtype=np.int64)
    reads, seconds = np.zeros((T, n_units), dtype=np.bool_), np.zeros((T, D, D))
    for u, tensor in enumerate(graph.tensors):
        producer[u] = unit_of[tensor.producer]
        phase[u] = len(compute) - 1 if graph.operators[tensor.producer].backward else 0
        for v in tensor.readers:
            reads[u, unit_of[v]] = True
        for i in range(D):
            for j in range(D):
                seconds[u, i, j] = problem.transfer_s(u, i, j)
    sync = np.zeros(D)
    if any(v.backward for v in graph.operators):
        for i in range(D):
            mates = [j for j in range(D) if j != i and alike(problem, i, j)] if objective.replicate else []
            sync[i] = max((float(cluster.seconds_per_byte[i, j]) for j in mates), default=0.0)
            if objective.sync_bandwidth_bytes_per_s is not None:
                sync[i] = 1 / objective.sync_bandwidth_bytes_per_s
    is_cpu = np.array([d.kind == "cpu" for d in cluster.devices])
    bound = ~is_cpu | objective.contiguous_cpus
    return (
        compute,
        may,
        held,
        weights,
        cluster.capacity_bytes,
        is_cpu,
        producer,
        phase,
        reads,
        seconds,
        cluster.channels_of.astype(np.int64),
        len(cluster.channels),
        sync / objective.sync_period,
        OVERLAPS.index(objective.overlap),
        objective.busy_share,
        ("any", "convex", "contiguous").index(objective.contiguity),
        bound,
        _after(problem),
    )


def _after(problem: Problem) -> np.ndarray:
    """(U, U) whether an edge that contiguity is about goes from one unit to another."""
    graph, unit_of = problem.graph, problem.graph.unit_of
    n_units = max(unit_of) + 1
    orphan = np.ones(n_units, dtype=np.bool_)
    for v, operator in enumerate(graph.operators):
        if not operator.backward:
            orphan[unit_of[v]] = False
    after = np.zeros((n_units, n_units), dtype=np.bool_)
    for tensor in graph.tensors:
        for v in tensor.readers:
            a, b = unit_of[tensor.producer], unit_of[v]
            kinds = graph.operators[tensor.producer].backward, graph.operators[v].backward
            if kinds == (False, False):
                after[a, b] = True
            if kinds == (True, True) and (orphan[a] or orphan[b]):
                after[b, a] = True
    np.fill_diagonal(after, False)
    return after


@njit(cache=True)
def _best(device, copies, best, *given):  # type: ignore[no-untyped-def]
    """Count through all placements of the units on devices that lead a stage."""
    n_units, D = len(device), len(copies)
    device[:] = 0
    while True:
        usable = True
        for k in range(n_units):
            if copies[device[k]] == 0:
                usable = False
        if usable:
            best = min(best, _value(device, copies, best, *given))
        k = 0
        while k < n_units and device[k] == D - 1:
            device[k] = 0
            k += 1
        if k == n_units:
            return best
        device[k] += 1


@njit(cache=True)
def _value(  # type: ignore[no-untyped-def]
    device,
    copies,
    best,
    compute,
    may,
    held,
    weights,
    capacity,
    is_cpu,
    producer,
    phase,
    reads,
    seconds,
    channels_of,
    n_channels,
    sync,
    overlap,
    busy_share,
    contiguity,
    bound,
    after,
):
    """Value of a placement, ``inf`` when it breaks a rule or is not below ``best``."""
    passes, n_units, D = compute.shape
    busy, enter, leave = np.zeros((passes, D)), np.zeros((passes, D)), np.zeros((passes, D))
    wire = np.zeros((passes, n_channels))
    room, weight = capacity.copy(), np.zeros(D)
    for k in range(n_units):
        i = device[k]
        if not may[k, i]:
            return np.inf
        room[i] -= held[k]
        weight[i] += weights[k]
        for f in range(passes):
            busy[f, i] += compute[f, k, i]
    if room.min() < 0:
        return np.inf
    for u in range(len(producer)):
        i, f = device[producer[u]], phase[u]
        longest = 0.0
        for j in range(D):
            arrives = False
            for k in range(n_units):
                if reads[u, k] and device[k] == j and j != i:
                    arrives = True
            if arrives:
                if seconds[u, i, j] == np.inf:
                    return np.inf
                enter[f, j] += seconds[u, i, j]
                longest = max(longest, seconds[u, i, j])
                for c in channels_of[i, j]:
                    if c >= 0:
                        wire[f, c] += seconds[u, i, j]
        leave[f, i] += longest
    value = 0.0
    for f in range(passes):
        worst = 0.0
        for c in range(n_channels):
            worst = max(worst, wire[f, c])
        for i in range(D):
            if copies[i] == 0:
                continue
            x, y, z = busy[f, i], enter[f, i], leave[f, i]
            if is_cpu[i]:
                y, z = 0.0, 0.0
            load = x + y + z
            if overlap > 0:
                load = x + busy_share * (y + z)
            if overlap == 1 and y + z > load:
                load = y + z
            if overlap == 2:
                load = max(load, max(y, z))
            load /= copies[i]
            if f == passes - 1:
                load += 2 * (copies[i] - 1) / copies[i] * weight[i] * sync[i]
            worst = max(worst, load)
        value += worst
    if value >= best:
        return np.inf
    if contiguity > 0 and not _in_order(device, bound, after, contiguity == 2):
        return np.inf
    return value


@njit(cache=True)
def _in_order(device, bound, after, whole):  # type: ignore[no-untyped-def]
    n_units = len(device)
    reach = after.copy()
    for c in range(n_units):
        for a in range(n_units):
            for b in range(n_units):
                reach[a, b] |= reach[a, c] and reach[c, b]
    for a in range(n_units):
        for b in range(n_units):
            if reach[a, b] and reach[b, a] and device[a] != device[b]:
                return False  # units on a cycle share a device
    if not whole:
        for a in range(n_units):
            for b in range(n_units):
                for c in range(n_units):
                    same = device[a] == device[c] and device[b] != device[a] and bound[device[a]]
                    if same and reach[a, b] and reach[b, c]:
                        return False
        return True
    # Take away, again and again, a device (or a block on a device that is not bound) that nothing left comes before.
    left = np.ones(n_units, dtype=np.bool_)
    while left.any():
        moved = False
        for first in range(n_units):
            if not left[first]:
                continue
            group = np.zeros(n_units, dtype=np.bool_)
            for k in range(n_units):
                on_cycle = k == first or (reach[k, first] and reach[first, k])
                group[k] = left[k] and device[k] == device[first] and (bound[device[k]] or on_cycle)
            free = True
            for a in range(n_units):
                for b in range(n_units):
                    if left[a] and not group[a] and group[b] and after[a, b]:
                        free = False
            if free:
                left &= ~group
                moved = True
        if not moved:
            return False
    return True
