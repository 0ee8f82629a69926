"""One run of HiGHS' branch and cut: in a thread of its own, so that it can be told to stop, and looked at twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from placewright.algorithm import Budget
from placewright.highs import new_highs
from placewright.left_running import leave

__all__ = ["LEAST_MARGIN", "TOLERANCE", "UNITS", "MipRun", "run_mip"]

Floats = npt.NDArray[np.float64]

UNITS = 1000.0
"""Units of time in the value of the incumbent: the solver's tolerances are absolute."""

TOLERANCE = 1e-9
"""Of reduced costs, in units of time."""

LEAST_MARGIN = 2e-7
"""Relative part of a bound that no model claims; a fifth of what counts as proved optimal."""

GRACE_S = 1.0
"""Seconds that a cancelled search has to end. HiGHS asks seldom whether it should, up to 20 s apart."""


@dataclass(frozen=True, slots=True)
class MipRun:
    """What HiGHS says: its dual bound in units of the objective, -inf without one, and whether nothing is feasible."""

    bound: float
    infeasible: bool = False


def run_mip(
    lp: Any,
    *,
    budget: Budget,
    threads: int,
    seed: int,
    start: Sequence[float] | None,
    on_solution: Callable[[Floats], None],
    on_bound: Callable[[float], None],
    mip_feasibility_tolerance: float = 1e-6,
) -> MipRun:
    """Minimise ``lp``, a ``highspy.HighsLp`` whose objective counts about :data:`UNITS`.

    Parameters
    ----------
    lp : HighsLp
    budget : Budget
        Its iterations are nodes of the search tree.
    threads, seed : int
    start : sequence of float or None
        A solution.
    on_solution : callable
        Told the values of each better solution.
    on_bound : callable
        Told the dual bound from time to time.
    mip_feasibility_tolerance : float
        Of whole numbers.

    Notes
    -----
    Where presolve solves the program, HiGHS 1.16 may return the start in place of the optimum whose value it states.
    Such a run is done again without the start.
    """
    import highspy

    seen, left = [-np.inf], threading.Event()

    def report(event: Any) -> None:
        if not left.is_set():
            bound = float(event.data_out.mip_dual_bound)
            if np.isfinite(bound):
                seen[0] = max(seen[0], bound)
            on_bound(bound)

    def improved(event: Any) -> None:
        if not left.is_set():
            on_solution(np.asarray(event.data_out.mip_solution))
            report(event)

    def interrupt(event: Any) -> None:
        event.data_in.user_interrupt = budget.cancelled.is_set()

    solver = new_highs()
    for option, setting in {
        "threads": threads,
        "parallel": "on" if threads > 1 else "off",
        "random_seed": seed,
        "mip_rel_gap": 0.0,
        "mip_abs_gap": UNITS * LEAST_MARGIN,
        "mip_feasibility_tolerance": mip_feasibility_tolerance,
        "dual_feasibility_tolerance": TOLERANCE,
        "time_limit": max(0.05, min(budget.left_s, 1e6)),
    }.items():
        solver.setOptionValue(option, setting)
    if budget.iterations is not None:
        solver.setOptionValue("mip_max_nodes", budget.iterations)
    solver.passModel(lp)
    if start is not None:
        solution = highspy.HighsSolution()
        solution.col_value = list(start)
        solver.setSolution(solution)
    solver.cbMipImprovingSolution += improved
    solver.cbMipLogging += report
    for signal in (solver.cbMipInterrupt, solver.cbSimplexInterrupt, solver.cbIpmInterrupt):
        signal += interrupt
    thread = threading.Thread(target=solver.run, daemon=True)
    thread.start()
    while thread.is_alive():
        # The main thread stays in Python, so that Ctrl-C can cancel the budget.
        thread.join(0.1)
        if budget.cancelled.is_set():
            thread.join(GRACE_S)
            break
    if thread.is_alive():
        # It ends by itself when HiGHS asks next; what it reports then is dropped.
        left.set()
        leave(thread)
        return MipRun(seen[0])
    status, info = solver.getModelStatus(), solver.getInfo()
    if status == highspy.HighsModelStatus.kInfeasible:
        return MipRun(-np.inf, infeasible=True)
    optimal = status == highspy.HighsModelStatus.kOptimal
    if optimal:
        values = np.asarray(solver.getSolution().col_value)
        on_solution(values)
        stated = info.objective_function_value
        if start is not None and values @ lp.col_cost_ > stated * (1.0 + LEAST_MARGIN) and not budget.spent:
            return run_mip(
                lp,
                budget=budget,
                threads=threads,
                seed=seed,
                start=None,
                on_solution=on_solution,
                on_bound=on_bound,
                mip_feasibility_tolerance=mip_feasibility_tolerance,
            )
    # Where nothing is left to decide, HiGHS solves a linear program and knows no bound of a search.
    linear = all(kind == highspy.HighsVarType.kContinuous for kind in lp.integrality_)
    return MipRun(float(info.objective_function_value if linear and optimal else info.mip_dual_bound))
