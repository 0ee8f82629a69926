"""m-TOPO of Baechi: the topological order cut into pieces of equal memory."""

from __future__ import annotations

import numpy as np

from placewright.algorithm import Budget, OnProgress, ignore
from placewright.arrays import arrays_of
from placewright.evaluate import plan_for
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result

__all__ = ["m_topo"]


def m_topo(
    problem: Problem,
    *,
    budget: Budget,
    rng: np.random.Generator,
    incumbent: Plan | None = None,
    on_progress: OnProgress = ignore,
) -> Result:
    """Fill one device after the other in topological order (Baechi, arXiv 2301.08695: m-TOPO).

    Minimises nothing: it balances memory. A device takes operators until the next would lift its memory above the mean
    over devices plus the largest operator's; then the next device is filled. Devices are taken in the cluster's order
    and operators in the graph's. As in the published program (its uniform variant), a colocation class is placed whole
    with its first operator.

    Choices where nothing was published: memory is weights and KV cache. A device's own limit binds too. A unit that may
    not run on the device being filled, or finds no room on it and those behind, goes to the first other one that may
    run it and has room; the device being filled stays. The order in which each device runs its operators is the judge's
    (longest remaining path first). Without room for every unit, or where live tensors then don't fit: no plan.

    Guarantee: none.
    Complexity: O(U D) for U units.
    Source: Baechi (Jeon et al., arXiv 2301.08695).
    When to use: to compare with Baechi; where memory is all that matters.

    Examples
    --------
    >>> from placewright import Cluster, Device, Operator, OperatorGraph, Problem
    >>> graph = OperatorGraph([Operator(name, weight_bytes=1) for name in "abcd"])
    >>> problem = Problem(graph, Cluster([Device("g"), Device("h")]), [[1.0, 1.0]] * 4)
    >>> m_topo(problem, budget=Budget(), rng=np.random.default_rng(0)).require_plan().device_of.tolist()  # 4 / 2 + 1
    [0, 0, 0, 1]
    """
    a = arrays_of(problem)
    D = len(a.capacity)
    # Whole bytes, as in the program; units count as operators do there.
    cap = float(a.resident.sum() // D + a.resident.max(initial=0.0))
    used = np.zeros(D)
    unit_device = np.full(len(a.resident), -1, dtype=np.int32)
    filling = 0
    for k, needed in enumerate(a.resident.tolist()):
        fits = a.allowed[k] & (used + needed <= np.minimum(cap, a.capacity))
        if a.allowed[k, filling] and not fits[filling]:
            behind = np.flatnonzero(fits[filling:])
            filling += int(behind[0]) if len(behind) else 0
        if not fits.any():
            fits = a.allowed[k] & (used + needed <= a.capacity)
            if not fits.any():
                return Result(solver="m-topo")
        unit_device[k] = filling if fits[filling] else int(np.argmax(fits))
        used[unit_device[k]] += needed
    return Result(plan_for(problem, unit_device[a.unit_of], provenance=Provenance("m-topo")), solver="m-topo")
