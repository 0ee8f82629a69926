"""Copies by column generation: divided copies rounded to whole ones, and the best shares of those."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from math import inf

import numpy as np
import numpy.typing as npt

from placewright._kernel.priced_moves import descend_priced
from placewright.algorithm import Budget, OnProgress, Progress, ignore
from placewright.bounds.throughput.cut_program import CutProgram, Divided, too_large
from placewright.loads import loads_of
from placewright.one_copy import one_copy, throughput_of
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result
from placewright.rounding import rounded_down
from placewright.solvers.throughput.mixture import Mixture, Pool
from placewright.solvers.throughput.priced import Priced

__all__ = ["Copies"]

RANDOM_ORDERS = 12
"""Of more than four devices, along which a solution is cut too."""

MOST_CUTS = 64
"""Copies that are cut from one solution along one order."""

DESCENTS = 8
"""Rounds of one descent."""


@dataclass(frozen=True, slots=True)
class Copies:
    """Mix copies of the network that are cut from a linear program of divided ones.

    1. The *program of divided copies* (:class:`placewright.bounds.throughput.cut_program.CutProgram`) gives shares
       x[k, i] of each unit by device, and the bound ``fractional-cuts``.
    2. *Cutting*: for an order of the devices and a height h in [0, 1), each unit goes to the first device of the order
       up to which its shares sum to more than h. Over all h these copies have the shares x, so their computing is that
       of the program; with two devices their transfers are too, since the loads are cuts and the Lovasz extension of a
       cut is its average over heights. With more devices, or under contiguity, an order says what is lost.
    3. Where copies are contiguous, the program is solved again for orders of the devices along which no unit has less
       before a device than its readers: heights then give contiguous copies.
    4. *Mixing*: a linear program finds the best shares of all copies met; where memory binds or weights are
       synchronised, sets of copies are searched (:class:`placewright.solvers.throughput.mixture.Pool`).
    5. *Pricing*: runs of units, and single ones, are moved while that lowers the sum of prices times loads; what is
       found is mixed again, until nothing is found.

    Guarantee: never worse than the incumbent; with two devices, without contiguity, memory limits and synchronisation
    optimal, and proved so. The bound: of ``fractional-cuts``. A budget's iterations are rounds of pricing.

    Complexity: linear programs of messages x devices^2 variables.
    Source: ours; data and model parallelism together are DiviML's question (arXiv 2308.00127).
    When to use: for up to some tens of unlike devices, inference or training.
    """

    rounds: int = 40

    def supports(self, problem: Problem) -> str | None:
        """Tell why a problem is out of reach; ``None`` when it isn't."""
        return too_large(problem)

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Improve on ``incumbent`` and on the bound."""
        begun = budget.elapsed_s
        if self.supports(problem) is not None or not problem.allowed.any(axis=1).all():
            return Result(incumbent, solver="copies")
        search = _Search(problem, budget, rng, incumbent, on_progress)
        search.start()
        most = self.rounds if budget.iterations is None else budget.iterations
        for _ in range(most):
            if budget.spent or search.closed or not search.price():
                break
        plan = search.plan()
        bounds = {"fractional-cuts": search.lower_s} if search.lower_s > 0.0 else {}
        return Result(plan, search.lower_s, "", budget.elapsed_s - begun, "copies", bounds)


class _Search:
    """What is known: copies, the choice among them, and the bound."""

    def __init__(
        self,
        problem: Problem,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None,
        on_progress: OnProgress,
    ) -> None:
        self.problem, self.budget, self.rng, self.incumbent = problem, budget, rng, incumbent
        self.on_progress, self.pool = on_progress, Pool(problem)
        self.loads = loads_of(one_copy(problem))
        self.network = Priced(problem)
        self.lower_s = 0.0
        n, _D = problem.times.processing_s.shape
        self.numbers: list[int] = []
        self.mixture = Mixture(inf, np.zeros(0), np.zeros(0))
        for copy in () if incumbent is None else incumbent.copies:
            number = self.pool.add(copy.device_of)
            if number is not None:
                self.numbers.append(number)
        if self.numbers:
            self.mixture = self.pool.mixed(self.numbers)
        for i in np.flatnonzero(problem.allowed.all(axis=0)).tolist():
            self.pool.add(np.full(n, i, dtype=np.int32))

    @property
    def closed(self) -> bool:
        """Whether the bound is met."""
        return bool(self.numbers) and self.mixture.value_s <= self.lower_s * (1.0 + 1e-9)

    def start(self) -> None:
        """Solve the program of divided copies, for orders too where copies are contiguous, and mix."""
        program = CutProgram(self.problem)
        divided = program.solve(self.budget, 0.4)
        if divided is not None:
            self.lower_s = rounded_down(divided.lower_bound_s)
            orders = list(self._orders(divided))
            for order in orders:
                self._cut(divided, order)
        self.mix()
        if divided is None or throughput_of(self.problem).contiguity != "contiguous" or self.closed:
            return
        for k, order in enumerate(orders):
            if self.budget.spent or self.closed:
                break
            along = CutProgram(self.problem, order).solve(self.budget, 0.5 / (len(orders) - k))
            if along is not None:
                self._cut(along, order)
                self.mix()

    def _orders(self, divided: Divided) -> Iterator[tuple[int, ...]]:
        """Orders of the devices: all of a few, else by where their units are in the network, and random ones."""
        used = np.flatnonzero(divided.shares.sum(axis=0) > 1e-9)
        if not (divided.shares.sum(axis=1) > 0.5).all():  # not solved
            return
        if len(used) <= 4:
            yield from permutations(used.tolist())
            return
        place = np.arange(len(divided.shares)) @ divided.shares[:, used] / divided.shares[:, used].sum(axis=0)
        ahead = used[np.argsort(place, kind="stable")]
        yield tuple(ahead.tolist())
        yield tuple(ahead[::-1].tolist())
        for _ in range(RANDOM_ORDERS):
            yield tuple(self.rng.permutation(used).tolist())

    def _cut(self, divided: Divided, order: tuple[int, ...]) -> None:
        """Take in the copies of heights between those at which a unit changes its device."""
        up_to = np.cumsum(divided.shares[:, list(order)], axis=1)
        heights = np.unique(np.round(np.clip(up_to, 0.0, 1.0), 9))
        heights = np.unique(np.concatenate([[0.0], heights[heights < 1.0 - 1e-9], [1.0]]))
        middles = 0.5 * (heights[1:] + heights[:-1])
        if len(middles) > MOST_CUTS:
            width = np.argsort(heights[:-1] - heights[1:], kind="stable")[:MOST_CUTS]
            middles = middles[np.sort(width)]
        for height in middles.tolist():
            first = np.minimum((up_to <= height).sum(axis=1), len(order) - 1)
            self.pool.add(self.loads.devices_of(np.array(order, dtype=np.int32)[first]))

    def mix(self) -> bool:
        """Choose anew among all copies; whether that is better."""
        if not self.pool.columns:
            return False
        start = self.numbers or [int(self.pool.loads.max(axis=1).argmin())]
        before = self.mixture.value_s
        self.numbers, self.mixture = self.pool.best(start, self.budget)
        better = self.mixture.value_s < before * (1.0 - 1e-9)
        if better:
            self.on_progress(Progress("copies", self.mixture.value_s, self.lower_s, self.budget.elapsed_s))
        return better

    def price(self) -> bool:
        """Look for copies of less priced load, from those in use and those near; whether the mixture is better."""
        prices, before = self.mixture.prices, len(self.pool.columns)
        priced = self.pool.loads @ prices
        order = np.argsort(priced, kind="stable")[:4].tolist()
        for k in dict.fromkeys([*self.numbers[:8], *order]):
            if self.budget.spent:
                break
            self._descend(self.pool.columns[k].device_of, prices)
        return len(self.pool.columns) > before and self.mix()

    def _descend(self, device_of: npt.NDArray[np.int32], prices: npt.NDArray[np.float64]) -> None:
        network = self.network.at(prices)
        device = np.zeros(self.loads.n_units, dtype=np.int32)
        device[self.loads.unit_of] = device_of
        if descend_priced(network, device, DESCENTS) > 0.0:
            self.pool.add(self.loads.devices_of(device))

    def plan(self) -> Plan | None:
        """Return the better of the mixture and the incumbent."""
        if not self.numbers:
            return self.incumbent
        plan = self.pool.plan(self.numbers, self.mixture, Provenance("copies"))
        if plan is None or (self.incumbent is not None and self.incumbent.value_s <= plan.value_s):
            return self.incumbent
        return plan
