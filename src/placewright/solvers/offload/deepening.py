"""How the exact offload models go from few calls an accelerator to as many as may be of use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from placewright.algorithm import Budget
from placewright.evaluate import plan_for
from placewright.offloads import offloads_of
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result, Status
from placewright.solvers.offload.program import OffloadProgram, build, most_calls, size_of

__all__ = ["best_of_solution", "deepened", "why_too_large"]

Floats = npt.NDArray[np.float64]
Solve = Callable[[OffloadProgram, Plan | None, Budget], Result]

FEW_CALLS = 0.25
"""Part of the budget in which plans of one call an accelerator are sought: twice as quick as with a rest, and where a
rest is allowed the search spends its time on calls that it does not know how to cut."""


def why_too_large(problem: Problem, most_variables: int, name: str) -> str | None:
    """Tell why a model can't be made of a problem; ``None`` when it can."""
    size = size_of(problem)
    if size <= most_variables:
        return None
    return f"the model would have about {size:,} variables; {name} takes up to {most_variables:,}"


def deepened(
    problem: Problem,
    budget: Budget,
    incumbent: Plan | None,
    name: str,
    *,
    quanta: float,
    whole: bool,
    solve: Solve,
    most_variables: int,
) -> Result:
    """Solve programs with 1, 2, 4, ... own calls an accelerator until the gap is closed or nothing is left to refine.

    All but the last relax the problem (:mod:`placewright.solvers.offload.program`), so that every bound holds. Few
    accelerators make two calls in good plans, and models with slots for many calls are slow. At first a program of one
    call an accelerator is searched for a plan; it bounds nothing.
    """
    best = _starting_plan(problem, incumbent, name)
    result = Result(best, solver=name)
    most, own = most_calls(problem), 1
    if most > 1 and budget.iterations is None and (best is None or best.value_s > 0.0):
        most_s = _largest_value(problem) if best is None else best.value_s
        program = build(problem, most_s / quanta, 1, whole=whole, most_s=most_s, start=best, rest=False)
        result = result.merge(solve(program, best, budget.share(FEW_CALLS)))
    while not budget.spent:
        plan = result.plan
        if plan is not None and plan.value_s <= 0.0:
            break
        most_s = _largest_value(problem) if plan is None else plan.value_s
        program = build(problem, most_s / quanta, own, whole=whole, most_s=most_s, start=plan)
        found = solve(program, plan, budget)
        result = result.merge(found)
        if found.infeasible or result.status is Status.OPTIMAL or budget.spent or budget.iterations is not None:
            break
        if plan is None and result.plan is not None:
            continue  # Without a plan the unit of time was coarse: once more in a fine one.
        if own >= most or size_of(problem) * 2 * own > most_variables:
            break
        own = min(2 * own, most)
    if result.plan is not None and result.plan is incumbent:
        result = replace(result, solver=incumbent.provenance.solver)
    return result


def best_of_solution(problem: Problem, program: OffloadProgram, values: object, provenance: Provenance) -> Plan | None:
    """Judge a solution as it is, and with as few calls as its devices allow."""
    device, call = program.placement(np.asarray(values, dtype=np.float64))
    plans = [plan_for(problem, device, provenance=provenance)]
    if call is not None:
        plans.append(plan_for(problem, device, call_of=call, provenance=provenance))
    return min((p for p in plans if p is not None), key=lambda p: p.value_s, default=None)


def _starting_plan(problem: Problem, incumbent: Plan | None, name: str) -> Plan | None:
    """Return the best of the incumbent, everything on CPUs, and everything on one accelerator in one call."""
    o, best = offloads_of(problem), incumbent
    n = len(o.cpu_s)
    tried = [o.cpu_device] if (o.cpu_device >= 0).all() else []
    for i in o.accelerator[np.isfinite(o.acc_s).all(axis=0)].tolist():
        tried.append(np.full(n, i, dtype=np.int32))
    for device in tried:
        plan = plan_for(problem, device, provenance=Provenance(name))
        if plan is not None and (best is None or plan.value_s < best.value_s):
            best = plan
    return best


def _largest_value(problem: Problem) -> float:
    """Return a value that no plan exceeds."""
    o = offloads_of(problem)

    def largest(known: Floats) -> Floats:
        finite = np.where(np.isfinite(known), known, 0.0)
        return np.asarray(finite.max(axis=tuple(range(1, known.ndim)), initial=0.0))

    work = np.maximum(largest(o.acc_s), largest(o.cpu_s[:, None])).sum()
    moved = (largest(o.out_to_s) + np.diff(o.reader_ptr) * largest(o.in_from_s)).sum()
    return float(work + moved) or 1.0
