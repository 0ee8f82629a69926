"""The largest load of a device when units may be divided among unlike devices, and transfers cost nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from placewright.algorithm import Budget, OnProgress, ignore
from placewright.bounds.divided_load import divided_load
from placewright.loads import loads_of
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
    """Bound the max-load by computing alone when operators may be divided among devices.

    Guarantee: however transfers overlap, the load of a device is at least its computing; the largest forward load plus
    the largest backward load is at least the largest sum of both; a stage on r devices is one that is divided among
    them, with less in the memory of each. Contiguity is left out.
    The linear program, and why its bound is safe: :func:`placewright.bounds.divided_load.divided_load`.

    Complexity: one linear program of units x devices.
    Source: ours; the linear program of unrelated machines (Lenstra, Shmoys, Tardos 1990), judged by its multipliers.
    When to use: always; strong where transfers cost little.

    Examples
    --------
    >>> from placewright import Cluster, Device, MaxLoad, Operator, OperatorGraph, Problem
    >>> pair = Cluster([Device("fast"), Device("slow")])
    >>> problem = Problem(OperatorGraph([Operator("a")]), pair, [[1.0, 3.0]], MaxLoad())
    >>> result = fractional_load(problem, budget=Budget(), rng=np.random.default_rng(0))
    >>> round(result.lower_bound_s, 6)  # three quarters on the fast device: 0.75 and 0.25 x 3
    0.75
    """
    a = loads_of(problem)
    if not a.allowed.any(axis=1).all():
        return Result(solver="fractional-load")
    found = divided_load(a.compute_s.sum(axis=0), a.resident, a.capacity, budget)
    bounds = {} if found.infeasible else {"fractional-load": found.lower_bound_s}
    return replace(found, solver="fractional-load", bounds=bounds)
