"""Prices on the bytes of a chain of modules: the least cost of each module at them, the best ones, what they leave.

What the prices prove, and which placements they leave, is told in :mod:`placewright.solvers.makespan.module_memory`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from placewright._kernel.module_columns import placements_within
from placewright._kernel.schedule import Network
from placewright._kernel.span_search import least_time, scratch_for
from placewright.algorithm import Budget
from placewright.arrays import arrays_of
from placewright.bounds.makespan.span import Reach, alike_devices, span_between
from placewright.highs import new_highs
from placewright.problem import Problem
from placewright.ragged import ragged
from placewright.rounding import rounded_down
from placewright.solvers.makespan.module_labels import Column
from placewright.solvers.makespan.module_steps import StepTable
from placewright.solvers.makespan.modules import Module

__all__ = ["ChainPrices", "best_prices"]

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int32]
Live: TypeAlias = list[list[tuple[float, list[list[int]]]]]

NODES, NARROW = 400, 40
"""Most nodes of one search at given prices, and operators up to which there is more than one."""

ROUNDS = 40
"""Most choices of prices."""

NEAR = 1e-6
"""Relative gain of the bound that is still expected when prices are called the best."""

MOST_COLUMNS, MOST_NODES, FEW_NODES = 20_000, 400_000, 10_000
"""Most placements of a module with fixed devices, and nodes of the search for them; few: for all of its units."""

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


class ChainPrices:
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


def best_prices(p: ChainPrices, value_s: float, budget: Budget) -> Iterator[tuple[float, Floats, Floats]]:
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
