"""Which paths the spine bound tries, and the best of their bounds."""

from __future__ import annotations

import logging
from math import inf

import numpy as np
import numpy.typing as npt

from placewright.algorithm import Budget, OnProgress, Progress
from placewright.bounds.offload.intervals import Interval, Spine, longest_path
from placewright.bounds.offload.relaxed import Relaxed, relaxed
from placewright.problem import Problem
from placewright.rounding import rounded_down

__all__ = ["spine_of"]

log = logging.getLogger(__name__)

MOST_OPERATORS = 20_000
"""Operators up to which the bound is tried: sets of them are kept for each, a bit an operator."""

MOST_STEPS = 2_000
"""Operators of a path up to which it is tried: pairs of them are tables."""


def spine_of(
    problem: Problem, budget: Budget, target_s: float, on_progress: OnProgress
) -> tuple[float, list[Interval]]:
    """Return the bound, and the intervals of the path that gave it."""
    if not 0 < len(problem.graph) <= MOST_OPERATORS:
        log.info("no spine bound: more than %d operators, or none", MOST_OPERATORS)
        return 0.0, []
    r = relaxed(problem)
    best: tuple[float, list[Interval]] = (0.0, [])
    seen: list[list[int]] = []

    def found(value: float) -> None:
        lower = rounded_down(value)
        if best[0] < lower < inf:
            on_progress(Progress("spine", inf, lower, budget.elapsed_s))

    for weight in _weights(r):
        path = longest_path(r, weight)
        if path in seen or best[0] >= target_s * (1.0 - 1e-9) or (best[1] and budget.spent):
            continue
        seen.append(path)
        if len(path) > MOST_STEPS:
            log.info("no spine bound from a path of more than %d operators", MOST_STEPS)
            continue
        value, way = Spine(r, path, budget).shortest(target_s, found)
        lower = rounded_down(value) if np.isfinite(value) else 0.0
        if not best[1] or lower > best[0]:
            best = lower, way
    return best


def _weights(r: Relaxed) -> list[npt.NDArray[np.float64]]:
    """Return what paths are longest by: accelerators' time, the least time anywhere, CPUs' time."""
    cpu, acc = (np.where(np.isfinite(x), x, 0.0) for x in (r.cpu_s, r.acc_s))
    acc = np.where(np.isfinite(r.acc_s), acc, cpu)
    cpu = np.where(np.isfinite(r.cpu_s), cpu, acc)
    step = 1e-7 * float(acc.mean() + cpu.mean()) or 1.0
    return [acc + 1e-3 * cpu + step, np.minimum(cpu, acc) + 1e-3 * cpu + step, cpu + step]
