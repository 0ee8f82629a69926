"""Everything on one device: the fastest that holds it."""

from __future__ import annotations

import numpy as np

from placewright.algorithm import Budget, OnProgress, ignore
from placewright.evaluate import evaluate, plan_for
from placewright.objective import Makespan, MaxLoad, Throughput
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.judged import settled

__all__ = ["single_device"]


def single_device(
    problem: Problem,
    *,
    budget: Budget,
    rng: np.random.Generator,
    incumbent: Plan | None = None,
    on_progress: OnProgress = ignore,
) -> Result:
    """Try each device alone and keep the fastest; the others are reported as ``only <device>``.

    Alternatives hold every device, ``inf`` where it can't run the network or lacks the memory.

    For the max-load: the one-accelerator baseline of arXiv 2006.16423 knows no memory limit. Where a device
    that lacks the memory is faster than those that don't, its value and what it lacks are ``rejected_s`` and
    ``rejected``.

    Guarantee: exact among placements that use one device.
    Complexity: O(D (n + E)); of alike devices one is judged.
    Source: the one-accelerator baseline of arXiv 2006.16423.
    When to use: to know what several devices have to beat; ``auto`` always reports it.
    """
    best: Plan | None = None
    rejected_s, rejected = float("inf"), ""
    alternatives: dict[str, float] = {}
    n = len(problem.graph)
    times_alone = isinstance(problem.objective, Makespan | Throughput)
    resident_bytes = int(problem.resident_bytes.sum())
    seen: dict[tuple[bytes, float], float] = {}
    for i, device in enumerate(problem.cluster.devices):
        value = float("inf")
        possible = bool(problem.allowed[:, i].all())
        alike = (b"", float(i))
        if possible and times_alone:
            # One sample on one device: nothing but its times and its memory counts.
            possible = resident_bytes <= device.capacity_bytes
            alike = (problem.times.processing_s[:, i].tobytes(), device.capacity_bytes)
        if possible and alike in seen:
            value = seen[alike]
        elif possible:
            judged = evaluate(problem, np.full(n, i, dtype=np.int32))
            if judged.feasible:
                value = judged.value_s
                if best is None or value < best.value_s:
                    best = plan_for(
                        problem,
                        np.full(n, i, dtype=np.int32),
                        schedule=judged.schedule,
                        provenance=Provenance(f"only {device.name}"),
                    )
            elif isinstance(problem.objective, MaxLoad) and judged.value_s < rejected_s:
                rejected_s, rejected = judged.value_s, judged.violations[0]
            seen[alike] = value
        alternatives[f"only {device.name}"] = value
    found = Result(best, solver="single-device", alternatives=alternatives, rejected_s=rejected_s, rejected=rejected)
    return settled(found)
