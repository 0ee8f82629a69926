"""A genetic algorithm on placement and order."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from placewright._kernel.genetic import Population, appraise, breed, scatter
from placewright._kernel.schedule import decode, workspace
from placewright.algorithm import Budget, OnProgress, Progress, ignore
from placewright.arrays import arrays_of
from placewright.evaluate import plan_for
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.makespan.start import limits_of, starting_placement

__all__ = ["Genetic"]

GENERATIONS = 1_000
"""Generations of a search that has no limit of its own."""

MOST_GENES = 4_000_000
"""Operators times chromosomes: larger networks get a smaller population, of at least ``FEWEST``."""

FEWEST = 16

A_LOOK_S = 0.1
"""Seconds between two looks at the budget while a generation is judged."""


@dataclass(frozen=True, slots=True)
class Genetic:
    r"""Breed placements and orders (Wang, Siegel, Roychowdhury, Maciejewski, J. Parallel Distrib. Comput. 47, 1997).

    Minimises the makespan. A chromosome has two strings, as published: the *matching* string names a device for every
    operator, the *scheduling* string is a topological order of all. Both together make a schedule: devices take their
    operators in that order, and transfers overlap with computing. A generation is

    1. *selection* by a roulette wheel on ranks: the chance of rank r is proportional to :math:`R^{-r}`, R = 1 + 1/P;
    2. *crossover* of random pairs. Scheduling strings are cut at one random place, and what is behind it is put in the
       sequence that the other parent has it in; of matching strings the parts behind one random place are exchanged.
       Either keeps orders topological and devices allowed;
    3. *mutation*: an operator goes to another place in the order between the operators that it depends on and those
       that depend on it; an operator goes to a random device;
    4. *judging*, and elitism: the best chromosome so far replaces the worst one when it has got lost.

    The first population holds the plan of a heuristic (the incumbent) and random chromosomes.

    Where it differs, or the paper leaves a choice: the scheduling string of a random chromosome takes any ready
    operator next; colocation units have one gene, and operators keep to their allowed devices; transfers queue under
    the problem's contention when they are made (or with their first reader, if that suits the incumbent better);
    chromosomes beyond the memory pay for it while searching and are never returned; the budget alone ends the search,
    where the paper stops after a number of generations without progress. Networks of more than 20,000 operators are
    given fewer chromosomes.

    Any-time. The budget's ``iterations`` counts generations (default: 1,000, or the seconds).

    Guarantee: never worse than its incumbent; no bound.
    Complexity: O(P (n + E)) a generation.
    Source: Wang, Siegel, Roychowdhury, Maciejewski, J. Parallel Distrib. Comput. 47, 1997.
    When to use: to compare with a genetic algorithm.

    Attributes
    ----------
    population : int
        Chromosomes P, at least 2.
    crossover, mutation : float
        Chance of each pair to be crossed, and of each chromosome to be mutated, for each of the two strings.
    target_s : float
        Stop as soon as the value is at or below it (a proven lower bound).

    Examples
    --------
    Two operators that each take 1 s on their own device, 4 s on the other: 1 s in parallel.

    >>> from placewright import Cluster, Device, Link, Operator, OperatorGraph
    >>> two = Cluster([Device("d0"), Device("d1")], [Link(0.0, 1.0, link_class="same-host")])
    >>> problem = Problem(OperatorGraph([Operator("a"), Operator("b")]), two, [[4.0, 1.0], [1.0, 4.0]])
    >>> result = Genetic(population=8)(problem, budget=Budget(iterations=20), rng=np.random.default_rng(0))
    >>> result.value_s, result.require_plan().device_of.tolist()
    (1.0, [1, 0])
    """

    population: int = 200
    crossover: float = 0.4
    mutation: float = 0.1
    target_s: float = 0.0

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Breed until the budget is spent or the value reaches ``target_s``."""
        begun = budget.elapsed_s
        if not arrays_of(problem).allowed.any(axis=1).all():
            return Result(incumbent, solver="genetic")
        herd = _Herd(problem, incumbent, self.population, rng)
        total = budget.iterations
        if total is None and not np.isfinite(budget.seconds):
            total = GENERATIONS
        generation, reported = 0, np.inf
        while True:
            judged = herd.judge(budget)
            if herd.best_s[0] < reported:
                reported = float(herd.best_s[0])
                on_progress(Progress("genetic", reported, 0.0, budget.elapsed_s))
            if not judged or reported <= self.target_s or generation == total:
                break
            herd.breed(self.crossover, self.mutation, rng)
            generation += 1
        best = incumbent
        if np.isfinite(herd.best_s[0]):
            provenance = Provenance("genetic", None, "", {"generations": generation})
            found = plan_for(problem, herd.best_device, order=herd.best_order, provenance=provenance)
            if found is not None and (best is None or found.value_s < best.value_s):
                best = found
        return Result(best, solver="genetic", runtime_s=budget.elapsed_s - begun)


