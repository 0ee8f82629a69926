"""One run of CP-SAT: in a thread of its own, so that it can be told to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from placewright.algorithm import Budget

__all__ = ["CpSatRun", "run_cp_sat"]

ValueOf = Callable[[Any], int]


@dataclass(frozen=True, slots=True)
class CpSatRun:
    """What CP-SAT says: its bound on the objective, -inf without one, and whether nothing is feasible."""

    bound: float
    infeasible: bool = False


def run_cp_sat(
    model: Any,
    *,
    budget: Budget,
    workers: int,
    seed: int,
    on_solution: Callable[[ValueOf], None],
    on_bound: Callable[[float], None],
    parameters: Mapping[str, Any],
    strategies: tuple[str, ...] = (),
) -> CpSatRun:
    """Minimise a ``CpModel``.

    Parameters
    ----------
    model : CpModel
    budget : Budget
        Its iterations are CP-SAT's deterministic time units, on one worker.
    workers, seed : int
    on_solution : callable
        Told of each better solution the function that gives a variable's value.
    on_bound : callable
        Told each better bound on the objective.
    parameters : mapping
        Names and values of ``SatParameters``.
    strategies : tuple of str
        CP-SAT's names of what its workers do; none: its own choice.
    """
    from ortools.sat.python import cp_model

    class OnSolution(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            on_solution(self.value)
            on_bound(self.best_objective_bound)

    solver = cp_model.CpSolver()
    solver.best_bound_callback = on_bound
    solver.parameters.num_workers = workers if budget.iterations is None else 1
    solver.parameters.random_seed = seed
    solver.parameters.catch_sigint_signal = False
    solver.parameters.subsolvers.extend(strategies)
    for name, value in parameters.items():
        setattr(solver.parameters, name, value)
    if budget.iterations is not None:
        solver.parameters.max_deterministic_time = float(budget.iterations)
    if np.isfinite(budget.seconds):
        solver.parameters.max_time_in_seconds = max(0.05, budget.left_s)
    status: list[Any] = []
    callback = OnSolution()
    thread = threading.Thread(target=lambda: status.append(solver.solve(model, callback)), daemon=True)
    thread.start()
    while thread.is_alive():
        # The main thread stays in Python, so that Ctrl-C can cancel the budget.
        thread.join(0.1)
        if budget.cancelled.is_set():
            solver.stop_search()
    outcome = status[0] if status else cp_model.UNKNOWN
    if outcome == cp_model.INFEASIBLE:
        return CpSatRun(-np.inf, infeasible=True)
    known = outcome in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.UNKNOWN)
    return CpSatRun(float(solver.best_objective_bound) if known else -np.inf)
