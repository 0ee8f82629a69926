"""The search over topological orders that more than one algorithm runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf

import numpy as np
import numpy.typing as npt

from placewright._kernel.order_moves import Order, random_order, search
from placewright._kernel.segment import UNREACHABLE, cut, table
from placewright.algorithm import Budget
from placewright.solvers.max_load.blocks import Blocks, Stage
from placewright.solvers.max_load.lattice import fractional_bound

__all__ = ["MOST_STATES", "Orders", "order_of", "order_of_edges"]

MOST_STATES = 4096
"""Ways to have used some devices of each class, prod (n_c + 1), up to which the search is quick enough to be of use."""

MOST_ROWS = 256
"""States up to which each has its own bound on what the devices left can do."""

PAIRS = 16
"""Most pairs (max forward, max backward) kept a position and state where the passes count apart."""

MOST_LABELS = 4_000_000
"""Of the table of labels: 128 MB."""

FASTEST = 1e6
"""Orders a second that are reckoned with: where there is nothing to move, a call takes no time at all."""

FACTORS = (1.1, 1.5, 2.0, 4.0)
"""Limits of the first scores, in bounds."""

STARTS = 24
"""Random orders tried before the best of them is annealed."""


def order_of_edges(n_blocks: int, edges: npt.NDArray[np.int64]) -> Order:
    """Make ragged arrays of (E, 2) edges."""
    rows = []
    for here, there in ((1, 0), (0, 1)):
        sort = np.lexsort((edges[:, there], edges[:, here]))
        rows.append(np.searchsorted(edges[sort, here], np.arange(n_blocks + 1)).astype(np.int32))
        rows.append(edges[sort, there].astype(np.int32))
    return Order(*rows)


def order_of(blocks: Blocks) -> Order:
    """Make the ragged arrays of the blocks' order edges."""
    return order_of_edges(blocks.n_blocks, np.array(blocks.edges, dtype=np.int64).reshape(-1, 2))


class Orders:
    """Best order found, and the state of the search.

    Attributes
    ----------
    value_s : float
        Of the best order; ``inf`` when none has been found that fits.
    order : (B,) int32
    moves : int
        Orders scored so far.
    """

    def __init__(self, blocks: Blocks, rng: np.random.Generator) -> None:
        self.blocks, self.rng = blocks, rng
        B = blocks.n_blocks
        s = blocks.stages
        far = UNREACHABLE * (1.0 + float(s.compute.sum()) + _finite_sum(s.send) + _finite_sum(s.receive))
        self.stages = s._replace(
            send=np.where(np.isfinite(s.send), s.send, far), receive=np.where(np.isfinite(s.receive), s.receive, far)
        )
        total = np.where(np.isfinite(blocks.total_s), blocks.total_s, 0.0)
        pairs = max(1, min(PAIRS, MOST_LABELS // ((B + 1) * int(s.stride[-1])))) if s.compute.shape[1] > 1 else 1
        self.table = table(self.stages, total, pairs, MOST_ROWS)
        self.graph = order_of(blocks)
        self.order = np.arange(B, dtype=np.int32)
        self._current = self.order.copy()
        self._cuts = np.zeros(B + 1, dtype=np.int32)
        self._value = np.full(2, inf)
        self._floor = fractional_bound(blocks)
        self.moves = 0

    @property
    def value_s(self) -> float:
        """Of the best order."""
        return float(self._value[1])

    def run(
        self,
        budget: Budget,
        moves: int | None,
        *,
        hot: float,
        cold: float,
        target_s: float = 0.0,
        on_better: Callable[[], None] = lambda: None,
    ) -> None:
        """Score random orders, then anneal the best, until ``moves`` more are scored or the budget is spent.

        ``hot`` and ``cold`` are temperatures relative to the value that annealing starts from. With ``moves`` and no
        limit of seconds the search depends on the seed alone.
        """
        begun, opened, span = self.moves, budget.elapsed_s, max(1e-9, budget.left_s)
        timed = span < inf
        if moves is None and not timed:
            raise ValueError("a search needs a number of moves or of seconds")
        rate = 200.0
        while not budget.spent and self.value_s > target_s:
            done = self.moves - begun
            left = inf if moves is None else moves - done
            if left <= 0:
                return
            before = self.value_s
            if self.moves < STARTS or self._value[0] == inf:
                k = self.moves
                self._try(random_order(self.graph, (1, 2, 0)[k % 3], self.rng) if k else self.order.copy())
                if self.value_s < before:
                    on_better()
                continue
            count = int(min(left, max(1, int(rate * 0.1)) if timed else max(4, min(256, 40_000 // len(self.order)))))
            here = 0.0 if moves is None else done / moves
            there = 0.0 if moves is None else (done + count) / moves
            if timed:
                passed = budget.elapsed_s - opened
                here, there = max(here, passed / span), max(there, (passed + count / rate) / span)
            scale, started = self.value_s, time.perf_counter()
            search(
                self.stages, self.table, self.graph, self._current, self.order, self._cuts, self._value,
                scale * hot * (cold / hot) ** min(1.0, here), scale * hot * (cold / hot) ** min(1.0, there), count,
                self.rng,
            )  # fmt: skip
            rate = min(FASTEST, 0.5 * rate + 0.5 * count / max(1e-6, time.perf_counter() - started))
            self.moves += count
            if self.value_s < before:
                on_better()

    def restart(self) -> None:
        """Go on from the best order."""
        self._current[:] = self.order
        self._value[0] = self._value[1]
        self._cuts[0] = 0

    def _try(self, order: npt.NDArray[np.int32]) -> None:
        self.moves += 1
        # A low limit makes a score cheap: the first ones are sought from the bound upwards.
        limits = [self.value_s]
        if self.value_s == inf and 0.0 < self._floor < inf:
            limits = [self._floor * factor for factor in FACTORS] + limits
        value = inf
        for limit in limits:
            if value == inf:
                value, _, _ = cut(self.stages, self.table, order, limit)
        if value < self.value_s:
            self._current[:], self.order[:] = order, order
            self._value[:] = value
            self._cuts[0] = 0

    def best_stages(self) -> list[Stage]:
        """Stages of the best order."""
        t = self.table
        value, state, rank = cut(self.stages, t, self.order, np.nextafter(self.value_s, inf))
        stages: list[Stage] = []
        j = len(self.order)
        while j > 0 and value < inf:
            i, before, c, copies = (int(x) for x in t.source[j, state, rank])
            stages.append((self.order[i:j].tolist(), c, copies))
            j, rank, state = i, before, state - copies * int(self.stages.stride[c])
        return stages[::-1]


def _finite_sum(values: npt.NDArray[np.float64]) -> float:
    return float(values[np.isfinite(values)].sum())
