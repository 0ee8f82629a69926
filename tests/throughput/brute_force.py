"""The optimum of small throughput problems: every placement, every choice of what devices hold, the best shares.

Written from the model's text, operator by operator and tensor by tensor; of the package it uses only the data, and the
test of max-load for the order of the devices.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import highspy
import numpy as np

from placewright import Copy, MaxLoad, Problem
from tests.max_load.brute_force import value_of

INF = math.inf


def optimum(problem: Problem) -> float:
    """Least time per sample of any set of copies; ``inf`` when no copy breaks no rule."""
    placements = list(_placements(problem))
    if not placements:
        return INF
    units, D = max(problem.graph.unit_of) + 1, len(problem.cluster)
    rows = np.array([_parts(problem, p) for p in placements])
    trains = any(v.backward for v in problem.graph.operators) and any(v.weight_bytes for v in problem.graph.operators)
    held = sum(v.weight_bytes + v.kv_cache_bytes for v in problem.graph.operators)
    free = not trains and (problem.cluster.capacity_bytes >= held).all()
    if free:
        return shares_value(problem, rows, np.zeros(D))
    best = INF
    sets = [s for r in range(1, D + 1) for s in itertools.combinations(range(D), r)]
    by_unit = [dict(zip(problem.graph.unit_of, p, strict=True)) for p in placements]
    for holders in itertools.product(sets, repeat=units):
        if not _fits(problem, holders):
            continue
        sync = _sync(problem, holders) if trains else np.zeros(D)
        if not sync.max() < best:
            continue
        inside = [k for k, at in enumerate(by_unit) if all(at[u] in holders[u] for u in at)]
        if inside:
            best = min(best, shares_value(problem, rows[inside], sync))
    return best


def value_of_copies(problem: Problem, copies: Sequence[Copy]) -> float:
    """Time per sample of copies that break no rule of their own; ``inf`` where memory does not hold them together."""
    units = max(problem.graph.unit_of) + 1
    holders = [set[int]() for _ in range(units)]
    for copy in copies:
        for u, i in zip(problem.graph.unit_of, copy.device_of.tolist(), strict=True):
            holders[u].add(i)
    tuples = [tuple(sorted(h)) for h in holders]
    if not _fits(problem, tuples):
        return INF
    trains = any(v.backward for v in problem.graph.operators)
    sync = _sync(problem, tuples) if trains else np.zeros(len(problem.cluster))
    sums = sum(c.share * _parts(problem, c.device_of.tolist()) for c in copies)
    return _largest(problem, sums, sync)


def shares_value(problem: Problem, rows: np.ndarray, sync: np.ndarray) -> float:
    """Least time per sample over the shares of placements with these parts, each device synchronising for so long."""
    D = len(problem.cluster)
    table = [(part, sync[i]) for i in range(D) for part in _sums(problem, *rows[:, :3, i].T)]
    table += [(rows[:, 3, c], 0.0) for c in range(len(problem.cluster.channels))]
    scale = max(1e-9, float(max(a.max() for a, _ in table)))
    h = highspy.Highs()
    h.setOptionValue("output_flag", False)
    K = len(rows)
    for _ in range(K):
        h.addVar(0.0, highspy.kHighsInf)
    h.addVar(0.0, highspy.kHighsInf)
    h.changeColCost(K, 1.0)
    h.addRow(1.0, 1.0, K, np.arange(K, dtype=np.int32), np.ones(K))
    for a, fixed in table:
        h.addRow(
            -highspy.kHighsInf, -fixed / scale, K + 1, np.arange(K + 1, dtype=np.int32), np.append(a / scale, -1.0)
        )
    h.run()
    return float(h.getInfo().objective_function_value) * scale


def _placements(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Legal placements of one copy: what is no max-load plan, the test of max-load says."""
    objective = problem.objective
    single = Problem(
        problem.graph,
        problem.cluster,
        problem.times,
        MaxLoad(objective.contiguity, objective.contiguous_cpus),  # which rules it breaks, its loads say nothing of
        problem.wishes,
    )
    unit_of = problem.graph.unit_of
    for by_unit in itertools.product(range(len(problem.cluster)), repeat=max(unit_of) + 1):
        placement = tuple(by_unit[u] for u in unit_of)
        if value_of(single, placement) < INF:
            yield placement


def _parts(problem: Problem, placement: Sequence[int]) -> np.ndarray:
    """(4, max(D, channels)): seconds of computing, in, out by device, and of channels."""
    cluster, graph = problem.cluster, problem.graph
    parts = np.zeros((4, max(len(cluster), len(cluster.channels))))
    for v, i in enumerate(placement):
        parts[0, i] += problem.times.processing_s[v, i]
    for u, tensor in enumerate(graph.tensors):
        i, longest = placement[tensor.producer], 0.0
        for j in {placement[v] for v in tensor.readers} - {i}:
            seconds = problem.transfer_s(u, i, j)
            longest = max(longest, seconds)
            if cluster.devices[j].kind != "cpu":
                parts[1, j] += seconds
            for c in cluster.channels_of[i, j]:
                if c >= 0:
                    parts[3, c] += seconds
        if cluster.devices[i].kind != "cpu":
            parts[2, i] += longest
    return parts


def _sums(problem: Problem, busy: Any, enter: Any, leave: Any) -> list[Any]:
    """What must fit into the time per sample beside the others, of one device."""
    objective = problem.objective
    if objective.overlap == "none":
        return [busy + enter + leave]
    kept = busy + objective.busy_share * (enter + leave)
    return [kept, enter + leave] if objective.overlap == "transfers" else [kept, enter, leave]


def _largest(problem: Problem, parts: np.ndarray, sync: np.ndarray) -> float:
    loads = list(parts[3])
    for i in range(len(problem.cluster)):
        loads.append(max(_sums(problem, *parts[:3, i])) + sync[i])
    return float(max(loads))


def _fits(problem: Problem, holders: Sequence[Sequence[int]]) -> bool:
    room = problem.cluster.capacity_bytes.copy()
    for v, operator in enumerate(problem.graph.operators):
        for i in holders[problem.graph.unit_of[v]]:
            room[i] -= operator.weight_bytes + operator.kv_cache_bytes
    return bool((room >= 0).all())


def _sync(problem: Problem, holders: Sequence[Sequence[int]]) -> np.ndarray:
    objective, cluster = problem.objective, problem.cluster
    sync = np.zeros(len(cluster))
    for v, operator in enumerate(problem.graph.operators):
        devices = holders[problem.graph.unit_of[v]]
        r = len(devices)
        if r < 2 or not operator.weight_bytes:
            continue
        if objective.sync_bandwidth_bytes_per_s is not None:
            rate = objective.sync_bandwidth_bytes_per_s
        else:
            rules = [cluster.rule_of[i, j] for i in devices for j in devices if i != j]
            rate = min(cluster.links[k].bandwidth_bytes_per_s if k >= 0 else 1e-300 for k in rules)
        for i in devices:
            sync[i] += 2 * (r - 1) / r * operator.weight_bytes / rate / objective.sync_period
    return sync
