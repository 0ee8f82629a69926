"""The linear program of divided copies: each unit's shares by device, the transfers that they force, and its proof."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from placewright.algorithm import Budget
from placewright.highs import new_highs
from placewright.loads import loads_of
from placewright.objective import load_rows
from placewright.one_copy import one_copy, throughput_of
from placewright.problem import Problem

__all__ = ["CutProgram", "Divided", "pair_times", "too_large"]

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

LARGEST = 400_000
"""Tensors times pairs of devices up to which the program is solved."""

ROUNDING = 1e-12
"""Part of the sum of all terms of a proof that rounding errors may be."""


@dataclass(frozen=True, eq=False)
class Divided:
    """What a solution of the program says.

    Attributes
    ----------
    shares : (U, D) float64
        Part of the samples for which a unit is on a device.
    lower_bound_s : float
        Proved by the multipliers alone, before rounding down.
    """

    shares: Floats
    lower_bound_s: float


class _Block:
    """Variables or rows of one kind, numbered from ``first``; ``at`` has their numbers, -1 where there is none."""

    def __init__(self, first: int, wanted: npt.NDArray[np.bool_]) -> None:
        self.at = np.full(wanted.shape, -1, dtype=np.int64)
        self.size = int(wanted.sum())
        self.at[wanted] = first + np.arange(self.size)

    def values(self, vector: Floats) -> Floats:
        """Numbers of a vector over all blocks, 0 where there is none."""
        return np.where(self.at >= 0, vector[np.maximum(self.at, 0)], 0.0)


class CutProgram:
    """Minimise T over shares x of the units by device and shares y of transfers by message and pair of devices.

    x[k, i] >= 0 sums to 1 over the devices. y[m, i, j] is the part of the samples for which message m goes from i to j:
    what its readers have on j beyond its producer must come in, sum_i y[m, i, j] >= x[reader, j] - x[producer, j], and
    what its producer has on i beyond a reader must go out, sum_j y[m, i, j] >= x[producer, i] - x[reader, i]. A device
    sends for as long as z[m, i]: the largest over j of c[m, i, j] y[m, i, j] (their sum, where one unit reads), and no
    less than the least c[m, i, j] times what goes out. Computing, transfers in and out, and the loads of channels are
    then linear, and so is each row of a load (:func:`placewright.objective.load_rows`), at most T; memory holds sum_k
    m[k] x[k, i] <= M_i.

    Of any plan the averages over its copies are such x, y, z: so T is a lower bound. With two devices, without memory
    limits, contiguity and synchronisation it is met, since the loads are then cuts and the Lovasz extension of a cut is
    an average of cuts. :meth:`proved` needs no trust in the solver: see there.

    Parameters
    ----------
    problem : Problem
        With the objective throughput.
    order : sequence of int or None
        Devices in an order in which all copies use them: what a unit has on the first k devices of it, its readers in
        the order of contiguity have no more of. That bounds nothing then: it is for plans.
    """

    def __init__(self, problem: Problem, order: tuple[int, ...] | None = None) -> None:
        self.problem, self.order = problem, order
        a = self.loads = loads_of(one_copy(problem))
        self.rows = np.array(load_rows(throughput_of(problem)))
        self.compute = a.compute_s[0]
        U, D = self.compute.shape
        M = len(a.producer)
        self.message = np.repeat(np.arange(M), np.diff(a.reader_ptr))
        self.reader, self.maker = a.reader.astype(np.int64), a.producer[self.message].astype(np.int64)
        self.times = pair_times(problem)
        self.scale = float(np.where(np.isfinite(self.compute), self.compute, 0.0).sum(axis=0).max(initial=0.0)) or 1.0
        self.single = np.diff(a.reader_ptr) == 1
        self.least = np.where(np.eye(D, dtype=bool), np.inf, self.times).min(axis=2, initial=np.inf)
        self.least = np.where(np.isfinite(self.least), self.least, 0.0)
        apart = np.broadcast_to(~np.eye(D, dtype=bool), (M, D, D)) & np.isfinite(self.times)
        self.x = _Block(0, a.allowed)
        self.y = _Block(self.x.size, apart)
        self.z = _Block(self.x.size + self.y.size, (a.pays & ~self.single[:, None]).astype(bool))
        self.top = self.x.size + self.y.size + self.z.size
        self.limited = np.isfinite(a.capacity) & (a.capacity < a.resident.sum())
        rows = 0

        def block(wanted: npt.NDArray[np.bool_]) -> _Block:
            nonlocal rows
            made = _Block(rows, wanted)
            rows += made.size
            return made

        E = len(self.message)
        self.unit_row = block(np.ones(U, dtype=bool))
        self.load_row = block(np.array([[True] + [bool(p)] * (len(self.rows) - 1) for p in a.pays]))
        self.channel_row = block(np.ones(a.n_channels if len(a.channel_s) else 0, dtype=bool))
        self.at_most = np.concatenate([self.load_row.at[self.load_row.at >= 0], self.channel_row.at])
        """Rows of what is at most T."""
        self.memory_row = block(self.limited)
        self.in_row = block(np.ones((E, D), dtype=bool))
        self.out_row = block(np.ones((E, D), dtype=bool))
        self.send_row = block(apart & (self.z.at >= 0)[:, :, None])
        self.least_row = block((self.z.at >= 0)[self.message])
        self.n_rows = rows

    def solve(self, budget: Budget, share: float = 1.0) -> Divided | None:
        """Solve by HiGHS within a share of the budget; ``None`` where nothing came of it."""
        import highspy

        solver = new_highs()
        solver.setOptionValue("time_limit", max(0.05, min(share * budget.left_s, 1e6)))
        solver.passModel(self._model(highspy))

        def interrupt(event: Any) -> None:
            event.data_in.user_interrupt = budget.cancelled.is_set()

        for signal in (solver.cbSimplexInterrupt, solver.cbIpmInterrupt):
            signal += interrupt
        solver.run()
        solution = solver.getSolution()
        values, dual = (np.asarray(part, dtype=np.float64) for part in (solution.col_value, solution.row_dual))
        if len(values) != self.top + 1 or len(dual) < self.n_rows:
            return None
        lower = self.proved(dual[: self.n_rows]) if self.order is None else 0.0
        return Divided(np.clip(self.x.values(values), 0.0, 1.0), lower)

    def proved(self, dual: Floats) -> float:
        r"""Bound T by multipliers of the rows, whatever they are.

        Any plan obeys the rows, so the sum over the rows of a multiplier (of the right sign) times the row is a valid
        inequality. With weights w >= 0 of the load rows of sum 1 it says T >= the least of a linear function of x, y,
        z. Multipliers are first made to fit: those of the rows of z are scaled until z has no negative factor (its
        cost is the weight of its device), then those of transfers until no y has one. What is left is, over x,

        .. math:: T \ge \sum_k \min_i g_{ki} - \sum_i \mu_i M_i ,

        g the factors of x, of which each unit takes the least.
        """
        a = self.loads
        load = np.maximum(0.0, -self.load_row.values(dual))
        channel = np.maximum(0.0, -self.channel_row.values(dual))
        total = float(load.sum() + channel.sum())
        if not total > 0.0:
            return 0.0
        busy, into, out = (load @ self.rows).T
        into, out = into * a.pays, out * a.pays
        price = np.maximum(0.0, -self.memory_row.values(dual)) / _memory_scale(a.resident) * self.scale
        gone = {
            name: np.maximum(0.0, getattr(self, f"{name}_row").values(dual)) for name in ("in", "out", "send", "least")
        }
        times = np.where(np.isfinite(self.times), self.times, 0.0) / self.scale
        least = self.least / self.scale
        M = len(a.producer)
        # z[m, i]: its cost is what i's time out is worth.
        spent = gone["send"].sum(axis=2) + _by_message(gone["least"], self.message, M)
        fitting = np.minimum(1.0, _ratio(np.broadcast_to(out, spent.shape), spent)) * (1.0 - 1e-13)
        send, least_dual = gone["send"] * fitting[:, :, None], gone["least"] * fitting[self.message]
        # y[m, i, j]: its cost is what its time is worth to j, to channels, and to i.
        worth = into[None, None, :] + np.where(self.single[:, None, None], out[None, :, None], send)
        if len(channel):
            for k in (0, 1):
                on = a.channel_of[:, :, k]
                worth = worth + np.where(on >= 0, channel[np.maximum(on, 0)], 0.0)
        cost = worth * times
        come, go = (_by_message(gone[name], self.message, M) for name in ("in", "out"))
        asked = come[:, None, :] + go[:, :, None]
        free = self.y.at < 0  # no such transfer: nothing to be paid for
        ratio = np.where(free, 1.0, np.minimum(1.0, _ratio(cost, asked)) * (1.0 - 1e-13))
        come_in = gone["in"] * ratio.min(axis=1, initial=1.0)[self.message]
        go_out = gone["out"] * ratio.min(axis=2, initial=1.0)[self.message]
        # x[k, i]: computing and memory, and what transfers give or take.
        compute = np.where(a.allowed, self.compute, 0.0) / self.scale * busy
        factor = compute + price * a.resident[:, None] / self.scale
        size = np.abs(factor)
        for rows in (come_in, -go_out, -least_dual * least[self.message]):
            np.add.at(factor, self.reader, rows)
            np.subtract.at(factor, self.maker, rows)
            np.add.at(size, self.reader, np.abs(rows))
            np.add.at(size, self.maker, np.abs(rows))
        chosen = np.where(a.allowed, factor, np.inf).min(axis=1)
        room = float((price[self.limited] * a.capacity[self.limited]).sum()) / self.scale
        slack = ROUNDING * (float(np.where(a.allowed, size, 0.0).sum()) + room)
        return max(0.0, (float(chosen.sum()) - room - slack) / total * self.scale)

    def _model(self, highspy: Any) -> Any:
        a, D, entries = self.loads, len(self.problem.cluster), _Entries()
        k, i = np.nonzero(a.allowed)
        x = self.x.at[k, i]
        entries.add(self.unit_row.at[k], x, 1.0)
        entries.add(self.load_row.at[i, 0], x, self.compute[k, i] / self.scale)
        held = self.limited[i]
        entries.add(self.memory_row.at[i[held]], x[held], a.resident[k[held]] / _memory_scale(a.resident))
        m, s, t = np.nonzero(self.y.at >= 0)
        y, seconds = self.y.at[m, s, t], self.times[m, s, t] / self.scale
        pays, direct = a.pays[t], a.pays[s] & self.single[m]
        zm, zi = np.nonzero(self.z.at >= 0)
        for r, (_, into, out) in enumerate(self.rows.tolist()):
            if into:
                entries.add(self.load_row.at[t[pays], r], y[pays], into * seconds[pays])
            if out:
                entries.add(self.load_row.at[s[direct], r], y[direct], out * seconds[direct])
                entries.add(self.load_row.at[zi, r], self.z.at[zm, zi], out)
        for c in (0, 1) if self.channel_row.size else ():
            on = a.channel_of[s, t, c] >= 0
            entries.add(self.channel_row.at[a.channel_of[s, t, c][on]], y[on], seconds[on])
        sending = self.send_row.at[m, s, t] >= 0
        entries.add(self.send_row.at[m, s, t][sending], self.z.at[m, s][sending], 1.0)
        entries.add(self.send_row.at[m, s, t][sending], y[sending], -seconds[sending])
        entries.add(self.at_most, np.full(len(self.at_most), self.top), -1.0)
        for j in range(D):
            for table, one, other in ((self.in_row, self.reader, self.maker), (self.out_row, self.maker, self.reader)):
                rows = table.at[:, j]
                for units, sign in ((one, -1.0), (other, 1.0)):
                    columns = self.x.at[units, j]
                    entries.add(rows[columns >= 0], columns[columns >= 0], sign)
                for d in range(D):
                    pair = (d, j) if table is self.in_row else (j, d)
                    columns = self.y.at[self.message, pair[0], pair[1]]
                    entries.add(rows[columns >= 0], columns[columns >= 0], 1.0)
            rows, own = self.least_row.at[:, j], self.least[self.message, j] / self.scale
            there = rows >= 0
            entries.add(rows[there], self.z.at[self.message[there], j], 1.0)
            for units, sign in ((self.maker, -1.0), (self.reader, 1.0)):
                columns = self.x.at[units, j]
                both = there & (columns >= 0)
                entries.add(rows[both], columns[both], sign * own[both])
        extra = self._ordered(entries)
        return self._assembled(highspy, entries, extra)

    def _ordered(self, entries: _Entries) -> int:
        """Rows of contiguity along an order of the devices; how many."""
        if self.order is None:
            return 0
        row, a = self.n_rows, self.loads
        for tail, head in zip(a.order_tail.tolist(), a.order_head.tolist(), strict=True):
            for k in range(1, len(self.order)):
                for unit, sign in ((tail, 1.0), (head, -1.0)):
                    columns = self.x.at[unit, list(self.order[:k])]
                    columns = columns[columns >= 0]
                    entries.add(np.full(len(columns), row), columns, sign)
                row += 1
        return row - self.n_rows

    def _assembled(self, highspy: Any, entries: _Entries, extra: int) -> Any:
        a, inf, n = self.loads, highspy.kHighsInf, self.top + 1
        lower, upper = np.zeros(self.n_rows + extra), np.full(self.n_rows + extra, inf)
        lower[self.unit_row.at] = upper[self.unit_row.at] = 1.0
        lower[self.at_most], upper[self.at_most] = -inf, 0.0
        memory = self.memory_row.at[self.limited]
        lower[memory], upper[memory] = -inf, a.capacity[self.limited] / _memory_scale(a.resident)
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = n, self.n_rows + extra
        lp.col_cost_ = np.append(np.zeros(n - 1), 1.0)
        lp.col_lower_, lp.col_upper_ = np.zeros(n), np.full(n, inf)
        lp.row_lower_, lp.row_upper_ = lower, upper
        rows, columns, values = entries.arrays()
        by_column = np.lexsort((rows, columns))
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_ = np.searchsorted(columns[by_column], np.arange(n + 1)).astype(np.int32)
        lp.a_matrix_.index_ = rows[by_column].astype(np.int32)
        lp.a_matrix_.value_ = values[by_column]
        return lp


class _Entries:
    """Entries of a matrix, in pieces."""

    def __init__(self) -> None:
        self.rows: list[Ints] = []
        self.columns: list[Ints] = []
        self.values: list[Floats] = []

    def add(self, rows: Ints, columns: Ints, values: Floats | float) -> None:
        """Add entries; one value may stand for all."""
        self.rows.append(np.asarray(rows, dtype=np.int64))
        self.columns.append(np.asarray(columns, dtype=np.int64))
        self.values.append(np.broadcast_to(np.asarray(values, dtype=np.float64), self.rows[-1].shape))

    def arrays(self) -> tuple[Ints, Ints, Floats]:
        """Rows, columns, values; no entry stands twice."""
        return np.concatenate(self.rows), np.concatenate(self.columns), np.concatenate(self.values)


def too_large(problem: Problem) -> str | None:
    """Tell why the program is not solved for a problem; ``None`` when it is."""
    tensors, D = len(problem.graph.tensors), len(problem.cluster)
    if tensors * D * D > LARGEST:
        return f"{tensors} tensors on {D} devices are more than its linear program takes; use servers"
    return None


def pair_times(problem: Problem) -> Floats:
    """(M, D, D) seconds of each message between devices, ``inf`` where there is no way."""
    a = loads_of(one_copy(problem))
    for table in (a.pair_s, a.channel_s):
        if len(table) == len(a.producer) and len(table):
            return table
    D = len(a.pays)
    made = np.maximum(a.send_s[:, :, None] * a.pays[:, None], a.receive_s[:, None, :] * a.pays[None, :])
    return np.where(np.eye(D, dtype=bool), 0.0, made)


def _memory_scale(resident: Floats) -> float:
    return float(max(1.0, resident.max(initial=0.0)))


def _ratio(one: Floats, other: Floats) -> Floats:
    """``one / other``, ``inf`` where the latter is 0."""
    return np.asarray(np.divide(one, other, out=np.full(other.shape, np.inf), where=other > 0.0))


def _by_message(rows: Floats, message: Ints, M: int) -> Floats:
    """Sum rows (E, D) of readers to (M, D)."""
    summed = np.zeros((M, rows.shape[1]))
    np.add.at(summed, message, rows)
    return summed
