"""Memory that couples modules: prices on bytes, the placements of modules that can matter, labels along the chain.

Let T_k(P) be the least time of a placement P of module k, and m_k(P) the bytes of weights and KV cache that it puts on
each device; an exit counts in the module that it ends. All of a device's modules hold their bytes all the time, so any
plan has sum_k m_k <= C, and for prices mu >= 0

    makespan = sum_k T_k >= L(mu) = min over paths of sum_k (least over P of T_k(P) + mu m_k(P)) - mu C.

*Placements that matter.* Let r be the least that a path through module k with some devices at its ends costs at the
prices mu, less mu C and less what the module itself costs there. A placement P of it in a plan of at most L(mu) + s has
T_k(P) + mu m_k(P) <= L(mu) + s - r. All that have that are listed; the bound of T_k(P) that a search with all devices
given yields stands for T_k(P).

*Labels* join them: :func:`placewright.solvers.makespan.module_labels.joined_labels`. What they find is the least sum
of the bounds, or no plan is below L(mu) + s, or below the least of what was dropped: the bound is the least of the
three. Where the placements found can't be scheduled in the time that their bounds say, they are solved exactly, which
raises the bounds, and joined again. So, with memory for weights and KV cache alone, and given time, it is exact.

*Live tensors* are not simply additive, but time separates the modules: at an instant only those of one module are
there, and those of a cut while it runs. So a device needs what it holds and the largest peak of any module. While an
operator that takes time runs on a device, its inputs and outputs are live there: that is the peak in the labels, a
lower bound of the real one. Plans are judged by the real one; where one does not fit, room is set aside for it, and the
labels are joined once more, for a plan only. What may be left of the gap then is the difference between these peaks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import inf
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from placewright._kernel.module_columns import placements_within
from placewright._kernel.span_search import least_time, scratch_for
from placewright.algorithm import Algorithm, Budget
from placewright.arrays import arrays_of
from placewright.bounds.makespan.span import Reach, Span, alike_devices, span_between
from placewright.evaluate import evaluate, plan_for
from placewright.highs import new_highs
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.rounding import rounded_down
from placewright.solvers.makespan.module_labels import Column, joined_labels
from placewright.solvers.makespan.module_steps import StepTable, joined

__all__ = ["within_memory"]

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int32]

NODES, NARROW = 400, 40
"""Most nodes of one search at given prices, and operators up to which there is more than one."""

ROUNDS = 40
"""Most choices of prices."""

NEAR = 1e-6
"""Relative gain of the bound that is still expected when prices are called the best."""

FIRST_SLACK, GROWTH = 1e-3, 4.0
"""Of the bound: how much more the first placements listed may cost, and by how much that grows."""

MOST_COLUMNS, MOST_NODES = 20_000, 400_000
"""Most placements of a module with fixed devices, and nodes of the search for them."""

PRICES_SHARE = 0.4
"""Of the budget, for the choice of prices."""

SOLVED_S = 2.0
"""Most seconds for a module whose placement is given."""

CLOSE = 1e-9
"""Relative gap at which it counts as solved."""

FREE: Floats = np.zeros((0, 0))


@dataclass(frozen=True, eq=False)
class _Priced:
    """A module with fixed devices, ready to be searched at prices.

    Attributes
    ----------
    held : (U,) array
        Bytes of each unit: weights and KV cache of all but the entry.
    resident, live : (n,) arrays
        The same of each operator, and the bytes that are live while it runs.
    """

    span: Span
    held: Floats
    resident: Floats
    live: Floats


class _Prices:
    """The Lagrangian of a chain of modules."""

    def __init__(self, table: StepTable) -> None:
        self.table, self.chain = table, table.chain
        problem = self.chain.problem
        self.alike = alike_devices(problem)
        self.class_of = np.unique(self.alike, return_inverse=True)[1]
        self.capacity = arrays_of(problem).capacity
        self.room = np.bincount(self.class_of, weights=self.capacity)
        self.limited = np.flatnonzero(np.isfinite(self.room))
        self.live = _live_bytes(problem)
        self.modules = [self._priced(key) for key in range(len(self.chain.fixed))]

    def _priced(self, key: int) -> _Priced:
        problem, one = self.chain.problem, self.table.problem(key)
        module = self.chain.modules[self.chain.fixed[key][0]]
        span = span_between(one, None, None, Reach.of(one).between(None, None))
        own = list(module.operators)
        resident, live = problem.resident_bytes[own].astype(np.float64), self.live[own]
        if module.entry is not None:
            resident[0] = live[0] = 0.0
        held = np.add.reduceat(resident[span.member], span.unit_ptr[:-1])
        return _Priced(span, held, resident, live)

    def unit_prices(self, key: int, prices: Floats) -> Floats:
        """(U, D) what the units pay; inf where they may not run."""
        p = self.modules[key]
        return np.where(p.span.allowed, p.held[:, None] * prices[self.class_of][None, :], inf)

    def at(self, prices: Floats) -> tuple[float, Floats, list[int], float, Floats]:
        """Value at prices (C,) of bytes; of each key the least cost; the shortest path, its time and bytes by class."""
        cost, times = np.full(len(self.modules), inf), np.zeros(len(self.modules))
        held = np.zeros((len(self.modules), len(self.room)))
        for key, p in enumerate(self.modules):
            if self.table.low[key] == inf:
                continue
            price = self.unit_prices(key, prices)
            nodes = NODES if len(p.resident) <= NARROW else 1
            g = p.span.network
            value, _, device = least_time(
                g, p.span.unit_ptr, p.span.member, price, FREE, 1.0, self.alike, inf, nodes, scratch_for(g)
            )
            cheapest = np.array([int(row.argmin()) for row in price])
            unit_of = np.repeat(np.arange(len(cheapest)), np.diff(p.span.unit_ptr))[np.argsort(p.span.member)]
            device = np.where(device >= 0, device, cheapest[unit_of])
            held[key] = np.bincount(self.class_of[device], weights=p.resident, minlength=len(self.room))
            paid = float((held[key] * prices).sum())
            # No placement takes less than the module does without prices, nor pays less than the cheapest.
            cost[key] = max(float(value), float(self.table.low[key]) + float(price.min(axis=1).sum()))
            times[key] = max(0.0, cost[key] - paid)
        total, path = self.chain.shortest(cost)
        keys = [int(s.key[at]) for s, at in zip(self.chain.steps, path, strict=False)]
        due = float((prices[self.limited] * self.room[self.limited]).sum()) * (1.0 + 1e-12)
        return rounded_down(total) - due, cost, keys, float(times[keys].sum()), held[keys].sum(axis=0)

    def columns(self, key: int, prices: Floats, limit_s: float) -> Column | None:
        """All placements of a key that cost at most ``limit_s``; ``None`` when they are too many."""
        p = self.modules[key]
        if len(p.resident) > NARROW:
            return None
        g = p.span.network
        price = self.unit_prices(key, prices)
        count, device, time_s = placements_within(
            g, p.span.unit_ptr, p.span.member, price, limit_s, MOST_COLUMNS, MOST_NODES, scratch_for(g)
        )
        if count < 0:
            return None
        D = len(self.capacity)
        held, peak = np.zeros((count, D)), np.zeros((count, D))
        for i in range(D):
            here = device == i
            held[:, i] = (here * p.resident).sum(axis=1)
            peak[:, i] = (here * p.live).max(axis=1)
        return Column(device, np.maximum(time_s, float(self.table.low[key])), held, peak)


def _best_prices(p: _Prices, value_s: float, budget: Budget) -> Iterator[tuple[float, Floats, Floats]]:
    """Yield bound, prices and least costs, better and better.

    Each price's shortest path is a cut: at prices mu nothing is above its time + sum of mu x (bytes - room). The next
    prices are the highest point under all cuts (Kelley 1960), which a small linear program finds; whatever it says, the
    bound is computed anew from the prices.
    """
    prices, best = np.zeros(len(p.room)), -inf
    total = float(sum(p.chain.problem.resident_bytes))
    cuts: list[tuple[float, Floats]] = []
    dear = 0.0
    for _ in range(ROUNDS):
        bound, cost, keys, time_s, held = p.at(prices)
        if not keys:
            return
        if not dear:
            dear = 1e3 * max(time_s, 1e-300) / max(1.0, total)
        if bound > best:
            best = bound
            yield bound, prices, cost
        if best >= value_s or budget.spent:
            return
        cuts.append((time_s, (held - p.room)[p.limited]))
        found = _highest(cuts, dear, budget.left_s)
        if found is None or found[0] <= best * (1.0 + NEAR):
            return
        prices = np.zeros(len(p.room))
        prices[p.limited] = found[1]


def _highest(cuts: list[tuple[float, Floats]], dear: float, seconds: float) -> tuple[float, Floats] | None:
    """Maximise y such that y <= time + price x excess for all cuts."""
    import highspy

    C = len(cuts[0][1])
    unit = max(1.0, max(float(np.abs(excess).max(initial=0.0)) for _, excess in cuts))
    solver = new_highs()
    solver.setOptionValue("time_limit", max(0.1, min(seconds, 1e6)))
    infinity = highspy.kHighsInf
    solver.addVar(-infinity, infinity)
    for _ in range(C):
        solver.addVar(0.0, dear * unit)
    solver.changeColCost(0, -1.0)
    columns = np.arange(C + 1, dtype=np.int32)
    for time_s, excess in cuts:
        solver.addRow(-infinity, time_s, C + 1, columns, np.concatenate([[1.0], -excess / unit]))
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    x = np.asarray(solver.getSolution().col_value)
    return float(x[0]), np.maximum(0.0, x[1:]) / unit


def _live_bytes(problem: Problem) -> Floats:
    """(n,) what is live on an operator's device while it runs: its inputs and outputs; 0 if it may take no time."""
    live = np.zeros(len(problem.graph))
    for t in problem.graph.tensors:
        live[[t.producer, *t.readers]] += t.size_bytes
    least = np.where(problem.allowed, problem.times.processing_s, inf).min(axis=1)
    return np.where(least > 0.0, live, 0.0)


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
    p = _Prices(table)
    bound, prices, cost = -inf, np.zeros(0), np.zeros(0)
    for better in _best_prices(p, value_s, budget.share(PRICES_SHARE)):
        bound, prices, cost = better
        yield None, bound
    if not np.isfinite(bound):
        return
    search = _Search(p, prices, cost, bound, inner, budget, rng)
    slack = FIRST_SLACK * max(bound, 1e-3 * float(table.low.max(where=np.isfinite(table.low), initial=0.0)))
    while not budget.spent and bound < value_s:
        slack = min(slack, value_s - search.bound_s)
        if not search.list_columns(slack):
            return
        for plan, proved in search.join(min(value_s, search.bound_s + slack)):
            if plan is not None:
                value_s = min(value_s, plan.value_s)
            bound = max(bound, rounded_down(proved))
            yield plan, bound
        if search.dropped_s < search.bound_s + slack or search.bound_s + slack >= value_s:
            return
        slack *= GROWTH


