"""Makespans of many placements, each scheduled by list scheduling."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright._kernel.anneal import Limits, cost_of
from placewright._kernel.compiling import kernel
from placewright._kernel.schedule import Network, Workspace, upward_rank

__all__ = ["simulate"]


@kernel
def simulate(
    g: Network,
    limits: Limits,
    placements: npt.NDArray[np.int32],
    w: Workspace,
    costs: npt.NDArray[np.float64],
    fits: npt.NDArray[np.bool_],
) -> None:
    """Judge placements under the order that takes the longest remaining path first; ties go to the lower number.

    Parameters
    ----------
    placements : (B, n)
        A device for each operator; units are together.
    costs, fits : (B,)
        Overwritten: seconds, memory penalty included (``inf`` where a tensor can't travel); whether memory suffices.
    """
    n = placements.shape[1]
    tail = np.zeros(n)
    for b in range(len(placements)):
        order = np.argsort(-upward_rank(g, placements[b]), kind="mergesort").astype(np.int32)
        costs[b], fits[b] = cost_of(g, limits, placements[b], order, False, tail, np.inf, w)
