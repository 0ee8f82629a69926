"""A path that calls can take only in intervals: the spine bound of the offload latency."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from placewright.algorithm import Budget, OnProgress, ignore
from placewright.bounds.offload.spines import spines
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.result import Result

__all__ = ["SpineBound"]


@dataclass(frozen=True, slots=True)
class SpineBound:
    """Bound the finish of a path by the calls that its steps must be in.

    No path leaves a call and comes back, so a call takes an interval of any path. The least time of an interval's call
    is a cut problem: what is surely inside, what surely outside, the rest by an integer program with the memory of one
    accelerator. The shortest way over intervals, and steps on CPUs, is a lower bound. See ``docs/spine-bound.md``.

    Guarantee: holds for every problem. Unlike accelerators and links are replaced by one that is at least as good as
    each. Bounds of programs are computed from multipliers here; HiGHS is only asked for them. 0, with a reason in the
    log, beyond 20,000 operators. Weak where parallel work and not a path makes the time, and where few accelerators are
    filled to the brim. Any-time.

    Complexity: blocks of the path squared, times operators + tensors, for the first bound; then a program for each
    interval that the shortest way takes.
    Source: ours.
    When to use: given time, where one long path makes the latency.

    Examples
    --------
    Two accelerators of which each holds one operator: 1 s each, 2 s out and in between them. The CPU takes 4 s each.

    >>> from placewright import Cluster, Device, Link, Offload, Operator, OperatorGraph, Tensor
    >>> graph = OperatorGraph([Operator(v, weight_bytes=6) for v in "ab"], [Tensor("x", 0, (1,), 8)])
    >>> devices = [Device("c", kind="cpu"), Device("g", memory_bytes=8), Device("h", memory_bytes=8)]
    >>> box = Cluster(devices, [Link(0, 8, link_class="same-host")])
    >>> problem = Problem(graph, box, [[4.0, 1.0, 1.0]] * 2, Offload())
    >>> round(SpineBound()(problem, budget=Budget(10), rng=np.random.default_rng(0)).lower_bound_s, 6)
    4.0
    """

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Bound up to the value of ``incumbent``."""
        begun = budget.elapsed_s
        target = inf if incumbent is None else incumbent.value_s
        bound = max((b for b, _ in spines(problem, budget, lambda: target, on_progress)), default=0.0)
        bounds = {"spine": bound} if bound > 0.0 else {}
        return Result(lower_bound_s=bound, bounds=bounds, solver="spine", runtime_s=budget.elapsed_s - begun)
