"""The linear program over placements of spans: which multipliers make the priced bound large."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from placewright.bounds.makespan.series import Series
from placewright.bounds.makespan.span_prices import DEVICE, PORT, Column, Windows
from placewright.highs import new_highs

__all__ = ["Master", "sound"]

Floats = npt.NDArray[np.float64]

SMALL = 1e-7
"""Part of the makespan by which a window's load must exceed its time to be a row."""

FIRST_ROWS = 2
"""Starts, and ends, of windows that there are from the beginning."""

MOST_ROWS = 6
"""Windows that are added at once for each class."""


class Master:
    """Minimise T such that spans take the time of their placements, windows that of their loads, and memory holds.

    Parameters
    ----------
    series : Series
    capacity : (C,) array
        Bytes of each class of devices together; inf without a limit.
    dear : float
        Seconds that a byte pays which is held above that.
    """

    def __init__(self, series: Series, capacity: Floats, dear: float) -> None:
        self.series, self.capacity, self.dear = series, capacity, dear
        self.columns: dict[Column, None] = {}
        self.windows: dict[tuple[int, int, int, int], None] = {}
        self.value = 0.0

    def add(self, columns: list[Column]) -> bool:
        """Say whether any of them is new."""
        before = len(self.columns)
        self.columns.update(dict.fromkeys(columns))
        return len(self.columns) > before

    def begin(self) -> None:
        """Make rows of some windows in which operators beside the spans lie."""
        s = self.series
        firsts, lasts = (sorted({getattr(x, end) for x in s.sides}) for end in ("first", "last"))
        for x in firsts[:: -(-len(firsts) // FIRST_ROWS)] if firsts else []:
            for y in [*lasts[:: -(-len(lasts) // FIRST_ROWS)], lasts[-1]]:
                for sort, classes in ((DEVICE, len(s.devices_in)), (PORT, len(s.ports_in))):
                    if x < y:
                        self.windows.update({(x, y, sort, c): None for c in range(classes)})

    def solve(self, seconds: float) -> tuple[Windows, Floats] | None:
        """Multipliers of the windows and prices of memory; ``None`` when the time is over."""
        import highspy

        s, columns = self.series, list(self.columns)
        K, C = len(s.spans), len(s.devices_in)
        roots = [side.operator for side in s.sides if side.operator not in s.parent]
        row_of_root = {v: k for k, v in enumerate(roots)}
        limited = np.flatnonzero(np.isfinite(self.capacity))
        windows = np.array(list(self.windows), dtype=np.int32).reshape(-1, 4)
        W, n = len(windows), len(columns)
        # Rows: flow at (instant, class) with the start first, roots, spans, windows, memory.
        flow, root, span, window, memory = np.cumsum([0, 1 + (K - 1) * C, len(roots), K, W]).tolist()
        rows = memory + len(limited)
        unit = max(1.0, float(self.capacity[limited].max(initial=0.0)))
        entries: list[tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]] = []
        block, entry, last = (
            np.array(x, dtype=np.int64) for x in zip(*[(c.block, c.entry, c.exit) for c in columns], strict=True)
        )
        time_s, held = np.array([c.time_s for c in columns]), np.array([c.held for c in columns])
        table = np.array([x for c in columns for x in c.items], dtype=np.float64).reshape(-1, 5)
        of = np.repeat(np.arange(n), [len(c.items) for c in columns])
        inner = np.flatnonzero(block < K)
        entries.append(
            (np.where(block == 0, flow, flow + 1 + (block - 1) * C + entry)[inner], inner, np.ones(len(inner)))
        )
        entries.append((span + block[inner], inner, -time_s[inner]))
        inner = np.flatnonzero(block < K - 1)
        entries.append((flow + 1 + block[inner] * C + last[inner], inner, -np.ones(len(inner))))
        alone = np.flatnonzero(block >= K)
        entries.append(
            (root + np.array([row_of_root[v - K] for v in block[alone].tolist()]), alone, np.ones(len(alone)))
        )
        for m, c in enumerate(limited.tolist()):
            used = np.flatnonzero(held[:, c])
            entries.append((np.full(len(used), memory + m), used, held[used, c] / unit))
            entries.append(([memory + m], [n + K + m], [-1.0]))
        count = [s.devices_in, s.ports_in]
        for m, (x, y, sort, c) in enumerate(windows.tolist()):
            over = (table[:, 0] >= x) & (table[:, 1] <= y) & (table[:, 2] == sort) & (table[:, 3] == c)
            load = np.bincount(of[over], table[over, 4], minlength=n) / count[sort][c]
            used = np.flatnonzero(load)
            entries.append((np.full(len(used), window + m), used, -load[used]))
        spans_ = [(span + k, k, k + 1) for k in range(K)] + [
            (window + m, x, y) for m, (x, y, _, _) in enumerate(windows.tolist())
        ]
        for r, x, y in spans_:
            entries.append(([r], [n + y - 1], [1.0]))
            if x > 0:
                entries.append(([r], [n + x - 1], [-1.0]))
        row, column_of = (np.concatenate([np.asarray(e[m], dtype=np.int64) for e in entries]) for m in range(2))
        value = np.concatenate([np.asarray(e[2], dtype=np.float64) for e in entries])
        lp, inf = highspy.HighsLp(), highspy.kHighsInf
        total = n + K + len(limited)
        lp.num_col_, lp.num_row_ = total, rows
        cost = np.zeros(total)
        cost[n + K - 1] = 1.0
        cost[n + K :] = self.dear * unit
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = cost, np.zeros(total), np.full(total, inf)
        low, high = np.zeros(rows), np.full(rows, inf)
        low[flow], high[flow:span] = 1.0, 0.0
        high[flow], low[root:span], high[root:span] = 1.0, 1.0, 1.0
        low[memory:], high[memory:] = -inf, self.capacity[limited] / unit
        lp.row_lower_, lp.row_upper_ = low, high
        order = np.lexsort((row, column_of))
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_ = np.searchsorted(column_of[order], np.arange(total + 1)).astype(np.int32)
        lp.a_matrix_.index_ = row[order].astype(np.int32)
        lp.a_matrix_.value_ = value[order]
        solver = new_highs()
        solver.setOptionValue("time_limit", max(0.1, min(seconds, 1e6)))
        solver.passModel(lp)
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        solution = solver.getSolution()
        dual, primal = np.asarray(solution.row_dual), np.asarray(solution.col_value)
        self.value = float(solver.getInfo().objective_function_value)
        self._separate(table, primal[of], np.concatenate([[0.0], primal[n : n + K]]))
        prices = np.zeros(C)
        prices[limited] = np.maximum(0.0, -dual[memory:]) / unit
        return sound(windows, np.maximum(0.0, dual[window:memory]), K), prices

    def _separate(self, table: Floats, amount: Floats, at: Floats) -> None:
        """Make rows of windows whose load is longer than they are."""
        s = self.series
        for sort, counts in ((DEVICE, s.devices_in), (PORT, s.ports_in)):
            for c in range(len(counts)):
                here = (table[:, 2] == sort) & (table[:, 3] == c)
                load = np.zeros((len(at), len(at)))
                first, last = table[here, 0].astype(int), table[here, 1].astype(int)
                np.add.at(load, (first, last), table[here, 4] * amount[here] / counts[c])
                inside = np.cumsum(np.cumsum(load[::-1], axis=0)[::-1], axis=1)
                excess = inside - (at[None, :] - at[:, None])
                excess[np.tril_indices(len(at))] = 0.0
                for k in _largest(excess.ravel(), MOST_ROWS):
                    x, y = divmod(k, len(at))
                    if excess[x, y] > SMALL * at[-1]:
                        self.windows[x, y, sort, c] = None


def sound(windows: npt.NDArray[np.int32], weight: Floats, spans: int) -> Windows:
    """Scale the multipliers so that those over one span sum up to 1 at most."""
    found = Windows(windows[:, 0], windows[:, 1], windows[:, 2], windows[:, 3], weight)
    most = float((1.0 - found.left(spans)).max(initial=0.0))
    return replace(found, weight=weight / max(1.0, most * (1.0 + 1e-12)))


def _largest(values: Floats, count: int) -> list[int]:
    """Positions of the largest values, ties by position."""
    if len(values) > count:
        least = np.partition(values, len(values) - count)[len(values) - count]
        picked = np.flatnonzero(values >= least)
    else:
        picked = np.arange(len(values))
    order = np.argsort(-values[picked], kind="stable")[:count]
    return [int(k) for k in picked[order]]
