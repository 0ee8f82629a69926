"""Search by list scheduling: weights behind the ranks, and devices in use, are changed and all is placed anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from placewright._kernel.list_schedule import heft
from placewright._kernel.list_search import mean_transfer, weighted_rank
from placewright._kernel.schedule import workspace
from placewright.algorithm import Budget, OnProgress, Progress, ignore
from placewright.arrays import arrays_of
from placewright.evaluate import evaluate
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result

__all__ = ["ListSearch"]

Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]

MOST_TRIES = 1_000
"""List schedules of a search that has no limit of its own."""

FACTORS = (1.0, 0.0, 0.25, 0.5, 2.0, 4.0)
"""Of transfer times in the ranks, tried first."""


@dataclass(frozen=True, slots=True)
class ListSearch:
    """Place everything anew with changed ranks as long as the budget lasts: for networks that are too large to anneal.

    A try is one run of HEFT's placement (each operator in turn where it finishes first, in gaps too) on ranks that come
    from weights of the operators and a factor on transfers, and on some of the devices. The first tries are the plain
    ranks with the factors 1, 0, 1/4, 1/2, 2 and 4, and the fastest half, quarter, eighth... of the devices; then the
    best try so far is changed at random: the weights of some operators by log-normal noise, the factor, or one device
    more or less; a try that is no worse stands. To search the data that a list scheduler is given, and not its
    schedules, is an idea of Storer, Wu and Vaccari (1992, problem space search).

    Contention, memory, pins and classes as in ``heft``. Any-time. The budget's ``iterations`` counts tries.

    Guarantee: never worse than its incumbent; no bound.
    Complexity: of a try, that of ``heft``: a second for 100,000 operators.
    Source: ours, after Storer, Wu and Vaccari 1992 (problem space search).
    When to use: beyond what annealing gets through: tens of thousands of operators and more.

    Attributes
    ----------
    noise : float
        Largest standard deviation of the logarithm of a changed weight.
    target_s : float
        Stop as soon as the value is at or below it (a proven lower bound).
    """

    noise: float = 0.5
    target_s: float = 0.0

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Improve on the incumbent until the budget is spent or the value reaches ``target_s``."""
        begun = budget.elapsed_s
        a = arrays_of(problem)
        g, w = a.network, workspace(a.network)
        n = len(problem.graph)
        best, least = incumbent, np.inf if incumbent is None else incumbent.value_s
        if not problem.allowed.any(axis=1).all():
            return Result(best, solver="list-search")
        finite = np.isfinite(g.processing)
        mean: Floats = np.where(finite, g.processing, 0.0).sum(axis=1) / np.maximum(1, finite.sum(axis=1))
        transfer = mean_transfer(g)
        starts = _starts(np.where(finite, g.processing, np.inf))
        stands = np.inf, mean, 1.0, np.ones(len(a.capacity), dtype=np.bool_)
        kept: Floats = np.zeros(len(a.capacity))
        tries = 0
        total = budget.iterations
        if total is None and not np.isfinite(budget.seconds):
            total = MOST_TRIES
        while not budget.spent and (total is None or tries < total) and least > self.target_s:
            _, weight, factor, used = stands
            if tries < len(starts):
                factor, used = starts[tries]
                weight = mean
            else:
                weight, factor, used = self._changed(weight, factor, used, mean, rng)
            tries += 1
            rank = weighted_rank(g, weight, transfer, factor)
            order = np.lexsort((np.arange(n), -rank)).astype(np.int32)
            room = np.where(used, a.capacity - kept, -1.0)
            device, complete = heft(g, order, a.unit_of, a.resident, room, w)
            value = float(w.finish.max(initial=0.0)) if complete else np.inf
            if value > stands[0] or not np.isfinite(value):
                continue
            if value < stands[0] or stands[0] == np.inf:
                judged = evaluate(problem, device, order=np.lexsort((np.arange(n), w.finish, w.start)).astype(np.int32))
                if not judged.feasible:
                    # Live tensors have no room: keep some free from now on, each device what it held and a quarter.
                    live = np.array([use.activation_bytes for use in judged.devices], dtype=np.float64)
                    kept = np.maximum(kept, 1.25 * live)
                    continue
                if judged.value_s < least:
                    provenance = Provenance("list-search", None, "", {"tries": tries})
                    best, least = Plan(device, judged.schedule, judged.value_s, provenance), judged.value_s
                    on_progress(Progress("list-search", least, 0.0, budget.elapsed_s))
            stands = value, weight, factor, used
        return Result(best, solver="list-search", runtime_s=budget.elapsed_s - begun)

    def _changed(
        self, weight: Floats, factor: float, used: Bools, mean: Floats, rng: np.random.Generator
    ) -> tuple[Floats, float, Bools]:
        """Change one of the three at random."""
        kind = rng.random()
        if kind < 0.15:
            return weight, float(max(factor, 0.05) * np.exp(0.5 * rng.normal())), used
        if kind < 0.3 and len(used) > 1:
            used = used.copy()
            used[rng.integers(len(used))] ^= True
            return weight, factor, used if used.any() else ~used
        # From one in a thousand operators to all of them; now and then back to the mean.
        some = rng.random(len(weight)) < 10.0 ** rng.uniform(-3.0, 0.0)
        spread = self.noise * rng.random()
        base = mean if rng.random() < 0.2 else weight
        return np.where(some, base * np.exp(spread * rng.normal(size=len(weight))), weight), factor, used


def _starts(seconds: Floats) -> list[tuple[float, Bools]]:
    """Factors with all devices, then fewer and fewer of the fastest."""
    D = seconds.shape[1]
    everything = np.ones(D, dtype=np.bool_)
    starts = [(factor, everything) for factor in FACTORS]
    # Devices that can't run an operator count as slow at it as the slowest that can.
    slowest = np.where(np.isfinite(seconds), seconds, 0.0).max(axis=1)
    by_speed = np.argsort(np.where(np.isfinite(seconds), seconds, slowest[:, None]).sum(axis=0), kind="stable")
    count = D
    while count > 1:
        count = (count + 1) // 2
        fastest = np.zeros(D, dtype=np.bool_)
        fastest[by_speed[:count]] = True
        starts.append((1.0, fastest))
    return starts
