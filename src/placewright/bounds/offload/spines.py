"""Which paths the spine bound tries, and the best of their bounds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from math import inf

import numpy as np
import numpy.typing as npt

from placewright.algorithm import Budget, OnProgress, Progress
from placewright.bounds.offload.intervals import Interval, Spine, longest_path
from placewright.bounds.offload.relaxed import Relaxed, relaxed
from placewright.problem import Problem
from placewright.rounding import rounded_down

__all__ = ["spines"]

log = logging.getLogger(__name__)

MOST_OPERATORS = 20_000
"""Operators up to which the bound is tried: sets of them are kept for each, a bit an operator."""

MOST_STEPS = 2_000
"""Operators of a path up to which it is tried: pairs of them are tables."""

MOST_PRICES = 16
"""Prices of memory that are tried."""

MOST_BUCKETS = 500
"""Parts of the memory in which it is counted."""

MET = 1.0 - 1e-9
"""Part of a value that is as good as the value."""


def spines(
    problem: Problem, budget: Budget, target_s: Callable[[], float], on_progress: OnProgress
) -> Iterator[tuple[float, list[Interval]]]:
    """Yield bounds with the way along the path that gives each, until one meets ``target_s``, asked at each.

    First of paths, then, where the best of them takes more memory than there is, of that one with prices on memory.
    """
    if not 0 < len(problem.graph) <= MOST_OPERATORS:
        log.info("no spine bound: more than %d operators, or none", MOST_OPERATORS)
        return
    r, known, tried = relaxed(problem), 0.0, [list[int]()]
    best: tuple[float, list[int], list[Interval]] = (-1.0, [], [])

    def bounded(path: list[int], price: float, buckets: int = 0) -> tuple[float, list[Interval]]:
        """Return the bound at a price, which may be below 0."""
        paid = price * r.total_capacity * (1.0 + 1e-12) if price > 0.0 else 0.0

        def found(value: float) -> None:
            lower = rounded_down(value) - paid
            if known < lower < inf:
                on_progress(Progress("spine", inf, lower, budget.elapsed_s))

        value, way = Spine(r, path, budget, price, buckets).shortest(target_s() + paid, found)
        return (rounded_down(value) - paid if np.isfinite(value) else -1.0), way

    for weight in _weights(r):
        path = longest_path(r, weight)
        if path in tried or known >= target_s() * MET or (len(tried) > 1 and budget.spent):
            continue
        tried.append(path)
        if len(path) > MOST_STEPS:
            log.info("no spine bound from a path of more than %d operators", MOST_STEPS)
            continue
        lower, way = bounded(path, 0.0)
        known = max(known, lower)
        best = max(best, (lower, path, way), key=lambda x: x[0])
        yield max(lower, 0.0), way
    for lower, way in _priced(r, best, bounded):
        if lower > known:
            known = lower
            yield lower, way
        if known >= target_s() * MET or budget.spent:
            return


def _priced(
    r: Relaxed,
    free: tuple[float, list[int], list[Interval]],
    bounded: Callable[[list[int], float, int], tuple[float, list[Interval]]],
) -> Iterator[tuple[float, list[Interval]]]:
    """Yield bounds at prices of memory: they are concave in the price, so where two supporting lines cross is next.

    Then those of ways whose intervals need no more for sure than there is, at the best price, half of it, and none.
    """

    def excess(way: list[Interval]) -> float:
        return sum(float(r.size[x.taken].sum()) for x in way if x.taken is not None) - r.total_capacity

    value, path, way = free
    low = 0.0, value, excess(way)
    cpu = float(r.cpu_s[np.isfinite(r.cpu_s)].sum())
    if not (np.isfinite(r.total_capacity) and low[2] > 0.0 and cpu > 0.0):
        return
    high, price, tried = None, cpu / float(r.size.sum()) / 20.0, [low]
    for _ in range(MOST_PRICES):
        value, way = bounded(path, price, 0)
        yield value, way
        here = price, value, excess(way)
        tried.append(here)
        if here[2] > 0.0:
            low = here
        else:
            high = here
        if high is None:
            price *= 4.0
            continue
        if high[2] == low[2]:
            break
        price = (low[1] - high[1] + high[2] * high[0] - low[2] * low[0]) / (high[2] - low[2])
        crossing = low[1] + low[2] * (price - low[0])
        if not low[0] < price < high[0] or max(low[1], high[1]) >= crossing * (1.0 - 1e-6):
            break
    best = max(tried, key=lambda x: x[1])[0]
    buckets = int(min(MOST_BUCKETS, max(50, 2e7 / len(path) ** 2)))
    for price in dict.fromkeys((0.5 * best, 0.0, best)):
        yield bounded(path, price, buckets)


def _weights(r: Relaxed) -> list[npt.NDArray[np.float64]]:
    """Return what paths are longest by: accelerators' time, the least time anywhere, CPUs' time."""
    cpu, acc = (np.where(np.isfinite(x), x, 0.0) for x in (r.cpu_s, r.acc_s))
    acc = np.where(np.isfinite(r.acc_s), acc, cpu)
    cpu = np.where(np.isfinite(r.cpu_s), cpu, acc)
    step = 1e-7 * float(acc.mean() + cpu.mean()) or 1.0
    return [acc + 1e-3 * cpu + step, np.minimum(cpu, acc) + 1e-3 * cpu + step, cpu + step]
