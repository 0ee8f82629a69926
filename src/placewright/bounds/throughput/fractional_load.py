"""The largest load of a device when units may be divided among unlike devices, and transfers cost nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from placewright.algorithm import Budget, OnProgress, ignore
from placewright.arrays import arrays_of
from placewright.bounds.divided_load import divided_load
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.result import Result

__all__ = ["fractional_load"]


def fractional_load(
    problem: Problem,
    *,
    budget: Budget,
    rng: np.random.Generator,
    incumbent: Plan | None = None,
    on_progress: OnProgress = ignore,
) -> Result:
    """Bound the time per sample by computing alone when operators may be divided among devices.

    Guarantee: let x[k, i] be the sum of the shares of the copies that have unit k on device i. It sums to 1 over the
    devices, the computing of a device is sum_k p[k, i] x[k, i], which its load is no less than however transfers
    overlap, and x[k, i] > 0 only where the device holds the unit, so that sum_k m[k] x[k, i] is within its memory.
    Contiguity, transfers and synchronisation are left out. Without memory limits and transfers it is met: shares may
    divide every unit alike. The program and its safe value: :func:`placewright.bounds.divided_load.divided_load`.

    Complexity: one linear program of units x devices.
    Source: ours; the linear program of unrelated machines (Lenstra, Shmoys, Tardos 1990), judged by its multipliers.
    When to use: always; met where transfers and memory don't matter.

    Examples
    --------
    >>> from placewright import Cluster, Device, Operator, OperatorGraph, Problem, Throughput
    >>> pair = Cluster([Device("fast"), Device("slow")])
    >>> problem = Problem(OperatorGraph([Operator("a")]), pair, [[1.0, 3.0]], Throughput())
    >>> result = fractional_load(problem, budget=Budget(), rng=np.random.default_rng(0))
    >>> round(result.lower_bound_s, 6)  # three quarters of the samples on the fast device
    0.75
    """
    a = arrays_of(problem)
    if not a.allowed.any(axis=1).all():
        return Result(solver="fractional-load")
    times = np.zeros(a.allowed.shape)
    np.add.at(times, a.unit_of, np.where(problem.allowed, problem.times.processing_s, 0.0))
    times[~a.allowed] = np.inf
    found = divided_load(times, a.resident, a.capacity, budget)
    bounds = {} if found.infeasible else {"fractional-load": found.lower_bound_s}
    return replace(found, bounds=bounds, solver="fractional-load")
