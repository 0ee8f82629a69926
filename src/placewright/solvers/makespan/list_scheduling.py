"""HEFT and ETF: the two classic list schedulers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from placewright._kernel.list_schedule import etf as etf_kernel
from placewright._kernel.list_schedule import heft as heft_kernel
from placewright._kernel.list_schedule import mean_upward_rank
from placewright._kernel.schedule import Workspace, workspace
from placewright.algorithm import Budget, OnProgress, ignore
from placewright.arrays import arrays_of
from placewright.evaluate import evaluate
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result

__all__ = ["etf", "heft"]

Ints: TypeAlias = npt.NDArray[np.int32]
Floats: TypeAlias = npt.NDArray[np.float64]

ATTEMPTS = 4
"""Times that operators are placed with less and less memory for weights before there is no plan."""


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
    done again with as much memory kept free. No guarantee. Complexity O(n^2 D) in the worst case, near O(E D) when gaps
    are few. Without a placement for every operator, no plan.
    """
    a = arrays_of(problem)
    rank = mean_upward_rank(a.network)
    order = np.lexsort((np.arange(len(rank)), -rank)).astype(np.int32)

    def place(room: Floats, w: Workspace) -> tuple[Ints, bool]:
        return heft_kernel(a.network, order, a.unit_of, a.resident, room, w)

    return _judged(problem, place, "heft")


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
    colocation as in :func:`heft`. No guarantee on unlike devices. Complexity O(E D + n D log n).
    """
    a = arrays_of(problem)
    level = mean_upward_rank(a.network)

    def place(room: Floats, w: Workspace) -> tuple[Ints, bool]:
        return etf_kernel(a.network, level, a.unit_of, a.resident, room, w)

    return _judged(problem, place, "etf")


def _judged(problem: Problem, place: Callable[[Floats, Workspace], tuple[Ints, bool]], name: str) -> Result:
    """Make a plan of what ``place`` makes of the room for weights, which shrinks while live tensors don't fit."""
    a = arrays_of(problem)
    w = workspace(a.network)
    kept = 0.0
    for _ in range(ATTEMPTS):
        device, complete = place(a.capacity - kept, w)
        if not complete:
            break
        # Sorted by start; the topological number breaks ties of zero-time operators.
        order = np.lexsort((np.arange(len(device)), w.finish, w.start)).astype(np.int32)
        judged = evaluate(problem, device, order=order)
        if judged.feasible:
            return Result(Plan(device, judged.schedule, judged.value_s, Provenance(name)), solver=name)
        if all(use.limit_bytes is None or use.memory_bytes <= use.limit_bytes for use in judged.devices):
            break
        # What any device held and a quarter: the peaks move with the operators.
        kept = max(1.5 * kept, 1.25 * max(use.activation_bytes for use in judged.devices))
    return Result(solver=name)
