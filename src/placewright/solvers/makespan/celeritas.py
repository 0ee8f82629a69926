"""Celeritas: clusters of operators that follow each other in a depth-first order, each placed where it ends first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from placewright._kernel.clusters import depth_first_order, place_clusters, sequential_partition
from placewright._kernel.list_schedule import mean_upward_rank
from placewright._kernel.schedule import Workspace
from placewright.algorithm import Budget, OnProgress, ignore
from placewright.arrays import arrays_of
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.makespan.with_room import plan_with_room

__all__ = ["Celeritas"]

Ints: TypeAlias = npt.NDArray[np.int32]
Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Celeritas:
    """Order, fuse, place (Xu, Liao, Xie, Zhou 2022, arXiv 2208.00184): made to be fast on large graphs.

    1. CPD-TOPO, a topological order that goes depth first along critical paths: after an operator comes the reader that
    it made ready and that has the longest way down; without one, the last that was made ready. 2. Fusion: Kernighan's
    optimal sequential partition cuts that order into clusters so that the bytes of the tensors between clusters are
    fewest, by dynamic programming over the end of a cluster. 3. Each cluster in turn goes to the device with memory for
    it where its last operator would finish first.

    Written from memory of the paper, of which the abstract alone was at hand; the names of the steps are the paper's,
    and these are choices: the way down takes mean processing and transfer times (HEFT's rank). A cluster has at most 1
    / (``clusters_per_device`` D) of the network's mean processing time and of the memory that any device may use, and
    ``most_operators`` operators, unless it is one operator; edges count their tensor's bytes once a reader. The
    measuring run ("standard evaluation") that gives the paper its times is the problem's own times here. A cluster that
    no device can take whole, for memory, pins or colocation, is taken apart and its operators placed one by one by the
    same rule. Contention delays transfers. Where live tensors then don't fit, all is placed again with as much memory
    kept free.

    Guarantee: none.
    Complexity: O(n ``most_operators`` + E D).
    Source: Xu, Liao, Xie, Zhou 2022 (arXiv 2208.00184).
    When to use: for a plan of few cuts of a large network at once.

    Attributes
    ----------
    clusters_per_device : int
    most_operators : int
    """

    clusters_per_device: int = 8
    most_operators: int = 256

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Order, fuse and place."""
        a = arrays_of(problem)
        g = a.network
        order = depth_first_order(g, mean_upward_rank(g))
        finite = np.isfinite(g.processing)
        seconds = np.where(finite, g.processing, 0.0).sum(axis=1) / np.maximum(1, finite.sum(axis=1))
        parts = self.clusters_per_device * len(a.capacity)
        bytes_of = problem.resident_bytes.astype(np.float64)
        room = float(a.capacity.max()) / self.clusters_per_device
        cut_ptr = sequential_partition(
            g, order, seconds, bytes_of, float(seconds.sum()) / parts, room, self.most_operators
        )

        def place(room: Floats, w: Workspace) -> tuple[Ints, bool]:
            return place_clusters(g, order, cut_ptr, a.unit_of, a.resident, room, w)

        return plan_with_room(problem, place, "celeritas")
