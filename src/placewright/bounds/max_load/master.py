"""The linear program of column generation: which sets of units fill the devices, and what that makes units worth."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from placewright.bounds.max_load.hypergraph import Hypergraph
from placewright.highs import new_highs

__all__ = ["Master", "divided"]

Floats = npt.NDArray[np.float64]

WIDEST = 1e3
"""Beyond, the box around the prices is taken not to bind."""


def divided(profit: Floats, time: Floats, limit: float, room: float) -> float:
    """Most profit of vertices that may be divided, whose times are within ``room`` together and ``limit`` each.

    Examples
    --------
    >>> round(divided(np.array([3.0, 2.0, -1.0]), np.array([2.0, 2.0, 1.0]), 2.0, 3.0), 9)  # the first, half the second
    4.0
    """
    worth = np.flatnonzero((time <= limit) & (profit > 0.0))
    free = worth[time[worth] <= 0.0]
    total = float(profit[free].sum())
    worth = worth[time[worth] > 0.0]
    for v in worth[np.argsort(-profit[worth] / time[worth], kind="stable")].tolist():
        if time[v] >= room:
            total += float(profit[v] * room / time[v])
            break
        total += float(profit[v])
        room -= float(time[v])
    return total * (1.0 + 1e-12)


class Master:
    """Minimise t such that sets cover each vertex once, with at most t n_c sets on the n_c devices of each kind c.

    Devices that don't pay are one row a kind: the times of the parts that they take are within n_c T; or, when
    ``whole``, at most n_c sets. Duals are kept in a box around ``centre``, by two columns a vertex that take up what
    isn't covered, or covered too often, at a price. All is scaled to K t, K devices that pay: prices of units are about
    what part of a device they fill.
    """

    def __init__(self, h: Hypergraph, limit: float, centre: Floats, reach: Floats, whole: bool) -> None:
        import highspy

        self.n, self.centre, self.reach = len(h), centre, reach.copy()
        self.paying, self.free = np.flatnonzero(h.pays), np.flatnonzero(~h.pays)
        self.count = np.array([len(h.kinds[c]) for c in self.paying], dtype=np.float64)
        self.endless = float(highspy.kHighsInf)
        self.solver: Any = new_highs()
        self.solver.setOptionValue("presolve", "off")
        for _ in range(self.n):
            self._row(1.0, 1.0)
        for c in self.free:
            self._row(-self.endless, len(h.kinds[c]) * (1.0 if whole else limit))
        self.kind_row = self.n + len(self.free)
        for _ in self.paying:
            self._row(-self.endless, 0.0)
        for v in range(self.n):
            self._column(float(centre[v] + reach[v]), [v], [1.0])
            self._column(float(reach[v] - centre[v]), [v], [-1.0])
        total = float(self.count.sum())
        self._column(total, [self.kind_row + k for k in range(len(self.paying))], (-self.count).tolist())
        for k, c in enumerate(self.free if not whole else []):
            for v in np.flatnonzero(h.time[c] <= limit).tolist():
                self._column(0.0, [v, self.n + k], [1.0, float(h.time[c, v])])
        self._known: set[tuple[int, bytes]] = set()

    def _row(self, low: float, high: float) -> None:
        self.solver.addRow(low, high, 0, np.array([], dtype=np.int32), np.array([]))

    def _column(self, cost: float, rows: list[int], values: list[float]) -> None:
        self.solver.addCol(cost, 0.0, self.endless, len(rows), np.array(rows, dtype=np.int32), np.array(values))

    def add(self, kind: int, chosen: npt.NDArray[np.int8]) -> bool:
        """Add a set for the kind-th of the kinds that pay, or from -1 on of those that don't; whether it is new."""
        key = kind, chosen.tobytes()
        if key in self._known:
            return False
        self._known.add(key)
        row = self.kind_row + kind if kind >= 0 else self.n - 1 - kind
        rows = [*np.flatnonzero(chosen).tolist(), row]
        self._column(0.0, rows, [1.0] * len(rows))
        return True

    def solve(self, at_most_s: float) -> tuple[float, Floats, Floats] | None:
        """Value K t, prices of the vertices, prices of the kinds (their sum over devices is K); none: out of time."""
        self.solver.setOptionValue("time_limit", float(self.solver.getRunTime()) + max(0.05, min(1e6, at_most_s)))
        self.solver.run()
        if "Optimal" not in str(self.solver.getModelStatus()):
            self.solver.clearSolver()
            self.solver.run()
        dual = np.array(self.solver.getSolution().row_dual, dtype=np.float64)
        if len(dual) < self.kind_row or "Optimal" not in str(self.solver.getModelStatus()):
            return None
        prices = np.maximum(0.0, -dual[self.kind_row :])
        return float(self.solver.getInfo().objective_function_value), dual[: self.n], prices

    def widen(self) -> bool:
        """Let the prices that the box holds go further; whether there were any."""
        values = np.asarray(self.solver.getSolution().col_value[: 2 * self.n]).reshape(-1, 2)
        held = np.flatnonzero((values.max(axis=1) > 1e-9) & (self.reach < WIDEST))
        self.reach[held] *= 4.0
        for v in held.tolist():
            self.solver.changeColCost(2 * v, float(self.centre[v] + self.reach[v]))
            self.solver.changeColCost(2 * v + 1, float(self.reach[v] - self.centre[v]))
        return len(held) > 0
