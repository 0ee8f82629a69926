"""The longest path when every operator runs where it is fastest and tensors cost nothing."""

from __future__ import annotations

import numpy as np

from placewright.algorithm import Budget, OnProgress, ignore
from placewright.offloads import offloads_of
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
    """Bound the offload latency by a path alone.

    Guarantee: an operator on a CPU takes its time after its producers; one in a call ends with the call, which takes at
    least the time of any path inside.

    Complexity: O(operators + tensors). Exact without accelerators.
    Source: the longest path, the classic bound.
    When to use: always: it is quick.

    Examples
    --------
    >>> from placewright import Cluster, Device, Offload, Operator, OperatorGraph, Problem, Tensor
    >>> graph = OperatorGraph([Operator("a"), Operator("b"), Operator("c")], [Tensor("x", 0, (2,), 8)])
    >>> problem = Problem(graph, Cluster([Device("cpu", kind="cpu")]), [[1.0], [2.0], [3.0]], Offload())
    >>> round(critical_path(problem, budget=Budget(), rng=np.random.default_rng(0)).lower_bound_s, 6)
    4.0
    """
    o = offloads_of(problem)
    finish = np.minimum(o.cpu_s, o.acc_s.min(axis=1, initial=np.inf))
    if not np.isfinite(finish).all():
        return Result(solver="critical-path")
    for v in range(len(finish)):
        makers = o.producer[o.read[o.read_ptr[v] : o.read_ptr[v + 1]]]
        finish[v] += finish[makers].max(initial=0.0)
    bound = rounded_down(float(finish.max(initial=0.0)))
    return Result(lower_bound_s=bound, bounds={"critical-path": bound}, solver="critical-path")
