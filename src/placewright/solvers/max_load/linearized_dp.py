"""The best cut of one linear order of the network."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from placewright.algorithm import Budget, OnProgress, ignore
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.max_load.blocks import blocks_of
from placewright.solvers.max_load.chain import (
    cut_along,
    depth_first_order,
    last_operator,
    too_many_states,
    without_leaves,
)

__all__ = ["LinearizedDp"]


@dataclass(frozen=True, slots=True)
class LinearizedDp:
    """Put the network in one order depth-first, and cut it into stages in the best way (DPL of arXiv 2006.16423).

    The paper's linearisation of its dynamic program for the max-load adds edges until the network is a path, in the
    order of a depth-first traversal; there are then only as many ideals as blocks, and O(B^2) pairs of them. Blocks are
    colocation classes, those united that order edges tie in cycles, and those merged into their only neighbour that
    take no time; where the merged ones don't fit in memory, the others are tried too. The plan is contiguous whatever
    the objective asks for.

    Where it differs from the published program: the order goes on with the block that became ready last; of several at
    once, the program takes the largest label of a class, and at the start whatever comes first in the hash table of its
    C++ library. Here it is the block whose last operator comes earliest in the network, so the same file gives the same
    plan everywhere. Of the 17 published files some come out better for it, the others the same. Blocks that join a
    neighbour at no loss (see ``Blocks``) are merged too. Devices of any number of classes, passes that count apart,
    overlap and replication are those of the dynamic program; the paper has alike accelerators and alike CPUs.

    Guarantee: exact along its order, so a plan is found if one fits along it; none beyond.
    Complexity: O(B^2 (degree + classes x states)), states being the ways to have used some devices of each class.
    Source: DPL of Tarnawski et al. 2020 (arXiv 2006.16423).
    When to use: to compare with the paper; ``order-search`` cuts many orders in this way.

    Examples
    --------
    >>> from placewright import Cluster, Device, Link, MaxLoad, Operator, OperatorGraph, Tensor
    >>> graph = OperatorGraph([Operator(n) for n in "abc"], [Tensor("x", 0, (1,), 8), Tensor("y", 1, (2,), 8)])
    >>> pair = Cluster([Device("g0"), Device("g1")], [Link(0.0, 8.0, link_class="same-host")])
    >>> problem = Problem(graph, pair, [[2.0, 2.0], [2.0, 2.0], [3.0, 3.0]], MaxLoad())
    >>> LinearizedDp()(problem, budget=Budget(), rng=np.random.default_rng(0)).value_s  # a and b, with y: 2 + 2 + 1
    5.0
    """

    def supports(self, problem: Problem) -> str | None:
        """Tell why a problem is out of reach."""
        return too_many_states(problem)

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Cut the order; nothing is random. Without a plan when the budget is spent before the cut is known."""
        begun = budget.elapsed_s
        whole = blocks_of(problem)
        merged = without_leaves(problem, whole)
        found = Result()
        for blocks in (merged, whole) if merged.n_blocks < whole.n_blocks else (whole,):
            if found.plan is None:
                last = last_operator(problem, blocks)
                order = depth_first_order(blocks.n_blocks, blocks.edges, lambda b, last=last: last[b])  # type: ignore[misc]
                found = cut_along(problem, blocks, order, Provenance("linearized-dp"), budget)
        return replace(found, solver="linearized-dp", runtime_s=budget.elapsed_s - begun)
