"""HEFT and ETF: the two classic list schedulers."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from placewright._kernel.list_schedule import etf as etf_kernel
from placewright._kernel.list_schedule import heft as heft_kernel
from placewright._kernel.list_schedule import mean_upward_rank
from placewright._kernel.schedule import Workspace
from placewright.algorithm import Budget, OnProgress, ignore
from placewright.arrays import arrays_of
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.makespan.with_room import plan_with_room

__all__ = ["etf", "heft"]

Ints: TypeAlias = npt.NDArray[np.int32]
Floats: TypeAlias = npt.NDArray[np.float64]


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
    operator of a colocation class decides for all of it. Where live tensors then exceed a device's memory, it is all
    done again with as much memory kept free. Without a placement for every operator, no plan.

    Guarantee: none.
    Complexity: O(n^2 D) in the worst case, near O(E D) when gaps are few.
    Source: Topcuoglu, Hariri, Wu, IEEE Trans. Parallel Distrib. Syst. 13, 2002.
    When to use: for a first plan at once, also of 100,000 operators.
    """
    a = arrays_of(problem)
    rank = mean_upward_rank(a.network)
    order = np.lexsort((np.arange(len(rank)), -rank)).astype(np.int32)

    def place(room: Floats, w: Workspace) -> tuple[Ints, bool]:
        return heft_kernel(a.network, order, a.unit_of, a.resident, room, w)

    return plan_with_room(problem, place, "heft")


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
    colocation as in :func:`heft`.

    Guarantee: none on unlike devices.
    Complexity: O(E D + n D log n).
    Source: Hwang, Chow, Anger, Lee, SIAM J. Comput. 18, 1989.
    When to use: for a first plan at once, where many operators can run side by side.
    """
    a = arrays_of(problem)
    level = mean_upward_rank(a.network)

    def place(room: Floats, w: Workspace) -> tuple[Ints, bool]:
        return etf_kernel(a.network, level, a.unit_of, a.resident, room, w)

    return plan_with_room(problem, place, "etf")
