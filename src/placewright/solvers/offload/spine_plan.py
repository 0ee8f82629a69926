"""The split that the spine bound would make, and the bound."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import numpy as np
import numpy.typing as npt

from placewright.algorithm import Budget, OnProgress, ignore
from placewright.bounds.offload.intervals import Interval
from placewright.bounds.offload.spines import spines
from placewright.offloads import offloads_of
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.judged import judged
from placewright.solvers.offload.call_network import call_network

__all__ = ["SpinePlan"]


@dataclass(frozen=True, slots=True)
class SpinePlan:
    """Give the calls of the spine bound's intervals to accelerators.

    Each interval of the path has a set of operators that its program would take. A unit goes to the first interval for
    which it is surely inside, else to the first one that takes it and has the memory; intervals go to accelerators by
    first fit decreasing; all else stays on CPUs. Bound and split are often equal, and then optimal. Any-time.

    Guarantee: none for the plan; ``lower_bound_s`` is that of :class:`placewright.bounds.offload.spine.SpineBound`.
    Complexity: that of the bound.
    Source: ours.
    When to use: for plan and bound at once where one long path makes the latency.

    Examples
    --------
    >>> from placewright import Cluster, Device, Link, Offload, Operator, OperatorGraph, Tensor
    >>> graph = OperatorGraph([Operator(v) for v in "ab"], [Tensor("x", 0, (1,), 8)])
    >>> box = Cluster([Device("c", kind="cpu"), Device("g")], [Link(0, 8, link_class="same-host")])
    >>> problem = Problem(graph, box, [[4.0, 1.0]] * 2, Offload())
    >>> result = SpinePlan()(problem, budget=Budget(10), rng=np.random.default_rng(0))
    >>> result.value_s, round(result.lower_bound_s, 6)
    (2.0, 2.0)
    """

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Bound up to the value of ``incumbent``; ``incumbent`` is returned where the plan is no better."""
        begun = budget.elapsed_s
        best, known = Result(incumbent, solver="spine-plan"), [inf if incumbent is None else incumbent.value_s]
        for bound, way in spines(problem, budget, lambda: known[-1], on_progress):
            best = replace(best, lower_bound_s=max(best.lower_bound_s, bound))
            device = _devices(problem, way)
            if device is None:
                continue
            found = judged(problem, device, Provenance("spine-plan"))
            if found.value_s < best.value_s:
                best = replace(best, plan=found.plan, rejected_s=inf, rejected="")
                known.append(found.value_s)
            elif best.plan is None:
                best = replace(best, rejected_s=found.rejected_s, rejected=found.rejected)
        bounds = {"spine": best.lower_bound_s} if best.lower_bound_s > 0.0 else {}
        return replace(best, bounds=bounds, runtime_s=budget.elapsed_s - begun)


def _devices(problem: Problem, way: list[Interval]) -> npt.NDArray[np.int32] | None:
    """(n,) devices; ``None`` where an operator has none."""
    o, limits = offloads_of(problem), call_network(problem)[1]
    A, unit_of, largest = len(o.accelerator), o.unit_of, float(o.capacity.max(initial=0.0))
    wanted = [x for x in way if x.taken is not None]
    of_unit, held = np.full(len(limits.size), -1), np.zeros(len(wanted))
    for surely in (True, False):
        for k, x in enumerate(wanted):
            chosen = x.inside if surely else x.taken
            for z in dict.fromkeys(unit_of[chosen].tolist()):
                if of_unit[z] < 0 and (surely or held[k] + limits.size[z] <= largest):
                    of_unit[z] = k
                    held[k] += limits.size[z]
    place, room = np.full(len(limits.size), A), o.capacity.astype(np.float64).copy()
    for k in sorted(range(len(wanted)), key=lambda k: (-held[k], k)):
        units = np.flatnonzero(of_unit == k)
        fits = np.flatnonzero((held[k] <= room) & limits.runs[units, :A].all(axis=0))
        if len(fits):
            place[units] = fits[0]
            room[fits[0]] -= held[k]
    for z in np.flatnonzero((place == A) & ~limits.runs[:, A]).tolist():
        fits = np.flatnonzero(limits.runs[z, :A] & (limits.size[z] <= room))
        if not len(fits):
            return None
        place[z] = fits[0]
        room[fits[0]] -= limits.size[z]
    at = place[unit_of]
    return np.where(at < A, np.append(o.accelerator, 0)[at], o.cpu_device).astype(np.int32)
