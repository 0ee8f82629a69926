"""Local search by single moves, from random placements."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from placewright._kernel.load_descent import descend
from placewright._kernel.load_moves import load_state
from placewright.algorithm import Budget, OnProgress, ignore
from placewright.loads import Loads, loads_of
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.judged import judged, settled
from placewright.solvers.max_load.load_network import load_network

__all__ = ["LocalSearch"]

A_CALL_S = 0.1
"""Seconds between two looks at the budget, about."""


@dataclass(frozen=True, slots=True)
class LocalSearch:
    """Place units at random, then make the best single move until none helps; best of some restarts.

    The local search of arXiv 2006.16423's evaluation: every colocation class starts on a random accelerator; of all
    moves of one class to another accelerator the one with the least largest load is made, until it gains less than a
    step. It stalls early where a chain of operators hangs together by large tensors: moving one of them alone costs
    more than it saves. As published it knows neither memory nor contiguity and uses no CPU: a placement that breaks a
    rule is no plan; where none of those that break none is as good, its value is returned as ``rejected_s``.

    Where it differs: classes that order edges tie in cycles are not united, as any placement is allowed here; units
    that no accelerator may run are placed among the other devices. Unlike accelerators have their own times, and a move
    is worth what the judge says: passes, overlap and channels count. Stages are not replicated. The published values
    are one sample of a random search; the values here lie in the same range, not at the same spot.

    ``Budget.iterations`` counts restarts.

    Guarantee: none.
    Complexity: O(messages of all units x D^2) a move.
    Source: the local search in the evaluation of arXiv 2006.16423.
    When to use: to compare with the paper.

    Attributes
    ----------
    restarts : int
    step_s : float
        Least gain of a move; the published 1e-5 of a millisecond.

    Examples
    --------
    >>> from placewright import Cluster, Device, MaxLoad, Operator, OperatorGraph
    >>> two = Cluster([Device("g0"), Device("g1")])
    >>> problem = Problem(OperatorGraph([Operator(n) for n in "abcd"]), two, [[2.0, 2.0]] * 4, MaxLoad("any"))
    >>> LocalSearch()(problem, budget=Budget(), rng=np.random.default_rng(0)).value_s
    4.0
    """

    restarts: int = 10
    step_s: float = 1e-8

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Search from random placements."""
        loads, begun = loads_of(problem), budget.elapsed_s
        may = _accelerators(loads)
        if not may.any(axis=1).all():
            return Result(solver="local-search")
        network, limits = load_network(problem, loads, may)
        passes, _, devices = loads.compute_s.shape
        best, done = Result(), 0
        restarts = self.restarts if budget.iterations is None else max(1, budget.iterations)
        while done < restarts and not (done and budget.spent):
            pick = rng.integers(0, np.diff(limits.choice_ptr))
            state = load_state(
                limits.choice[limits.choice_ptr[:-1] + pick],
                messages=len(loads.producer),
                passes=passes,
                devices=devices,
                channels=loads.n_channels,
            )
            moves = 1
            while True:
                clock = time.perf_counter()
                _, made = descend(network, limits, state, self.step_s, moves)
                if made < moves or budget.spent:
                    break
                moves = max(1, int(A_CALL_S * moves / max(1e-6, time.perf_counter() - clock)))
            made_by = Provenance("local-search", None, "", {"restart": done})
            best = best.merge(judged(problem, loads.devices_of(state.device), made_by))
            done += 1
        return replace(settled(best), solver="local-search", runtime_s=budget.elapsed_s - begun)


def _accelerators(loads: Loads) -> npt.NDArray[np.bool_]:
    """(U, D) accelerators that may run each unit, or where none may, other devices."""
    fast = loads.allowed & loads.pays
    return np.asarray(np.where(fast.any(axis=1, keepdims=True), fast, loads.allowed))