class _Herd:
    """The population of one search, its elite, and the best chromosome so far that fits."""

    def __init__(self, problem: Problem, incumbent: Plan | None, size: int, rng: np.random.Generator) -> None:
        a, n = arrays_of(problem), len(problem.graph)
        self.g, self.limits, self.w, self.tail = a.network, limits_of(a), workspace(a.network), np.zeros(n)
        device, order = starting_placement(problem), np.arange(n, dtype=np.int32)
        if incumbent is not None:
            made = incumbent.schedule
            device = incumbent.device_of.copy()
            order = np.lexsort((np.arange(n), made.finish_s, made.start_s)).astype(np.int32)
        by_maker, by_reader = (decode(self.g, order, device, k, self.tail, np.inf, self.w) for k in (False, True))
        self.by_reader = bool(by_reader < by_maker)
        self.best_device, self.best_order, self.best_s = device.copy(), order.copy(), np.full(1, np.inf)
        size = min(size, max(FEWEST, MOST_GENES // n))
        self.rows, self.children = _empty(size, n), _empty(size, n)
        self.rows.device[0], self.rows.order[0] = device, order
        scatter(self.g, self.limits, self.rows, 1, rng)
        self.elite = device, order, np.inf
        self.rate = 100.0

    def judge(self, budget: Budget) -> bool:
        """Bring the costs up to date; False when the budget was spent before all were."""
        size, first = len(self.rows.cost), 0
        best = self.best_device, self.best_order, self.best_s
        while first < size:
            if budget.spent:
                return False
            last = min(size, first + max(1, int(self.rate * A_LOOK_S)))
            clock = time.perf_counter()
            appraise(self.g, self.limits, self.rows, first, last, self.by_reader, self.tail, self.w, *best)
            measured = (last - first) / max(1e-6, time.perf_counter() - clock)
            self.rate = min(2.0 * self.rate, 0.5 * (self.rate + measured))
            first = last
        return True

    def breed(self, crossover: float, mutation: float, rng: np.random.Generator) -> None:
        """Replace the population by its children, after the elite has taken the place of the worst if it was lost."""
        rows = self.rows
        leader = int(np.argmin(rows.cost))
        if rows.cost[leader] <= self.elite[2]:
            self.elite = rows.device[leader].copy(), rows.order[leader].copy(), float(rows.cost[leader])
        else:
            last = int(np.argmax(rows.cost))
            rows.device[last], rows.order[last], rows.cost[last] = self.elite
        breed(self.g, self.limits, rows, self.children, 1.0 + 1.0 / len(rows.cost), crossover, mutation, rng)
        self.rows, self.children = self.children, rows


def _empty(size: int, n: int) -> Population:
    return Population(
        np.zeros((size, n), dtype=np.int32),
        np.zeros((size, n), dtype=np.int32),
        np.full(size, np.inf),
        np.ones(size, dtype=np.bool_),
    )
