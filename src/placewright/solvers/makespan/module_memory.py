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

from placewright._kernel.module_columns import placements_within
from placewright._kernel.schedule import Network
from placewright._kernel.span_search import least_time, scratch_for
from placewright.algorithm import Algorithm, Budget
from placewright.arrays import arrays_of
from placewright.bounds.makespan.span import Reach, alike_devices, span_between
from placewright.evaluate import evaluate, plan_for
from placewright.highs import new_highs
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.ragged import ragged
from placewright.rounding import rounded_down
from placewright.solvers.makespan.module_labels import Column, joined_labels
from placewright.solvers.makespan.module_steps import StepTable, joined
from placewright.solvers.makespan.modules import Module

__all__ = ["within_memory"]

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int32]
Live: TypeAlias = list[list[tuple[float, list[list[int]]]]]

NODES, NARROW = 400, 40
"""Most nodes of one search at given prices, and operators up to which there is more than one."""

ROUNDS = 40
"""Most choices of prices."""

NEAR = 1e-6
"""Relative gain of the bound that is still expected when prices are called the best."""

FIRST_SLACK, GROWTH = 1e-3, 4.0
"""Of the bound: how much more the first placements listed may cost, and by how much that grows."""

MOST_COLUMNS, MOST_NODES, FEW_NODES = 20_000, 400_000, 10_000
"""Most placements of a module with fixed devices, and nodes of the search for them; few: for all of its units."""

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

LIGHT = 1e-5
"""Of the smallest memory: what a unit that has no more is not listed for."""

FREE: Floats = np.zeros((0, 0))


@dataclass(frozen=True, eq=False)
class _Priced:
    """A module with fixed devices, ready to be searched at prices.

    Attributes
    ----------
    unit_ptr, member : (U+1,), (n,) arrays
        Operators of each unit, those of most bytes first.
    allowed : (U, D) array
    held : (U,) array
        Bytes of each unit: weights and KV cache of all but the entry.
    heavy : int
        How many units have bytes that count.
    alone : (n,) array
        Operators that may run on one device alone.
    resident : (n,) array
        Bytes of each operator.
    live : list of list of (float, list of list of int)
        For each operator that takes time what is live while it runs: bytes, and sets of operators of which all those of
        one must be on a device for it to be there.
    """

    network: Network
    unit_ptr: Ints
    member: Ints
    allowed: npt.NDArray[np.bool_]
    held: Floats
    heavy: int
    alone: npt.NDArray[np.bool_]
    resident: Floats
    live: Live


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
        p = np.where(problem.allowed, problem.times.processing_s, 0.0)
        self.scale_s = float(p.max(axis=1).sum()) or 1.0  # about as long as a schedule may take
        self._live: dict[int, Live] = {}
        self.modules = [self._priced(key) for key in range(len(self.chain.fixed))]

    def _priced(self, key: int) -> _Priced:
        problem, one = self.chain.problem, self.table.problem(key)
        module = self.chain.modules[self.chain.fixed[key][0]]
        span = span_between(one, None, None, Reach.of(one).between(None, None))
        resident = problem.resident_bytes[list(module.operators)].astype(np.float64)
        if module.entry is not None:
            resident[0] = 0.0
        at = self.chain.fixed[key][0]
        if at not in self._live:
            self._live[at] = _live(problem, module, one)
        held = np.add.reduceat(resident[span.member], span.unit_ptr[:-1])
        order = np.argsort(-held, kind="stable")
        rows = [span.member[span.unit_ptr[k] : span.unit_ptr[k + 1]].tolist() for k in order]
        unit_ptr, member = ragged(rows)
        heavy = int((held > LIGHT * self.capacity.min()).sum())
        alone = one.allowed.sum(axis=1) == 1
        allowed = span.allowed[order]
        return _Priced(span.network, unit_ptr, member, allowed, held[order], heavy, alone, resident, self._live[at])

    def unit_prices(self, key: int, prices: Floats) -> Floats:
        """(U, D) what the units pay; inf where they may not run."""
        p = self.modules[key]
        return np.where(p.allowed, p.held[:, None] * prices[self.class_of][None, :], inf)

    def at(self, prices: Floats) -> tuple[float, Floats, list[int], float, Floats]:
        """Value at prices (C,) of bytes; of each key the least cost; the shortest path, its time and bytes by class."""
        cost, times = np.full(len(self.modules), inf), np.zeros(len(self.modules))
        held = np.zeros((len(self.modules), len(self.room)))
        for key, p in enumerate(self.modules):
            if self.table.low[key] == inf:
                continue
            price = self.unit_prices(key, prices)
            nodes = NODES if len(p.resident) <= NARROW else 1
            g = p.network
            value, _, device = least_time(
                g, p.unit_ptr, p.member, price, FREE, 1.0, self.alike, inf, nodes, scratch_for(g)
            )
            device = _filled(p, device, price)
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
        """List what of a key can be placed at a cost of ``limit_s`` at most; ``None`` when it is too much."""
        p = self.modules[key]
        if len(p.resident) > NARROW:
            return None
        # With all units listed it is known what is live; where that is too much, those with weights must do.
        everything = len(p.held)
        for units, nodes in ((everything, FEW_NODES), (p.heavy, MOST_NODES)):
            price = self.unit_prices(key, prices)
            price[units:] = np.where(p.allowed[units:], 0.0, inf)
            g, most = p.network, min(nodes, MOST_COLUMNS)
            count, device, time_s = placements_within(
                g, p.unit_ptr, p.member, units, price, self.alike, limit_s, most, nodes, scratch_for(g)
            )
            if count >= 0:
                break
        if count < 0:
            return None
        device = np.array([_filled(p, row, price) for row in device], dtype=np.int32).reshape(count, len(p.resident))
        listed = p.alone.copy()
        listed[p.member[: p.unit_ptr[units]]] = True
        D = len(self.capacity)
        held, peak = np.zeros((count, D)), np.zeros((count, D))
        for i in np.flatnonzero(np.isfinite(self.capacity)).tolist():
            here = (device == i) & listed
            held[:, i] = here @ p.resident
            for tensors in p.live:
                live = np.zeros(count)
                for size, ways in tensors:
                    live += size * np.logical_or.reduce([here[:, way].all(axis=1) for way in ways])
                peak[:, i] = np.maximum(peak[:, i], live)
        return Column(device, np.maximum(time_s, float(self.table.low[key])), held, peak, listed)


