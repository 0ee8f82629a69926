"""Prices of loads and memories that make the cheapest placement of a chain of modules dear: a bound on the max-load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from placewright._kernel.load_vectors import cheapest, cost_to_go
from placewright.algorithm import Budget
from placewright.bounds.max_load.module_network import ModuleNetwork
from placewright.highs import new_highs
from placewright.rounding import rounded_down

__all__ = ["Priced", "best_prices", "even_prices", "priced"]

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

CLOSE = 1e-5
"""Relative distance to what prices could still gain at which the search for them ends."""

MEMORY_WORTH = 100.0
"""Most that all weights together may cost, in loads of the whole network."""

MEMORY_SLACK = 1e-10
"""Of what all memory costs, taken off a bound: prices of memory are added and taken away again."""

STEPS_AT_ONCE = 64
"""Steps of the dynamic program between two looks at the budget."""


@dataclass(frozen=True, eq=False)
class Priced:
    """The cheapest placement at some prices, and the bound that it is.

    Attributes
    ----------
    price : (K,) float64
        Of a second of each entry of a vector of loads, those of a pass 1 together; of a byte of each memory.
    table : (S,) float64
        Least price of the steps from t on, by the state before step t.
    bound_s : float
        Proved.
    room : float
        Price of all memory, and a little more (:data:`MEMORY_SLACK`): what is taken off the cheapest price.
    loads : (K,) float64
        Of the cheapest placement.
    place : (G,) int32
        Its devices, by step; -1 where there is none.
    """

    price: Floats
    table: Floats
    bound_s: float
    room: float
    loads: Floats
    place: Ints


def priced(network: ModuleNetwork, price: Floats, budget: Budget) -> Priced | None:
    """Find the cheapest placement; ``None`` when the budget is spent first.

    For prices lambda >= 0 of the loads, those of each pass adding up to 1, and mu >= 0 of the memories, every placement
    within the memories M has a value of at least

    sum_k lambda_k load_k >= sum_k lambda_k load_k + sum_i mu_i (held_i - M_i) >= min over all placements of the same,

    as the largest of some loads is at least their mean. The minimum on the right is found exactly, by bucket
    elimination along the order: what a step adds depends on the devices of its frontier alone. Contiguity is left out.
    """
    s, at = network.steps, network.at
    G = len(s.compute)
    table = np.zeros(int(at[-1]))
    for end in range(G, 0, -STEPS_AT_ONCE):
        if budget.spent:
            return None
        cost_to_go(s, price, at, table, max(0, end - STEPS_AT_ONCE), end)
    place = np.full(G, -1, dtype=np.int32)
    loads = cheapest(s, price, at, table, place)
    room = 0.0
    if s.memory:
        worth = price[len(price) - len(s.capacity) :]
        room = float((worth[worth > 0.0] * s.capacity[worth > 0.0]).sum()) * (1.0 + MEMORY_SLACK)
    return Priced(price, table, rounded_down(float(table[0]) - room), room, loads, place)


def even_prices(network: ModuleNetwork) -> Floats:
    """All devices alike, what they are busy with alone, channels and memory for nothing."""
    s = network.steps
    passes, D = s.compute.shape[1:]
    price = np.zeros(network.prices)
    price[: passes * D * s.parts].reshape(passes, D, s.parts)[:, :, 0] = 1.0 / D
    return price


def best_prices(
    network: ModuleNetwork, budget: Budget, rounds: int, on_bound: Callable[[float], None] | None = None
) -> list[Priced]:
    """Raise the bound by Kelley's cutting planes; all prices tried, the best first.

    The bound is a concave function of the prices, and each cheapest placement a plane above it. The next prices lie
    half-way between the best ones and those where the planes are highest, which steadies the method. Alike devices have
    equal prices: the function is symmetric and concave. With a minimum that is infinite nothing can be placed at all.
    """
    tried: list[Priced] = []
    planes = _Planes(network)
    point = planes.point_of(even_prices(network))
    for _ in range(rounds):
        found = None if budget.spent else priced(network, planes.price_of(point), budget)
        if found is None:
            break
        tried.append(found)
        if found.bound_s == np.inf:
            break
        best = max(tried, key=lambda p: p.bound_s)
        if on_bound is not None:
            on_bound(best.bound_s)
        highest = planes.add(found.loads)
        if highest is None or highest[0] <= best.bound_s + CLOSE * abs(highest[0]):
            break
        point = 0.5 * (planes.point_of(best.price) + highest[1])
    return sorted(tried, key=lambda p: -p.bound_s)


class _Planes:
    """Maximise t such that t <= price x loads for the loads of each placement known, over prices by kind of device."""

    def __init__(self, network: ModuleNetwork) -> None:
        import highspy

        s = network.steps
        passes, D = s.compute.shape[1:]
        kinds = int(s.kind.max()) + 1
        count = np.bincount(s.kind, minlength=kinds).astype(np.float64)
        total = passes * D * s.parts
        finite = np.where(np.isfinite(s.compute), s.compute, 0.0).max(axis=2).sum()
        self.unit = (float(finite) or 1.0) / max(1.0, float(s.held.sum()))  # seconds a byte
        rows, sums, self.room = [], [], []  # type: tuple[list[Floats], list[int], list[float]]
        for p in range(passes):
            for c in range(kinds):
                for q in range(s.parts):
                    row = np.zeros(network.prices)
                    row[:total].reshape(passes, D, s.parts)[p, s.kind == c, q] = 1.0 / count[c]
                    rows.append(row)
                    sums.append(p)
            for c in range(s.channels):
                row = np.zeros(network.prices)
                row[total + p * s.channels + c] = 1.0
                rows.append(row)
                sums.append(p)
        self.room = [0.0] * len(rows)
        for c in range(kinds if s.memory else 0):
            if np.isfinite(s.capacity[s.kind == c]).all():
                row = np.zeros(network.prices)
                row[network.prices - D :][s.kind == c] = self.unit
                rows.append(row)
                sums.append(-1)
                self.room.append(self.unit * float(s.capacity[s.kind == c].sum()))
        self.rows, self.sums = np.array(rows), np.array(sums)
        self.solver: Any = new_highs()
        endless = float(highspy.kHighsInf)
        nothing: tuple[Any, ...] = (0, np.array([], dtype=np.int32), np.array([]))
        self.solver.addCol(-1.0, -endless, endless, *nothing)
        for p in self.sums:
            self.solver.addCol(0.0, 0.0, 1.0 if p >= 0 else MEMORY_WORTH, *nothing)
        for p in range(passes):
            columns = np.flatnonzero(self.sums == p).astype(np.int32) + 1
            self.solver.addRow(1.0, 1.0, len(columns), columns, np.ones(len(columns)))

    def price_of(self, point: Floats) -> Floats:
        """Prices of all entries, legal whatever the tolerances of a solver were."""
        point = np.maximum(point, 0.0)
        for p in range(int(self.sums.max()) + 1):
            mine = self.sums == p
            point[mine] = point[mine] / point[mine].sum() if point[mine].sum() > 0.0 else 1.0 / mine.sum()
        return np.asarray(point @ self.rows)

    def point_of(self, price: Floats) -> Floats:
        """Return the point whose prices these are."""
        return np.asarray((self.rows @ price) / (self.rows * self.rows).sum(axis=1))

    def add(self, loads: Floats) -> tuple[float, Floats] | None:
        """Add a plane; return the highest point below all of them, and how high it is."""
        import highspy

        slope = self.rows @ loads - np.array(self.room)
        columns = np.arange(len(slope) + 1, dtype=np.int32)
        self.solver.addRow(0.0, float(highspy.kHighsInf), len(columns), columns, np.append(-1.0, slope))
        self.solver.run()
        if self.solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        values = np.asarray(self.solver.getSolution().col_value, dtype=np.float64)
        return float(values[0]), values[1:]
