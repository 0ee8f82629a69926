"""The best set of units for a device under a limit of load and given prices: real sets, and proven upper bounds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright._kernel.configuration import (
    NONE,
    Incidence,
    Labels,
    States,
    build_states,
    completion,
    dual,
    greedy_order,
    real_sets,
    spans,
    upper_labels,
    width_score,
)
from placewright.algorithm import Budget
from placewright.bounds.max_load.hypergraph import Hypergraph

__all__ = ["Pricing", "Spent", "best_order", "load_of", "states_of"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]

CELLS = 4_000_000
"""Most labels of a layer."""

POOL = 30_000_000
"""Most labels of a search for sets."""

WORK = 2_000_000
"""Labels made between two looks at the budget: about a tenth of a second."""

FACTORS = (1.0, 1.15, 0.87, 1.5, 0.6)
"""Prices of load that labels are dropped by, relative to the best one of the Lagrangian."""


class Spent(Exception):
    """The budget ended in the middle of something."""


def best_order(g: Incidence, tries: int, rng: np.random.Generator, budget: Budget, at_most_s: float = 0.5) -> Ints:
    """Of greedy orders from random vertices the one with the fewest states, by an estimate."""
    n, part = len(g.edge_ptr) - 1, budget.share(1.0, at_most_s=at_most_s)
    best, order = np.inf, np.arange(n, dtype=np.int32)
    for k in range(tries):
        tried = greedy_order(g, int(rng.integers(n)), rng)
        score = width_score(g, tried)
        if score < best:
            best, order = score, tried
        if k > 0 and part.spent:
            break
    return order


def states_of(h: Hypergraph, g: Incidence, order: Ints, kinds: npt.NDArray[np.intp], far: float, most: int) -> States:
    """States of an order, with the loads of some kinds of devices as rows; without any where there are too many."""
    m = len(h.ends)
    first, last, slot = (np.zeros(m, dtype=np.int32) for _ in range(3))
    outside, met = np.zeros(m, dtype=np.bool_), np.zeros(m, dtype=np.int32)
    size = np.diff(g.end_ptr).astype(np.int32)
    nothing = States(np.zeros(0, dtype=np.int64), np.zeros((0, 2), dtype=np.int64), np.zeros((len(kinds), 0, 2)))
    if not spans(g.edge_ptr, g.edge, size, order, first, last, slot, outside, met):
        return nothing
    time, weight = np.minimum(h.time[kinds], far), np.minimum(h.weight[kinds], far)
    side = np.ones(len(kinds), dtype=np.int32)
    return States(*build_states(g.edge_ptr, g.edge, order, first, last, slot, outside, time, weight, side, most))


def load_of(states: States, row: int, member: npt.NDArray[np.int8]) -> float:
    """Load of a set, given by a bit for each position of the order."""
    s, load = 0, 0.0
    for bit in member.tolist():
        load += float(states.added[row, s, bit])
        s = int(states.follow[s, bit])
    return load


class Pricing:
    """Prices of units in, sets out.

    Parameters
    ----------
    states : States
        Of an order of n vertices; a row for each kind of device.
    order : (n,) int32
    """

    def __init__(self, states: States, order: Ints) -> None:
        self.states, self.order = states, order
        self.width = np.diff(states.ptr)
        self._best = np.zeros((len(FACTORS), len(states.follow)))
        self._labels: Labels | None = None
        self._dirty = False
        self._pool = np.empty(POOL, dtype=np.int32)

    def upper(self, row: int, profit: Floats, limit: float, floor: float, fineness: int, budget: Budget) -> float:
        """Bound the profit of all sets of load at most ``limit``; ``floor`` where the bound is not above it.

        Raises
        ------
        Spent
        """
        gains = profit[self.order]
        prices, bound = self._prices(row, gains, limit, floor, budget)
        if bound <= floor:
            return floor
        buckets, labels = self._buckets(fineness)
        states, p, n = self.states, 0, len(self.order)
        while p < n:
            if budget.spent:
                self._dirty = True
                raise Spent
            p = upper_labels(
                states.ptr, states.follow, states.added[row], gains, limit, floor, prices, self._best, buckets, labels,
                p, WORK,
            )  # fmt: skip
        top = max(self._final(buckets, labels), default=(floor, 0.0, 0))[0]
        return min(bound, max(floor, top))

    def sets(
        self, row: int, profit: Floats, limit: float, floor: float, fineness: int, budget: Budget, wanted: int = 16
    ) -> tuple[float, list[npt.NDArray[np.int8]]]:
        """Find sets of load at most ``limit`` and profit above ``floor``; and the best profit of any, else ``floor``.

        Each set is a bit for each vertex. A search, not a proof: of sets that agree in state and bucket one is kept.

        Raises
        ------
        Spent
        """
        gains = profit[self.order]
        prices, bound = self._prices(row, gains, limit, floor, budget)
        if bound <= floor:
            return floor, []
        buckets, labels = self._buckets(fineness)
        states, p, n, used, pool = self.states, 0, len(self.order), 1, self._pool
        pool[0] = -1
        while p < n:
            if budget.spent:
                self._dirty = True
                raise Spent
            p, used = real_sets(
                states.ptr, states.follow, states.added[row], gains, limit, floor, prices, self._best, buckets, labels,
                pool, p, used, WORK,
            )  # fmt: skip
            if used < 0:
                self._dirty = True
                return bound, []
        front, top = [], floor
        for gain, _, tag in self._final(buckets, labels):
            if gain > top:
                top = gain
                front.append(tag)
        spread = (
            np.linspace(0, len(front) - 1, min(wanted, len(front))).astype(int) if front else np.zeros(0, dtype=int)
        )
        return top, [self._set(front[k]) for k in np.unique(spread)[::-1].tolist()]

    def load(self, row: int, chosen: npt.NDArray[np.int8]) -> float:
        """Load of a set on a kind of device."""
        return load_of(self.states, row, chosen[self.order])

    def _prices(self, row: int, gains: Floats, limit: float, floor: float, budget: Budget) -> tuple[Floats, float]:
        if budget.spent:
            raise Spent
        ptr, follow, added = self.states.ptr, self.states.follow, self.states.added[row]
        price, bound = dual(ptr, follow, added, gains, limit, floor, self._best[0])
        prices = price * np.array(FACTORS)
        if bound > floor:
            for k, x in enumerate(prices.tolist()):
                completion(ptr, follow, added, gains, x, self._best[k])
        return prices, bound

    def _buckets(self, fineness: int) -> tuple[npt.NDArray[np.int64], Labels]:
        """Buckets of each layer, and empty labels but for the first."""
        buckets = np.minimum(fineness, np.maximum(2, CELLS // self.width)).astype(np.int64)
        cells = int((buckets * self.width).max())
        labels = self._labels
        if labels is None or self._dirty or labels.gain.shape[1] < cells:
            W = int(self.width.max())
            labels = Labels(
                np.zeros((2, cells)),
                np.full((2, cells), NONE),
                np.zeros((2, cells), dtype=np.int64),
                np.full((2, W), 1 << 40, dtype=np.int64),
                np.full((2, W), -1, dtype=np.int64),
            )
            self._labels, self._dirty = labels, False
        labels.load[0, 0], labels.gain[0, 0], labels.tag[0, 0] = 0.0, 0.0, 0
        labels.low[0, 0], labels.high[0, 0] = 0, 0
        return buckets, labels

    def _final(self, buckets: npt.NDArray[np.int64], labels: Labels) -> list[tuple[float, float, int]]:
        """(profit, load, label) at the end, by load; the layer is left empty."""
        here = len(self.order) & 1
        low, high = int(labels.low[here, 0]), int(labels.high[here, 0])
        used = (
            low + np.flatnonzero(labels.gain[here, low : high + 1] != NONE)
            if high >= 0
            else np.zeros(0, dtype=np.int64)
        )
        rows = labels.gain[here, used], labels.load[here, used], labels.tag[here, used]
        found = list(zip(*(row.tolist() for row in rows), strict=True))
        labels.gain[here, max(0, low) : high + 1] = NONE
        labels.low[here, 0], labels.high[here, 0] = 1 << 40, -1
        return found

    def _set(self, label: int) -> npt.NDArray[np.int8]:
        chosen = np.zeros(len(self.order), dtype=np.int8)
        for p in range(len(self.order) - 1, -1, -1):
            pair = int(self._pool[label])
            chosen[self.order[p]] = pair & 1
            label = pair >> 1
        return chosen