def _filled(p: _Priced, device: Ints, price: Floats) -> Ints:
    """Put what has no place where it is cheapest, the faster of equal ones."""
    if (device >= 0).all():
        return device
    filled = device.copy()
    for k, row in enumerate(price):
        members = p.member[p.unit_ptr[k] : p.unit_ptr[k + 1]]
        if device[members[0]] < 0:
            filled[members] = np.lexsort((p.network.processing[members].sum(axis=0), row))[0]
    return filled


def _best_prices(p: _Prices, value_s: float, budget: Budget) -> Iterator[tuple[float, Floats, Floats]]:
    """Yield bound, prices and least costs, better and better.

    Each price's shortest path is a cut: at prices mu nothing is above its time + sum of mu x (bytes - room). The next
    prices are the highest point under all cuts (Kelley 1960), which a small linear program finds; whatever it says, the
    bound is computed anew from the prices.
    """
    prices, best = np.zeros(len(p.room)), -inf
    total = float(sum(p.chain.problem.resident_bytes))
    cuts: list[tuple[float, Floats]] = []
    dear = 1e3 * p.scale_s / max(1.0, total)
    for _ in range(ROUNDS):
        bound, cost, keys, time_s, held = p.at(prices)
        if not keys:
            return
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


def _live(problem: Problem, module: Module, one: Problem) -> Live:
    """Find what is live while each operator of a module runs, if it takes time wherever it runs.

    Its inputs and its outputs are where it is. A tensor from above it with a reader below it is where both are, if they
    are on one device.
    """
    reach, found = Reach.of(one), list[list[tuple[float, list[list[int]]]]]()
    least = np.where(problem.allowed, problem.times.processing_s, inf).min(axis=1)
    for k, v in enumerate(module.operators):
        if v == module.entry or not least[v] > 0.0:
            continue
        tensors: list[tuple[float, list[list[int]]]] = []
        if v == module.exit:
            tensors += [(float(problem.graph.tensors[u].size_bytes), [[k]]) for u in problem.graph.outputs_of[v]]
        for t in one.graph.tensors:
            ways = [[k]] if k == t.producer or k in t.readers else []
            if reach.above[k] >> t.producer & 1:
                ways += [[t.producer, w] for w in t.readers if reach.below[k] >> w & 1]
            if ways and t.size_bytes:
                tensors.append((float(t.size_bytes), ways))
        found.append(tensors)
    return found


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
