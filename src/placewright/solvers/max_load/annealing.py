"""Annealing of placements that need not be contiguous, with moves of whole regions."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from placewright._kernel.load_moves import anneal_loads, load_state, reset_loads, value_of
from placewright.algorithm import Budget, OnProgress, Progress, ignore
from placewright.evaluate import plan_for
from placewright.loads import Loads, loads_of, objective_of
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.max_load.load_network import load_network

__all__ = ["LoadAnnealing", "why_bound"]

MOST_MOVES = 1_000_000
"""Moves when the budget limits neither seconds nor iterations."""


@dataclass(frozen=True, slots=True)
class LoadAnnealing:
    """Move units, exchange them, and move regions of units that hang together, while the temperature falls.

    Minimised is the 12th norm of the loads, summed over passes, and a penalty for memory; kept is the placement within
    memory whose largest load is smallest. Single moves stall where operators are tied to each other by large tensors: a
    region of a device, grown breadth-first from one of its units, crosses as one.

    ``Budget.iterations`` counts moves.

    Guarantee: never worse than the incumbent; no bound.
    Complexity: O(messages of its units x devices) a move: some 200,000 to 900,000 moves a second.
    Source: ours; the move of regions is what graph partitioners do by coarsening (Karypis and Kumar 1998).
    When to use: where plans need not be contiguous and the network is large.

    Attributes
    ----------
    hot, cold : float
        Temperatures at the start and end of a cycle, relative to the mean load.
    cycles : int
        Coolings, each from the best placement of those before.
    target_s : float
        Ends when a placement is as good as this.
    """

    hot: float = 0.01
    cold: float = 0.0003
    cycles: int = 3
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
        """Improve on ``incumbent``, or on a chain of stages of equal work."""
        loads = loads_of(problem)
        if not loads.allowed.any(axis=1).all():
            return Result(solver="annealing")
        begun = budget.elapsed_s
        network, limits = load_network(problem, loads, loads.allowed)
        passes, _, devices = loads.compute_s.shape
        state = load_state(
            _start(loads, incumbent),
            messages=len(loads.producer),
            passes=passes,
            devices=devices,
            channels=loads.n_channels,
        )
        reset_loads(network, limits, state)
        scale = _mean_load(loads)
        value, _, excess = value_of(network, limits, state, scale)
        state.value[1] = value if excess == 0.0 else np.inf
        largest = max(2, loads.n_units // 4)
        total = budget.iterations
        if total is None and not np.isfinite(budget.seconds):
            total = MOST_MOVES
        span = max(1e-9, budget.left_s)
        done, count, reported, progress, cycle = 0, 2000, np.inf, 0.0, 0
        while progress < 1.0 and not budget.spent and state.value[1] > self.target_s:
            if cycle < int(progress * self.cycles) and np.isfinite(state.value[1]):
                state.device[:] = state.best
            cycle = int(progress * self.cycles)
            reset_loads(network, limits, state)
            hot = scale * self.hot * (self.cold / self.hot) ** (progress * self.cycles - cycle) / (1.0 + cycle)
            slice_ = count if total is None else min(count, total - done, 4096)
            clock = time.perf_counter()
            anneal_loads(network, limits, state, hot, hot, slice_, largest, scale, rng)
            done += slice_
            count = max(200, int(0.1 * slice_ / max(1e-6, time.perf_counter() - clock)))  # a tenth of a second
            progress = done / total if total is not None else (budget.elapsed_s - begun) / span
            if state.value[1] < reported:
                reported = float(state.value[1])
                on_progress(Progress("annealing", reported, 0.0, budget.elapsed_s))
        best = incumbent
        if np.isfinite(state.value[1]):
            made = Provenance("annealing", None, "", {"moves": done})
            found = plan_for(problem, loads.devices_of(state.best), provenance=made)
            if found is not None and (best is None or found.value_s < best.value_s):
                best = found
        return Result(best, solver="annealing", runtime_s=budget.elapsed_s - begun)


def why_bound(problem: Problem) -> str | None:
    """Say why annealing can't take a problem."""
    if objective_of(problem).contiguity != "any":
        return "its moves know no order of devices; use order-search, or allow plans that are not contiguous"
    return None


def _mean_load(loads: Loads) -> float:
    """Load of a device if every unit ran where it is fastest and all devices shared the work."""
    work = np.where(loads.allowed, loads.compute_s.sum(axis=0), np.inf).min(axis=1).sum()
    return float(work / loads.compute_s.shape[2]) or 1.0


def _start(loads: Loads, incumbent: Plan | None) -> npt.NDArray[np.int32]:
    """Devices of the units: the incumbent's, or runs of equal work along the blocks, one a device that pays."""
    if incumbent is not None:
        return np.asarray(incumbent.device_of[loads.member[loads.member_ptr[:-1]]], dtype=np.int32)
    work = loads.compute_s.sum(axis=0)
    fastest = np.where(loads.allowed, work, np.inf).argmin(axis=1)
    chosen = np.flatnonzero(loads.pays) if loads.pays.any() else np.arange(len(loads.pays))
    order = np.argsort(loads.block_of, kind="stable")
    share = work[np.arange(loads.n_units), fastest][order].cumsum()
    share = share / share[-1] if share[-1] > 0 else np.linspace(0.0, 1.0, loads.n_units)
    device = np.empty(loads.n_units, dtype=np.int32)
    device[order] = chosen[np.minimum(len(chosen) - 1, (share * len(chosen) * (1 - 1e-9)).astype(int))]
    possible = loads.allowed[np.arange(loads.n_units), device]
    return np.where(possible, device, fastest).astype(np.int32)
