"""Vectors of loads along a chain of modules, joined where every path passes one operator: exact, or a close bound."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import numpy as np
import numpy.typing as npt

from placewright.algorithm import Budget, OnProgress, Progress, ignore
from placewright.bounds.max_load.module_network import ModuleNetwork, module_network, why_no_modules
from placewright.bounds.max_load.module_prices import Priced, best_prices
from placewright.evaluate import plan_for
from placewright.loads import loads_of, objective_of
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import OPTIMALITY_TOLERANCE, Result
from placewright.rounding import rounded_down
from placewright.solvers.max_load.module_walk import Walk, walk

__all__ = ["LoadModularSplit"]

NAME = "modular-split"

BETTER = 0.5 * OPTIMALITY_TOLERANCE
"""What a plan must be better by, relatively, to be looked for."""

ROUNDS_OF_PRICES = 40

SURE_ROUNDS = 3
"""In which plans are looked for, whether that found any before or not."""

ROUNDS_IN_ORDER = 3
"""For a contiguous plan to begin with, where any order will do."""

MOST_PRICES, GOOD = 4, 0.9
"""Prices that are used, and how good their bounds are, compared with the best."""

TRACED = 16
"""Vectors at the end whose placements are judged."""

MOST_KEPT = 20_000_000
"""Widest row of vectors times steps."""


@dataclass(frozen=True, slots=True)
class LoadModularSplit:
    """Pareto sets of load vectors along the chain of modules. Ours, from DiviML's idea of splitting (arXiv 2308.00127).

    Groups (units; blocks under contiguity) are placed along an order in which few of them are in use at a time: at a
    cut, which every path passes, one, so that what lies before and behind is coupled by its device and by sums of loads
    alone. A state is the devices of the groups in use; it keeps the vectors of loads (of each device and pass, with
    transfers apart where they overlap; of channels; of memories) that no other is better than in every entry. What a
    message costs is added when its last end is placed, so links may differ by both ends. Order is kept by relations
    between devices within a module; at a cut all devices used before it but its own are closed, only their largest
    load counts, and they are never used again: this is contiguity, and convexity, exactly (docs/max-load-modules.md).

    Passed over is what can't beat the incumbent by 5e-7: a sum too large by itself, or by the least price of what
    follows on the devices that are still open, at the prices of :mod:`placewright.bounds.max_load.module_prices`.

    Guarantee: exact when a round ends without merging. Where there are more than ``width`` vectors, those of a cell are
    merged into one with the least of each entry: the least value at the end is then a lower bound, and what the vectors
    stand for are plans to judge. Rounds of four times the width follow until the gap is closed. Where any order will
    do, a few rounds look for a contiguous plan first. Memory, channels, overlap, both passes: exact; no replicas.
    Any-time: a round that the budget ends gives nothing. The budget's ``iterations`` counts rounds.

    Complexity: of a round, the states of all frontiers times ``width`` vectors times devices.
    Source: ours, from DiviML's idea of splitting (arXiv 2308.00127).
    When to use: for narrow networks on links that differ or share channels.

    Attributes
    ----------
    width : int
        Vectors in the first round.

    Examples
    --------
    A chain of 2 + 3 + 2 s on two devices, transfers of 1 s: the first two together have 5 s and send for 1 s.

    >>> from placewright import Cluster, Device, Link, MaxLoad, Operator, OperatorGraph, Tensor
    >>> graph = OperatorGraph([Operator(v) for v in "abc"], [Tensor("x", 0, (1,), 1), Tensor("y", 1, (2,), 1)])
    >>> two = Cluster([Device("d0"), Device("d1")], [Link(0.0, 1.0, link_class="same-host")])
    >>> problem = Problem(graph, two, [[2.0, 2.0], [3.0, 3.0], [2.0, 2.0]], MaxLoad())
    >>> result = LoadModularSplit()(problem, budget=Budget(), rng=np.random.default_rng(0))
    >>> result.value_s, result.status.value
    (6.0, 'optimal')
    """

    width: int = 256

    def supports(self, problem: Problem) -> str | None:
        """Return why a problem is out of reach, or ``None``."""
        return why_no_modules(problem)

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Improve on ``incumbent`` and on the bound until they meet or the budget is spent."""
        begun = budget.elapsed_s
        if not loads_of(problem).allowed.any(axis=1).all():
            return Result(solver=NAME)
        search = _Search(problem, budget, incumbent, on_progress)
        search.start_in_order(self.width)
        search.run(self.width, inf if budget.iterations is None else budget.iterations)
        result = Result(search.best, search.bound_s, search.infeasible, budget.elapsed_s - begun, NAME)
        if search.best is not None and search.best is incumbent:
            result = replace(result, solver=incumbent.provenance.solver)
        return replace(result, bounds={NAME: search.bound_s} if not search.infeasible else {})


