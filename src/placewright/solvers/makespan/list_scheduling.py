"""HEFT and ETF: the two classic list schedulers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright._kernel.list_schedule import etf as etf_kernel
from placewright._kernel.list_schedule import heft as heft_kernel
from placewright._kernel.list_schedule import mean_upward_rank
from placewright._kernel.schedule import Workspace, workspace
from placewright.algorithm import Budget, OnProgress, ignore
from placewright.arrays import arrays_of
from placewright.evaluate import plan_for
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result

__all__ = ["etf", "heft"]


def heft(
    problem: Problem,
    *,
    budget: Budget,
    rng: np.random.Generator,
    incumbent: Plan | None = None,
    on_progress: OnProgress = ignore,
) -> Result:
    """Heterogeneous earliest finish time (Topcuoglu, Hariri, Wu 2002).

    Operators are taken by falling upward rank (mean processing times over devices, mean transfer times over pairs of
    devices) and each goes where it would finish first, into an idle gap when one is long enough. Beyond the paper:
    transfers queue under the problem's contention, a device is passed over when its memory is full, and the first
    operator of a colocation class decides for all of it. No guarantee. Complexity O(n^2 D) in the worst case, near
    O(E D) when gaps are few. Without a placement for every operator, no plan.
    """
    a = arrays_of(problem)
    rank = mean_upward_rank(a.network)
    order = np.lexsort((np.arange(len(rank)), -rank)).astype(np.int32)
    w = workspace(a.network)
    device, complete = heft_kernel(a.network, order, a.unit_of, a.resident, a.capacity, w)
    return _judged(problem, device, complete, w, "heft")


def etf(
    problem: Problem,
    *,
    budget: Budget,
    rng: np.random.Generator,
    incumbent: Plan | None = None,
    on_progress: OnProgress = ignore,
) -> Result:
    """Earliest time first (Hwang, Chow, Anger, Lee 1989).

    Of all pairs of a ready operator and a device, the one that can start earliest is scheduled; ties go to the higher
    level (mean upward rank), then to the faster device. Beyond the paper: unlike devices, and contention, memory and
    colocation as in :func:`heft`. No guarantee on unlike devices. Complexity O(n W D) for graphs of width W.
    """
    a = arrays_of(problem)
    w = workspace(a.network)
    device, complete = etf_kernel(a.network, mean_upward_rank(a.network), a.unit_of, a.resident, a.capacity, w)
    return _judged(problem, device, complete, w, "etf")


def _judged(problem: Problem, device: npt.NDArray[np.int32], complete: bool, w: Workspace, name: str) -> Result:
    if not complete:
        return Result(solver=name)
    # Sorted by start; the topological number breaks ties of zero-time operators.
    order = np.lexsort((np.arange(len(device)), w.finish, w.start)).astype(np.int32)
    return Result(plan_for(problem, device, order=order, provenance=Provenance(name)), solver=name)
