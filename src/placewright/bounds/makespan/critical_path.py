"""The longest path when every operator and every hop may choose its best device."""

from __future__ import annotations

import numpy as np

from placewright._kernel.path import heads
from placewright.algorithm import Budget, OnProgress, ignore
from placewright.arrays import arrays_of
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.result import Result
from placewright.rounding import rounded_down

__all__ = ["critical_path"]


def critical_path(
    problem: Problem,
    *,
    budget: Budget,
    rng: np.random.Generator,
    incumbent: Plan | None = None,
    on_progress: OnProgress = ignore,
) -> Result:
    """Device-aware critical path.

    f[v, i] = p[v, i] + max over tensors u that v reads of min over devices j of (f[u, j] + [i != j] (o_j + c[u, j, i]
    + o_i)); the bound is max over v of min over i of f[v, i].

    Guarantee: in any schedule that runs v on i, v's processing ends no earlier than f[v, i], by induction along the
    topological order: v waits for each input u, made on some j where it ended no earlier than f[u, j]; when j differs
    from i, the cut behind u, the transfer and the cut before v pass one after the other. Contention and busy devices
    only delay.

    Complexity: O(E D^2).
    Source: ours; the longest path is the classic bound.
    When to use: always: it is quick, and the start of the others.
    """
    if not problem.allowed.any(axis=1).all():
        return Result(solver="critical-path")
    _, finish = heads(arrays_of(problem).network)
    value = rounded_down(float(finish.min(axis=1).max(initial=0.0)))
    if not np.isfinite(value):
        # No chain of devices joins a tensor's producer to its reader.
        v = int(np.argmax(~np.isfinite(finish.min(axis=1))))
        name = problem.graph.operators[v].name
        return Result(
            lower_bound_s=value,
            infeasible=f"operator {name!r} can't get its inputs on any device that may run it; "
            "add a link or allow more devices",
            solver="critical-path",
        )
    return Result(lower_bound_s=value, solver="critical-path", bounds={"critical-path": value})
