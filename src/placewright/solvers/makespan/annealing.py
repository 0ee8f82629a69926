"""Simulated annealing on placement and order."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from placewright._kernel.anneal import State, anneal, cost_of
from placewright._kernel.path import tails
from placewright._kernel.schedule import decode, workspace
from placewright.algorithm import Budget, OnProgress, Progress, ignore
from placewright.arrays import Arrays, arrays_of
from placewright.evaluate import plan_for
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.makespan.start import limits_of, starting_placement

__all__ = ["Annealing"]

MOST_MOVES = 5_000_000
"""Moves of a search that has no limit of its own."""


@dataclass(frozen=True, slots=True)
class Annealing:
    """Anneal from the incumbent (or a balanced start); every candidate is scheduled in full by a compiled kernel.

    Moves, acceptance and cooling: :func:`placewright._kernel.anneal.anneal`. The temperature falls geometrically from
    ``hot`` to ``cold`` times the starting value, ``cycles`` times over, each cycle from the best placement so far.
    Placements beyond the memory are penalised while searching and never returned. Any-time. The budget's ``iterations``
    counts moves (default: until the seconds are spent).

    Guarantee: never worse than its incumbent; no bound.
    Complexity: O(n + E) a move.
    Source: simulated annealing (Kirkpatrick, Gelatt, Vecchi 1983); moves and kernel are ours.
    When to use: to search small networks; ``large-neighbourhood`` is the better search elsewhere.

    Attributes
    ----------
    hot, cold : float
        Temperatures relative to the starting value.
    cycles : int
    target_s : float
        Stop as soon as the value is at or below it (a proven lower bound).
    """

    hot: float = 0.02
    cold: float = 1e-5
    cycles: int = 4
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
        a = arrays_of(problem)
        g, w = a.network, workspace(a.network)
        limits = limits_of(a)
        tail = tails(g)[1].min(axis=1)
        tail[~np.isfinite(tail)] = 0.0
        state = _start(problem, a, incumbent)
        by_reader = False
        if incumbent is not None:
            by_reader = decode(g, state.order, state.device, True, tail, np.inf, w) < decode(
                g, state.order, state.device, False, tail, np.inf, w
            )
        clock = time.perf_counter()
        cost, fits = cost_of(g, limits, state.device, state.order, by_reader, tail, np.inf, w)
        # Moves a second; most moves are given up before their schedule is complete.
        rate = min(20_000.0, 1.0 / max(1e-9, time.perf_counter() - clock))
        if not np.isfinite(cost):
            return Result(incumbent, solver="annealing")
        state.value[:] = cost, cost if fits else np.inf
        scale = cost
        best = incumbent
        total = budget.iterations
        if total is None and not np.isfinite(budget.seconds):
            total = MOST_MOVES
        done, reported = 0, np.inf
        begun = budget.elapsed_s
        span = max(1e-9, budget.left_s)
        for cycle in range(self.cycles):
            if cycle and np.isfinite(state.value[1]):
                state.device[:], state.order[:] = state.best_device, state.best_order
                state.position[state.order] = np.arange(len(state.order))
                state.value[0] = cost_of(g, limits, state.device, state.order, by_reader, tail, np.inf, w)[0]
            while True:
                progress = done / total if total is not None else (budget.elapsed_s - begun) / span
                here = progress * self.cycles - cycle
                if here >= 1.0 or budget.spent:
                    break
                # A slice of about 0.1 s, so that interrupts and reports come through.
                count = max(1, int(rate * 0.1))
                if total is not None:
                    # Not by the clock, so that the result depends on the seed alone.
                    count = min(1024, max(1, -(-total * (cycle + 1) // self.cycles) - done))
                    step = count / total * self.cycles
                else:
                    step = count / rate / span * self.cycles
                hot = scale * self.hot * (self.cold / self.hot) ** here
                cold = scale * self.hot * (self.cold / self.hot) ** min(1.0, here + step)
                clock = time.perf_counter()
                anneal(g, limits, state, hot, cold, count, by_reader, tail, w, rng)
                rate = 0.5 * rate + 0.5 * count / max(1e-6, time.perf_counter() - clock)
                done += count
                if state.value[1] < reported:
                    reported = float(state.value[1])
                    on_progress(Progress("annealing", reported, 0.0, budget.elapsed_s))
                if state.value[1] <= self.target_s:
                    break
            if budget.spent or state.value[1] <= self.target_s:
                break
        if np.isfinite(state.value[1]):
            found = plan_for(
                problem,
                state.best_device,
                order=state.best_order,
                provenance=Provenance("annealing", None, "", {"moves": done}),
            )
            if found is not None and (best is None or found.value_s < best.value_s):
                best = found
        return Result(best, solver="annealing", runtime_s=budget.elapsed_s - begun)


def _start(problem: Problem, a: Arrays, incumbent: Plan | None) -> State:
    n = len(problem.graph)
    if incumbent is not None:
        device = incumbent.device_of.copy()
        order = np.lexsort((np.arange(n), incumbent.schedule.finish_s, incumbent.schedule.start_s)).astype(np.int32)
    else:
        device = starting_placement(problem)
        order = np.arange(n, dtype=np.int32)
    position = np.empty(n, dtype=np.int32)
    position[order] = np.arange(n)
    return State(device, order, position, device.copy(), order.copy(), np.full(2, np.inf))