@dataclass(eq=False)
class _Search:
    """Listing and joining at given prices."""

    p: _Prices
    prices: Floats
    cost: Floats
    bound_s: float
    inner: Algorithm
    budget: Budget
    rng: np.random.Generator
    columns: dict[int, Column] = field(default_factory=dict)
    plans: dict[tuple[int, bytes], Plan] = field(default_factory=dict)
    proved: dict[tuple[int, bytes], float] = field(default_factory=dict)
    dropped_s: float = inf

    def __post_init__(self) -> None:
        self.before, self.behind = self.p.chain.distances(self.cost)
        room, limited = self.p.room, self.p.limited
        self.due_s = float((self.prices[limited] * room[limited]).sum()) * (1.0 + 1e-12)
        self.quantum_s = max(self.bound_s, 1e-300) * 2.0**-40

    def list_columns(self, slack_s: float) -> bool:
        """List the placements of all modules that a plan within the slack may have; false if that takes too long."""
        chain = self.p.chain
        through = np.full(len(self.cost), inf)
        for k, s in enumerate(chain.steps):
            np.minimum.at(through, s.key, self.before[k][s.row] + self.cost[s.key] + self.behind[k + 1][s.column])
        limit = (self.bound_s + slack_s + self.due_s) * (1.0 + 1e-9)
        for key in np.flatnonzero(through <= limit).tolist():
            if self.budget.spent:
                return False
            column = self.p.columns(key, self.prices, limit - (through[key] - self.cost[key]))
            if column is None:
                return False
            for at, placed in enumerate(column.device):
                column.low_s[at] = max(column.low_s[at], self.proved.get((key, placed.tobytes()), 0.0))
            column.low_s = np.floor(column.low_s / self.quantum_s) * self.quantum_s
            self.columns[key] = column
        return True

    def join(self, limit_s: float) -> Iterator[tuple[Plan | None, float]]:
        """Join, schedule, and solve exactly what takes longer than its bound says, until nothing does."""
        chain, capacity = self.p.chain, self.p.capacity
        reserve = np.zeros(len(capacity))
        per_device = self.prices[self.p.class_of]
        proved = -inf
        while not self.budget.spent:
            found = joined_labels(
                chain, self.columns, capacity - reserve, per_device, self.behind, self.due_s, limit_s, self.budget
            )
            if self.budget.spent:
                return
            if not reserve.any():
                self.dropped_s = found.dropped_s
                proved = min(found.time_s, found.dropped_s, limit_s)
            if not found.path:
                yield None, proved
                return
            keys = [int(s.key[at]) for s, (at, _) in zip(chain.steps, found.path, strict=True)]
            plans = [self._plan(key, at) for key, (_, at) in zip(keys, found.path, strict=True)]
            whole = [plan for plan in plans if plan is not None]
            if len(whole) < len(plans):
                yield None, proved
                return  # live tensors alone are too many: no plan, and nothing to set aside
            steps = [at for at, _ in found.path]
            plan = joined(chain, steps, whole)
            yield plan, proved
            if plan is None:
                more = np.maximum(reserve, self._peaks(steps, whole))
                if (more <= reserve).all():
                    return
                reserve = more
                continue
            changed = False
            for key, (_, at) in dict(zip(keys, found.path, strict=True)).items():
                changed |= self._solve(key, at)
            if not changed or reserve.any():
                return

    def _plan(self, key: int, at: int) -> Plan | None:
        placed = self.columns[key].device[at]
        name = key, placed.tobytes()
        if name not in self.plans:
            made = plan_for(self.p.table.problem(key), placed)
            if made is None:
                return None
            self.plans[name] = made
        return self.plans[name]

    def _solve(self, key: int, at: int) -> bool:
        """Solve a module whose placement is given, if that is not known; say whether its bound or plan got better."""
        column, one = self.columns[key], self.p.table.problem(key)
        placed = column.device[at]
        name = key, placed.tobytes()
        plan = self.plans[name]
        if plan.value_s <= column.low_s[at] * (1.0 + CLOSE) or name in self.proved:
            return False
        only = np.full(one.times.processing_s.shape, inf)
        rows = np.arange(len(placed))
        only[rows, placed] = one.times.processing_s[rows, placed]
        given = Problem(one.graph, one.cluster, replace(one.times, processing_s=only), one.objective)
        part = self.budget.share(1.0, at_most_s=SOLVED_S)
        solved = self.inner(given, budget=part, rng=self.rng, incumbent=plan)
        self.proved[name] = max(float(column.low_s[at]), solved.lower_bound_s)
        column.low_s[at] = np.floor(self.proved[name] / self.quantum_s) * self.quantum_s
        if solved.plan is not None and solved.plan.value_s < plan.value_s:
            self.plans[name] = solved.plan
        return True

    def _peaks(self, path: list[int], plans: list[Plan]) -> Floats:
        """(D,) the most that is live on each device while a module runs, and its exit's outputs besides."""
        chain = self.p.chain
        graph, peaks = chain.problem.graph, np.zeros(len(self.p.capacity))
        for module, steps, at, plan in zip(chain.modules, chain.steps, path, plans, strict=True):
            one = self.p.table.problem(int(steps.key[at]))
            uses = evaluate(one, plan.device_of, schedule=plan.schedule).devices
            live = np.array([use.activation_bytes for use in uses], dtype=np.float64)
            if module.exit is not None:
                live[plan.device_of[-1]] += sum(graph.tensors[u].size_bytes for u in graph.outputs_of[module.exit])
            peaks = np.maximum(peaks, live[steps.turn[at]])
        return peaks
