"""Annealing of splits into calls, with moves of whole regions."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from placewright._kernel.calls import CallLimits, anneal_calls, call_state, reset_calls
from placewright.algorithm import Budget, OnProgress, Progress, ignore
from placewright.evaluate import plan_for
from placewright.offloads import offloads_of
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.offload.call_network import call_network, devices_of, places_of

__all__ = ["CallAnnealing"]

MOST_MOVES = 1_000_000
"""Moves when the budget limits neither seconds nor iterations."""

HOT = (0.01, 0.05, 0.003, 0.2, 0.0005)
"""Temperatures that coolings begin with, in turn, relative to the value."""

COLD = 1e-5
"""Temperature that each ends with."""


@dataclass(frozen=True, slots=True)
class CallAnnealing:
    """Move units, and regions of one place that hang together, to other places while the temperature falls.

    Minimised is the latency of the placement cut into the fewest calls. A region is grown breadth-first from an
    operator along tensors, forwards, backwards or both, or a stretch of the order; most goals are a neighbour's place.
    Coolings become longer, and begin from the best split and from the incumbent in turn.

    ``Budget.iterations`` counts moves.

    Guarantee: never worse than the incumbent; no bound. Splits into more than the fewest calls are not reached.
    Complexity: O(tensors x accelerators in use) a move: 20,000 moves a second with 800 operators, 200,000 with 30.
    Source: ours.
    When to use: the search of ``auto`` for offload.

    Attributes
    ----------
    first : int
        Moves of the first cooling.
    target_s : float
        Ends when a split is as good as this.
    """

    first: int = 10_000
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
        """Improve on ``incumbent``, or on all that CPUs can run left to them."""
        begun, o = budget.elapsed_s, offloads_of(problem)
        network, limits = call_network(problem)
        start = _filled(limits) if incumbent is None else places_of(o, incumbent.device_of)
        if start is None or not len(start):
            return Result(incumbent, solver="call-annealing")
        state = call_state(network, limits, start)
        known = float("inf") if incumbent is None else incumbent.value_s
        total = budget.iterations
        if total is None and not np.isfinite(budget.seconds):
            total = MOST_MOVES
        done, count, cooling, length, reported = 0, 500, 0, self.first, known
        while not (budget.spent or (total is not None and done >= total)):
            if state.value[1] <= self.target_s:
                break
            at, hot = 0, HOT[cooling % len(HOT)]
            while at < length and not budget.spent and (total is None or done < total):
                moves = min(count, length - at, length if total is None else total - done)
                scale = float(min(state.value[1], known)) if np.isfinite(min(state.value[1], known)) else 1.0
                ends = [max(1e-300, scale * hot * (COLD / hot) ** (x / length)) for x in (at, at + moves)]
                clock = time.perf_counter()
                anneal_calls(network, limits, state, ends[0], ends[1], moves, rng)
                spent = max(1e-6, time.perf_counter() - clock)
                at, done = at + moves, done + moves
                if total is None:
                    count = max(50, int(0.1 * moves / spent))  # a tenth of a second
                if state.value[1] < reported:
                    reported = float(state.value[1])
                    on_progress(Progress("call-annealing", reported, 0.0, budget.elapsed_s))
                if state.value[1] <= self.target_s:
                    break
            cooling, length = cooling + 1, min(2 * length, 300_000)
            reset_calls(network, limits, state, start if cooling % 2 == 0 else state.best)
        best = incumbent
        if state.value[1] < known:
            made = Provenance("call-annealing", parameters={"moves": done})
            found = plan_for(problem, devices_of(o, state.best), provenance=made)
            if found is not None and (best is None or found.value_s < best.value_s):
                best = found
        return Result(best, solver="call-annealing", runtime_s=budget.elapsed_s - begun)


def _filled(limits: CallLimits) -> npt.NDArray[np.int32] | None:
    """(n,) places: CPUs where they may, else the first accelerator with room; ``None`` when there is none."""
    unit_of, runs = limits.unit_of, limits.runs
    room = limits.capacity.copy()
    place = np.zeros(len(runs), dtype=np.int32)
    for z, may in enumerate(runs):
        fits = np.flatnonzero(may & (limits.size[z] <= room))
        if not len(fits):
            return None
        place[z] = runs.shape[1] - 1 if may[-1] else fits[0]
        room[place[z]] -= limits.size[z]
    return np.asarray(place[unit_of], dtype=np.int32)
