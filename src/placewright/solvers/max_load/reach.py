"""What the exact max-load models can take on, and the plan that they start from."""

from __future__ import annotations

import numpy as np

from placewright.evaluate import plan_for
from placewright.loads import MOST_PAIR_TIMES, Ints, loads_of, objective_of
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.solvers.max_load.program import size_of

__all__ = ["largest_value", "starting_plan", "unit_devices", "why_out_of_reach"]


def why_out_of_reach(problem: Problem, most_variables: int, name: str) -> str | None:
    """Tell why a model can't be made of a problem; ``None`` when it can."""
    if objective_of(problem).replicate:
        return f"{name} knows no replicas; ideal-dp is exact for contiguous plans with replicas"
    a = loads_of(problem)
    if len(a.producer) and ((not a.separable and not len(a.pair_s)) or (a.n_channels and not len(a.channel_s))):
        return (
            f"links that differ by pair or share channels need a table of {len(a.producer)} tensors times "
            f"{len(a.pays)} x {len(a.pays)} devices; {name} takes up to {MOST_PAIR_TIMES} entries"
        )
    size = size_of(problem)
    if size > most_variables:
        return f"the model would have about {size} variables; {name} takes up to {most_variables}"
    return None


def starting_plan(problem: Problem, incumbent: Plan | None, name: str) -> Plan | None:
    """Return the better of the incumbent and everything on one device."""
    best = incumbent
    D, n = len(problem.cluster), len(problem.graph)
    for i in np.flatnonzero(problem.allowed.all(axis=0)).tolist() if D else []:
        plan = plan_for(problem, np.full(n, i, dtype=np.int32), provenance=Provenance(name))
        if plan is not None and (best is None or plan.value_s < best.value_s):
            best = plan
    return best


def unit_devices(problem: Problem, plan: Plan) -> Ints:
    """(U,) devices of the units of a plan."""
    a = loads_of(problem)
    return np.asarray(plan.device_of[a.member[a.member_ptr[:-1]]], dtype=np.int32)


def largest_value(problem: Problem, best: Plan | None) -> float:
    """Return a value that no plan exceeds, for the choice of the unit of time."""
    if best is not None:
        return best.value_s
    a = loads_of(problem)
    D = len(a.pays)
    total = sum(
        float(np.where(np.isfinite(times), times, 0.0).reshape(-1, size).max(axis=1, initial=0.0).sum())
        for times, size in (
            (a.compute_s, D),
            (a.send_s, D),
            (a.receive_s, D),
            (a.pair_s, D * D),
            (a.pair_s, D * D),
            (a.channel_s, D * D),
        )
    )
    return total * D or 1.0
