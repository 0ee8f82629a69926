"""Search over topological orders, each cut into stages in the best way."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from placewright.algorithm import Budget, OnProgress, Progress, ignore
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.max_load.blocks import blocks_of, plan_of_stages
from placewright.solvers.max_load.orders import MOST_STATES, Orders

__all__ = ["OrderSearch"]

MOVES = 20_000
"""Orders scored by a search that has no limit of its own."""


@dataclass(frozen=True, slots=True)
class OrderSearch:
    r"""Anneal a topological order of the blocks; every candidate is cut into stages in the best way. Ours.

    A contiguous placement is a topological order of the blocks cut into stages, a device each. For one order the best
    cut is found by dynamic programming over how many devices of each class are used,

    .. math:: best(j, u) = \min_{i < j, c, r} \max(best(i, u - r e_c), load_{c, r}(order[i:j]))

    as arXiv 2006.16423, section 5.1.2, does for one depth-first order (DPL). Here random orders (depth first from
    either end, or any) are tried first, and the best is annealed: a move takes a block, with those that must stay
    before or after it, to another place, mostly across one where two stages meet. Scoring stops at the value that would
    still be accepted, which leaves few of the pairs (i, j). Any mix of devices, memory, wishes, overlap, both training
    objectives (where the passes count apart, up to 16 pairs of a forward and a backward load are kept a state: the cut
    may not be the best then) and replicas. Where links differ by pair or channels are shared, the search sees the least
    transfer times, the judge all of them.

    Any-time. The budget's ``iterations`` counts orders (default: 20,000, or the seconds).

    Guarantee: never worse than its incumbent; no bound.
    Complexity: O(B S + pairs (degree + C S)) an order of B blocks, with S states of C classes of devices.
    Source: ours, around the cut of one order of arXiv 2006.16423, section 5.1.2.
    When to use: for a good pipeline in less than a second; where the lattice of ideals is too large for ``ideal-dp``.

    Attributes
    ----------
    hot, cold : float
        Temperatures relative to the value that annealing starts from.
    cycles : int
        Each from the best order so far.
    target_s : float
        Stop as soon as the value is at or below it (a proven lower bound).

    Examples
    --------
    Two chains of 2 + 2 s in parallel on two devices, transfers of 1 s: one chain each beats cutting both.

    >>> from placewright import Cluster, Device, Link, MaxLoad, Operator, OperatorGraph, Tensor
    >>> graph = OperatorGraph([Operator(v) for v in "abcd"], [Tensor("x", 0, (2,), 1), Tensor("y", 1, (3,), 1)])
    >>> two = Cluster([Device("d0"), Device("d1")], [Link(0.0, 1.0, link_class="same-host")])
    >>> problem = Problem(graph, two, [[2.0, 2.0]] * 4, MaxLoad())
    >>> OrderSearch()(problem, budget=Budget(iterations=50), rng=np.random.default_rng(0)).value_s
    4.0
    """

    hot: float = 0.02
    cold: float = 1e-4
    cycles: int = 2
    target_s: float = 0.0

    def supports(self, problem: Problem) -> str | None:
        """Return why a problem is out of reach, or ``None``."""
        states = int(blocks_of(problem).stages.stride[-1])
        if states <= MOST_STATES:
            return None
        return f"{states:,} ways to have used some of the devices of each class are more than {MOST_STATES:,}"

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Search until the budget is spent or the value reaches ``target_s``."""
        begun = budget.elapsed_s
        blocks = blocks_of(problem)
        orders = Orders(blocks, rng)
        total = MOVES if budget.iterations is None and budget.seconds == inf else budget.iterations

        def better() -> None:
            on_progress(Progress("order-search", orders.value_s, 0.0, budget.elapsed_s))

        for cycle in range(self.cycles):
            orders.restart()
            moves = None if total is None else total * (cycle + 1) // self.cycles - orders.moves
            part = budget if budget.seconds == inf else budget.share(1.0 / (self.cycles - cycle))
            orders.run(part, moves, hot=self.hot, cold=self.cold, target_s=self.target_s, on_better=better)
        best = incumbent
        if orders.value_s < inf:
            provenance = Provenance("order-search", None, "", {"orders": orders.moves})
            found = plan_of_stages(problem, blocks, orders.best_stages(), provenance)
            if found is not None and (best is None or found.value_s < best.value_s):
                best = found
        return Result(best, runtime_s=budget.elapsed_s - begun, solver="order-search")
