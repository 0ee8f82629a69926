"""The whole network on every device that holds it, each with the share of the samples that suits it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright.algorithm import Budget, OnProgress, ignore
from placewright.evaluate import plan_for
from placewright.one_copy import throughput_of
from placewright.plan import Copy, Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result

__all__ = ["data_parallel"]

Floats = npt.NDArray[np.float64]


def data_parallel(
    problem: Problem,
    *,
    budget: Budget,
    rng: np.random.Generator,
    incumbent: Plan | None = None,
    on_progress: OnProgress = ignore,
) -> Result:
    """Copy the whole network to devices that can run and hold it, with the best shares.

    A device i that needs t_i alone and synchronises for s seconds a sample, as all r copies do, has the load share_i
    t_i + s. Shares in proportion to the speeds 1 / t_i make all loads equal, and no others are better: of devices S the
    time per sample is 1 / sum_S (1 / t_i) + s(S). Without synchronisation (inference) all devices take part. When
    training, s(S) = 2 (r - 1) / r x weight bytes / bandwidth of the slowest link among them / period, and devices are
    added one at a time, the one that leaves the least time first; the best set on the way is kept.

    Guarantee: exact among plans of whole copies for inference; none for training.
    Complexity: O(D^2).
    Source: data parallelism with shares by speed; the proof is ours.
    When to use: to know what copies alone bring; where each device holds the network.

    Examples
    --------
    >>> from placewright import Cluster, Device, Operator, OperatorGraph, Problem
    >>> pair = Cluster([Device("fast"), Device("slow")])
    >>> problem = Problem(OperatorGraph([Operator("a")]), pair, [[1.0, 3.0]], "throughput")
    >>> found = data_parallel(problem, budget=Budget(), rng=np.random.default_rng(0))
    >>> round(found.value_s, 9), [round(k.share, 9) for k in found.plan.copies]  # 1 / (1 + 1/3)
    (0.75, [0.75, 0.25])
    """
    n, _D = problem.times.processing_s.shape
    may = problem.allowed.all(axis=0) & (problem.cluster.capacity_bytes >= problem.resident_bytes.sum())
    devices = np.flatnonzero(may)
    if not len(devices):
        return Result(solver="data-parallel")
    alone = problem.times.processing_s[:, devices].sum(axis=0)
    chosen = devices if alone.min() > 0.0 else devices[[int(np.argmin(alone))]]
    if len(chosen) > 1 and any(v.backward for v in problem.graph.operators):
        chosen = _synchronised(problem, devices, alone)
    speed = 1.0 / np.maximum(problem.times.processing_s[:, chosen].sum(axis=0), np.finfo(float).tiny)
    copies = [
        Copy(np.full(n, i, dtype=np.int32), share)
        for i, share in zip(chosen.tolist(), (speed / speed.sum()).tolist(), strict=True)
    ]
    plan = plan_for(problem, copies[0].device_of, copies=copies, provenance=Provenance("data-parallel"))
    return Result(plan, solver="data-parallel")


def _synchronised(problem: Problem, devices: npt.NDArray[np.intp], alone: Floats) -> npt.NDArray[np.intp]:
    """Devices of the best set that grows from the fastest device."""
    objective, cluster = throughput_of(problem), problem.cluster
    weights = float(sum(v.weight_bytes for v in problem.graph.operators)) / objective.sync_period
    if objective.sync_bandwidth_bytes_per_s is not None:
        per_byte = np.full((len(devices), len(devices)), 1.0 / objective.sync_bandwidth_bytes_per_s)
    else:
        among = np.ix_(devices, devices)
        table = np.where(cluster.rule_of[among] >= 0, cluster.seconds_per_byte[among], np.inf)
        per_byte = np.maximum(table, table.T)
    first = int(np.argmin(alone))
    chosen, left = [first], np.ones(len(devices), dtype=bool)
    left[first] = False
    speed, slowest, best, kept = 1.0 / alone[first], 0.0, float(alone[first]), 1
    reach = per_byte[:, first].copy()
    while left.any():
        r = len(chosen) + 1
        sync = 2 * (r - 1) / r * weights * np.maximum(slowest, reach) if weights > 0.0 else np.zeros(len(devices))
        value = np.where(left, 1.0 / (speed + 1.0 / alone) + sync, np.inf)
        k = int(np.argmin(value))
        if not value[k] < np.inf:
            break
        chosen.append(k)
        left[k] = False
        speed, slowest = speed + 1.0 / alone[k], max(slowest, float(reach[k]))
        reach = np.maximum(reach, per_byte[:, k])
        if value[k] < best:
            best, kept = float(value[k]), r
    return np.asarray(devices[np.sort(np.array(chosen[:kept]))])
