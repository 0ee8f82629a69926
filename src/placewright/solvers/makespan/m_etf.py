"""m-ETF of Baechi: earliest time first within the devices' memory."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from placewright._kernel.list_schedule import etf
from placewright._kernel.schedule import Workspace
from placewright.algorithm import Budget, OnProgress, ignore
from placewright.arrays import arrays_of
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.makespan.with_room import plan_with_room

__all__ = ["m_etf"]

Ints: TypeAlias = npt.NDArray[np.int32]
Floats: TypeAlias = npt.NDArray[np.float64]


def m_etf(
    problem: Problem,
    *,
    budget: Budget,
    rng: np.random.Generator,
    incumbent: Plan | None = None,
    on_progress: OnProgress = ignore,
) -> Result:
    """Place again and again the operator that can start first, where there is memory (Baechi, arXiv 2301.08695: m-ETF).

    Earliest time first (Hwang et al. 1989) without regard to what comes below an operator: of pairs that can start at
    the same time the operator that stands first in the graph is taken. A pair whose device lacks memory for the
    operator is dropped for good. So it differs from ``etf`` by its ties alone: that one prefers the longer way down.

    Choices: memory is weights and KV cache, a colocation class is placed with its first operator and all its memory;
    where live tensors then don't fit, all is placed again with as much memory kept free. On unlike devices an operator
    that could start on several takes the fastest of them. Transfers queue under the problem's contention, where the
    program lets one tensor at a time pass in each direction of a device.

    Guarantee: none.
    Complexity: O(E D + n D log n).
    Source: Baechi (Jeon et al., arXiv 2301.08695).
    When to use: to compare with Baechi; ``etf`` is the same with better ties.
    """
    a = arrays_of(problem)
    level = np.zeros(len(problem.graph))

    def place(room: Floats, w: Workspace) -> tuple[Ints, bool]:
        return etf(a.network, level, a.unit_of, a.resident, room, w)

    return plan_with_room(problem, place, "m-etf")
