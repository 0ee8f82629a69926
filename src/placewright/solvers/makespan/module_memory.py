"""Memory that couples modules: prices on bytes, the placements of modules that can matter, labels along the chain.

Let T_k(P) be the least time of a placement P of module k, and m_k(P) the bytes of weights and KV cache that it puts on
each device; an exit counts in the module that it ends. All of a device's modules hold their bytes all the time, so any
plan has sum_k m_k <= C, and for prices mu >= 0

    makespan = sum_k T_k >= L(mu) = min over paths of sum_k (least over P of T_k(P) + mu m_k(P)) - mu C.

*Placements that matter.* Let r be the least that a path through module k with some devices at its ends costs at the
prices mu, less mu C and less what the module itself costs there. A placement P of it in a plan of at most L(mu) + s has
T_k(P) + mu m_k(P) <= L(mu) + s - r. All that have that are listed, as far as units with weights go: the least that a
search finds with these given, the others free, stands for T_k(P).

*Labels* join them: :func:`placewright.solvers.makespan.module_labels.joined_labels`. What they find is the least sum
of the bounds, or no plan is below L(mu) + s, or below the least of what was dropped: the bound is the least of the
three. Where the placements found can't be scheduled in the time that their bounds say, they are solved exactly, which
raises the bounds, and joined again. So, with memory for weights and KV cache alone, and given time, it is exact.

*Live tensors* are not simply additive, but time separates the modules: at an instant only those of one module are
there, and those of a cut while it runs. So a device needs what it holds and the largest peak of any module. While an
operator runs that takes time, its inputs and outputs are live on its device, and so is what comes from above it for
below it where both are on one device: that is the peak in the labels, a lower bound of the real one. Plans are judged
by the real one; where one does not fit, the peaks of its placements are measured, and the labels are joined once more,
for a plan only. What may be left of the gap then is the difference between these peaks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import inf
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from placewright.algorithm import Algorithm, Budget
from placewright.evaluate import evaluate, plan_for
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.rounding import rounded_down
from placewright.solvers.makespan.module_labels import Column, joined_labels
from placewright.solvers.makespan.module_prices import ChainPrices, best_prices
from placewright.solvers.makespan.module_steps import StepTable, joined

__all__ = ["within_memory"]

Floats: TypeAlias = npt.NDArray[np.float64]

FIRST_SLACK, GROWTH = 1e-3, 4.0
"""Of the bound: how much more the first placements listed may cost, and by how much that grows."""

NARROWEST, GROWTH_OF_WIDTH, WIDEST = 30, 10, 3_000
"""Labels of one kind of state, from plans that are found soon to a proof."""

PRICES_SHARE = 0.4
"""Of the budget, for the choice of prices."""

MOST_JOINED = 20
"""Most times that labels are joined because placements turned out to take longer, or more memory, than was known."""

SOLVED_S = 2.0
"""Most seconds for a module whose placement is given."""

CLOSE = 1e-9
"""Relative gap at which it counts as solved."""


def within_memory(
    table: StepTable, inner: Algorithm, value_s: float, budget: Budget, rng: np.random.Generator
) -> Iterator[tuple[Plan | None, float]]:
    """Yield plans of the chain's problem and lower bounds, until they meet or the budget is spent.

    Parameters
    ----------
    table : StepTable
        Its bounds hold without regard to memory.
    inner : Algorithm
        Solves a module whose placement is given.
    value_s : float
        Nothing at or above it is looked for.
    """
    p = ChainPrices(table)
    bound, prices, cost = -inf, np.zeros(0), np.zeros(0)
    for better in best_prices(p, value_s, budget.share(PRICES_SHARE)):
        bound, prices, cost = better
        yield None, bound
    if not np.isfinite(bound):
        return
    search = _Search(p, prices, cost, bound, inner, budget, rng)
    slack = FIRST_SLACK * max(bound, FIRST_SLACK * p.scale_s)
    width, listed = NARROWEST, -1.0
    while not budget.spent and bound < value_s:
        limit = min(value_s, search.bound_s + slack)
        if slack != listed and not search.list_columns(limit - search.bound_s):
            return
        listed, fits = slack, np.isfinite(value_s)
        for plan, proved in search.join(limit, width):
            if plan is not None:
                value_s, fits = min(value_s, plan.value_s), True
            bound = max(bound, rounded_down(proved))
            yield plan, bound
        complete = search.dropped_s >= limit
        if limit >= value_s if complete else width >= WIDEST and fits:
            return
        if complete or not fits:
            slack = slack * GROWTH if slack < p.scale_s + bound else inf
        if not complete:
            width = min(WIDEST, GROWTH_OF_WIDTH * width)


@dataclass(eq=False)
class _Search:
    """Listing and joining at given prices."""

    p: ChainPrices
    prices: Floats
    cost: Floats
    bound_s: float
    inner: Algorithm
    budget: Budget
    rng: np.random.Generator
    columns: dict[int, Column] = field(default_factory=dict)
    plans: dict[tuple[int, bytes], Plan] = field(default_factory=dict)
    proved: dict[tuple[int, bytes], float] = field(default_factory=dict)
    peaks: dict[tuple[int, bytes], Floats] = field(default_factory=dict)
    dropped_s: float = inf
    light_bytes: float = 0.0
    """Of all that is not listed, wherever it is."""

    def __post_init__(self) -> None:
        self.before, self.behind = self.p.chain.distances(self.cost)
        room, limited = self.p.room, self.p.limited
        self.due_s = float((self.prices[limited] * room[limited]).sum()) * (1.0 + 1e-12)
        self.quantum_s = max(self.bound_s, 1e-6 * self.p.scale_s) * 2.0**-40

    def list_columns(self, slack_s: float) -> bool:
        """List the placements of all modules that a plan within the slack may have; false if that takes too long."""
        chain = self.p.chain
        through = np.full(len(self.cost), inf)
        for k, s in enumerate(chain.steps):
            np.minimum.at(through, s.key, self.before[k][s.row] + self.cost[s.key] + self.behind[k + 1][s.column])
        limit = (self.bound_s + slack_s + self.due_s) * (1.0 + 1e-9)
        for key in np.flatnonzero((through <= limit) & np.isfinite(through)).tolist():
            if self.budget.spent:
                return False
            column = self.p.columns(key, self.prices, limit - (through[key] - self.cost[key]))
            if column is None:
                return False
            for at in range(len(column.device)) if self.proved else ():
                column.low_s[at] = max(column.low_s[at], self.proved.get(self._name(key, column, at), 0.0))
            column.low_s = np.floor(column.low_s / self.quantum_s) * self.quantum_s
            self.columns[key] = column
        loose = {key: float(self.p.modules[key].resident[~c.listed].sum()) for key, c in self.columns.items()}
        self.light_bytes = sum(max((loose.get(k, 0.0) for k in s.key.tolist()), default=0.0) for s in chain.steps)
        return True

    def join(self, limit_s: float, width: int) -> Iterator[tuple[Plan | None, float]]:
        """Join, schedule, and solve exactly what takes longer than its bound says, until nothing does."""
        proved, columns = -inf, self.columns
        for _ in range(MOST_JOINED):
            found = joined_labels(
                self.p.chain,
                columns,
                self.p.capacity,
                self.prices[self.p.class_of],
                self.behind,
                self.due_s,
                limit_s,
                width,
                self.budget,
            )
            if self.budget.spent:
                return
            if columns is self.columns:
                self.dropped_s = found.dropped_s
                proved = min(found.time_s, found.dropped_s, limit_s)
            keys = [int(s.key[at]) for s, (at, _) in zip(self.p.chain.steps, found.path, strict=bool(found.path))]
            plans = [self._plan(key, at) for key, (_, at) in zip(keys, found.path, strict=True)]
            whole = [plan for plan in plans if plan is not None]
            plan = (
                joined(self.p.chain, [at for at, _ in found.path], whole)
                if plans and len(whole) == len(plans)
                else None
            )
            yield plan, proved
            if not found.path:
                return
            used = dict(zip(keys, found.path, strict=True))
            if plan is not None:
                solved = [columns is self.columns and self._solve(key, at) for key, (_, at) in used.items()]
                if not any(solved):
                    return
                continue
            measured = [self._measure(key, at) for key, (_, at) in used.items()]
            if columns is not self.columns and not any(measured):
                return
            columns = {key: self._measured(key, column) for key, column in self.columns.items()}

    def _name(self, key: int, column: Column, at: int) -> tuple[int, bytes]:
        """Name a placement of what is listed."""
        return key, np.where(column.listed, column.device[at], -1).tobytes()

    def _plan(self, key: int, at: int) -> Plan | None:
        column = self.columns[key]
        name = self._name(key, column, at)
        if name not in self.plans:
            made = plan_for(self.p.table.problem(key), column.device[at])
            if made is None:
                return None
            self.plans[name] = made
        return self.plans[name]

    def _solve(self, key: int, at: int) -> bool:
        """Solve a module whose placement is given, if that is not known; say whether its bound or plan got better."""
        column, one = self.columns[key], self.p.table.problem(key)
        name = self._name(key, column, at)
        plan = self.plans[name]
        if plan.value_s <= column.low_s[at] * (1.0 + CLOSE) or name in self.proved:
            return False
        rows = np.flatnonzero(column.listed)
        only = one.times.processing_s.copy()
        only[rows] = inf
        only[rows, column.device[at, rows]] = one.times.processing_s[rows, column.device[at, rows]]
        given = Problem(one.graph, one.cluster, replace(one.times, processing_s=only), one.objective)
        part = self.budget.share(1.0, at_most_s=SOLVED_S)
        solved = self.inner(given, budget=part, rng=self.rng, incumbent=plan)
        self.proved[name] = max(float(column.low_s[at]), solved.lower_bound_s)
        column.low_s[at] = np.floor(self.proved[name] / self.quantum_s) * self.quantum_s
        if solved.plan is not None and solved.plan.value_s < plan.value_s:
            self.plans[name] = solved.plan
        return True

    def _measure(self, key: int, at: int) -> bool:
        """Take note of what is really live in the plan of a placement; say whether that was unknown."""
        column = self.columns[key]
        name = self._name(key, column, at)
        if name in self.peaks:
            return False
        peak = np.full(len(self.p.capacity), inf)
        plan = self.plans.get(name)
        if plan is not None:
            uses = evaluate(self.p.table.problem(key), plan.device_of, schedule=plan.schedule).devices
            peak = np.maximum(column.peak[at], [float(use.activation_bytes) for use in uses])
            # The bytes of what is not listed count as live, and so do those of all other modules.
            loose = np.where(column.listed, 0.0, self.p.modules[key].resident)
            peak += np.bincount(plan.device_of, weights=loose, minlength=len(peak)) + self.light_bytes
        self.peaks[name] = peak
        return True

    def _measured(self, key: int, column: Column) -> Column:
        """Replace peaks by those measured: for plans alone, since another schedule may need less."""
        peak = [self.peaks.get(self._name(key, column, at), row) for at, row in enumerate(column.peak)]
        return replace(column, peak=np.array(peak).reshape(column.peak.shape))
