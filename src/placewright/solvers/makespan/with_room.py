"""What list schedulers share: a plan from placements that were chosen by weights, with room for live tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from placewright._kernel.schedule import Workspace, workspace
from placewright.arrays import arrays_of
from placewright.evaluate import evaluate
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result

__all__ = ["plan_with_room"]

Ints: TypeAlias = npt.NDArray[np.int32]
Floats: TypeAlias = npt.NDArray[np.float64]

ATTEMPTS = 5
"""Times that operators are placed with less and less memory for weights before there is no plan."""


def plan_with_room(problem: Problem, place: Callable[[Floats, Workspace], tuple[Ints, bool]], name: str) -> Result:
    """Make a plan of what ``place`` makes of the room for weights, which shrinks while live tensors don't fit.

    Parameters
    ----------
    problem : Problem
    place : callable
        Given (D,) bytes for weights and KV cache and a workspace: (n,) devices and whether every operator has one. It
        leaves start and finish times in the workspace; they give the order in which devices take their operators.
    name : str
        Of the solver.
    """
    a = arrays_of(problem)
    w = workspace(a.network)
    kept: Floats = np.zeros(len(a.capacity))
    for attempt in range(1, ATTEMPTS + 1):
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
        # What each device held and a quarter, and more and more of what any held: the peaks move with the operators.
        live = np.array([use.activation_bytes for use in judged.devices], dtype=np.float64)
        kept = np.maximum(kept, np.maximum(1.25 * live, attempt / ATTEMPTS * live.max()))
    return Result(solver=name)
