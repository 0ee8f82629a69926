"""The largest load of a device when operators may be divided among devices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

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
    """Bound the makespan by the largest load of a device when operators may be divided among devices.

    Guarantee: a device runs one operator at a time, so that the makespan is at least its load; a placement divides
    nothing, and so is a solution of the linear program.
    The linear program, and why its bound is safe: :func:`placewright.bounds.divided_load.divided_load`.

    Complexity: one linear program of units x devices.
    Source: ours; the linear program of unrelated machines (Lenstra, Shmoys, Tardos 1990), judged by its multipliers.
    When to use: always; strong where much can run side by side.
    """
    a = arrays_of(problem)
    if not a.allowed.any(axis=1).all():
        return Result(solver="fractional-load")
    times: npt.NDArray[np.float64] = np.zeros(a.allowed.shape)
    np.add.at(times, a.unit_of, np.where(problem.allowed, problem.times.processing_s, np.inf))
    found = divided_load(times, a.resident, a.capacity, budget)
    bounds = {} if found.infeasible else {"fractional-load": found.lower_bound_s}
    return replace(found, solver="fractional-load", bounds=bounds)