class _Search:
    def __init__(self, problem: Problem, budget: Budget, best: Plan | None, on_progress: OnProgress) -> None:
        self.problem, self.budget, self.best, self.on_progress = problem, budget, best, on_progress
        self.network: ModuleNetwork = module_network(problem)
        self.bound_s, self.infeasible, self.rounds = 0.0, "", 0

    @property
    def value_s(self) -> float:
        """Of the best plan."""
        return inf if self.best is None else self.best.value_s

    @property
    def proved(self) -> bool:
        """Whether the gap is closed, or nothing can be placed."""
        return bool(self.infeasible) or self.bound_s >= self.value_s * (1.0 - 0.9 * OPTIMALITY_TOLERANCE)

    def start_in_order(self, width: int) -> None:
        """Take the best contiguous plan of a few rounds: order leaves so few vectors that these often prove it."""
        objective = objective_of(self.problem)
        if objective.contiguity == "contiguous":
            return
        given = self.problem
        ordered = replace(objective, contiguity="contiguous")
        problem = Problem(given.graph, given.cluster, given.times, ordered, given.wishes, given.name)
        if why_no_modules(problem) is not None:
            return
        search = _Search(problem, self.budget.share(0.2), self.best, ignore)
        search.run(width, ROUNDS_IN_ORDER)
        if search.best is not None and search.best is not self.best:
            self._judge(search.best.device_of)

    def run(self, width: int, rounds: float) -> None:
        """Find prices, then walk in rounds of more and more vectors."""
        prices, searching = self._prices(), True
        most = max(width, MOST_KEPT // len(self.network.steps.compute))
        while prices and not self.proved and not self.budget.spent:
            if self.rounds >= rounds:
                break
            # For plans, as long as that finds any, then for the bound.
            for lower in (False, True) if searching else (True,):
                limit, before = self.value_s * (1.0 - BETTER), self.value_s
                found = walk(self.network, prices, limit, width, self.budget, lower=lower)
                if found is None:
                    return
                self._note(found, limit, proves=lower or not found.merged)
                if not lower:
                    searching = self.value_s < before or self.rounds < SURE_ROUNDS
                if not found.merged:
                    break
            self.rounds += 1
            if found is None or not found.merged or width >= most:
                break
            width = min(4 * width, most)

    def _prices(self) -> list[Priced]:
        """Look for prices; their cheapest placements are plans to judge, too."""
        part = self.budget.share(0.3)
        tried = best_prices(self.network, part, ROUNDS_OF_PRICES)
        if not tried:
            return []
        if tried[0].bound_s == inf:
            self.infeasible = "no placement respects devices, colocation, blocks and links (proved by modular-split)"
            return []
        self._raise(tried[0].bound_s)
        for p in tried:
            self._try(p.place)
        return _apart(tried, MOST_PRICES)

    def _note(self, found: Walk, limit: float, *, proves: bool) -> None:
        """Judge what the best vectors stand for; learn a bound from what is left."""
        for rank in range(min(TRACED, len(found.values))):
            self._try(found.place(rank))
        if not proves:
            return
        least = float(found.values[0]) if len(found.values) else inf
        if least == inf and limit == inf:
            self.infeasible = "no placement respects devices, colocation, order, links and memory (proved by vectors)"
            return
        self._raise(rounded_down(min(least, limit)))

    def _raise(self, bound_s: float) -> None:
        self.bound_s = max(self.bound_s, min(bound_s, rounded_down(self.value_s)))
        self.on_progress(Progress(NAME, self.value_s, self.bound_s, self.budget.elapsed_s))

    def _try(self, place: npt.NDArray[np.int32]) -> None:
        """Keep the placement of the steps' groups if it is a better plan."""
        if (place < 0).any():
            return
        self._judge(place[self.network.step_of][loads_of(self.problem).unit_of])

    def _judge(self, device: npt.NDArray[np.int32]) -> None:
        made = Provenance(NAME, None, "", {"modules": len(self.network.cuts), "rounds": self.rounds})
        plan = plan_for(self.problem, device, provenance=made)
        if plan is not None and plan.value_s < self.value_s:
            self.best = plan


def _apart(tried: list[Priced], most: int) -> list[Priced]:
    """Take the best prices, and those least like any taken before among the ones whose bound is not much worse."""
    good = [p for p in tried if p.bound_s >= GOOD * tried[0].bound_s]
    taken = good[:1]
    while len(taken) < min(most, len(good)):
        taken.append(max(good, key=lambda p: min(float(np.abs(p.price - q.price).max()) for q in taken)))
    return taken
