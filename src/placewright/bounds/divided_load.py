"""The largest load of a device when units may be divided among devices: a linear program and its safe value."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from placewright._kernel.divided import multiplicative_weights, priced_sum
from placewright.algorithm import Budget
from placewright.highs import new_highs
from placewright.result import Result
from placewright.rounding import rounded_down

__all__ = ["divided_load"]

Floats: TypeAlias = npt.NDArray[np.float64]

LARGEST_LP = 300_000
"""Most variables, alike units and devices merged, of the linear program; beyond, multiplicative weights alone."""

LP_SHARE = 0.1
"""Of the budget, for the linear program."""

ROUNDS = 60
"""Of multiplicative weights."""


def divided_load(
    times: npt.NDArray[np.float64], resident: npt.NDArray[np.float64], capacity: npt.NDArray[np.float64], budget: Budget
) -> Result:
    """Minimise T such that each unit k is divided among its devices, no load exceeds T and memory holds.

    minimise T subject to sum_i x[k, i] = 1, sum_k p[k, i] x[k, i] <= T and sum_k m[k] x[k, i] <= M_i, x >= 0.

    The value that is returned is not the solver's: its dual multipliers w (of the loads, scaled to sum 1) and mu (of
    the memories) are put into the Lagrangian sum_k min_i (w_i p[k, i] + mu_i m_k) - sum_i mu_i M_i, which is a lower
    bound for *any* w, mu >= 0, whatever the solver's tolerances. Complexity: one linear program (HiGHS).

    Parameters
    ----------
    times : (U, D) array
        Seconds, ``inf`` where a unit may not run; each unit may run somewhere.
    resident : (U,) array
        Bytes.
    capacity : (D,) array
        Bytes, ``inf`` without a limit.
    budget : Budget

    Returns
    -------
    Result
        ``lower_bound_s``, or ``infeasible`` when memory doesn't suffice even for divided units.
    """
    merged = _merged(np.ascontiguousarray(times), resident, capacity)
    weights = multiplicative_weights(merged.times, merged.units, merged.copies, ROUNDS)
    value = _lagrangian(merged, weights, np.zeros(len(merged.copies)))
    if merged.times.size <= LARGEST_LP and not budget.spent:
        solved = _solve_lp(merged, budget)
        if solved is None:
            total, room = float(resident.sum()), float(capacity.sum())
            return Result(
                infeasible=f"what operators hold, {total:.0f} B, doesn't fit the devices that may hold it "
                f"({room:.0f} B in all), even divided; allow more devices or raise their memory",
            )
        value = max(value, _lagrangian(merged, *solved))
    return Result(lower_bound_s=rounded_down(value))


class _Merged(NamedTuple):
    """Alike units as one row, alike devices as one column."""

    times: Floats
    """(U, D) seconds of one unit."""
    resident: Floats
    """(U,) bytes of one unit."""
    units: Floats
    """(U,) units in the row."""
    capacity: Floats
    """(D,) bytes of one device."""
    copies: Floats
    """(D,) devices in the column."""


def _merged(times: Floats, resident: Floats, capacity: Floats) -> _Merged:
    """Merge alike devices, then alike units.

    The program is convex and doesn't change when alike devices, or alike units, change places: it has a solution in
    which they are all used alike.
    """
    _, first, copies = np.unique(_hashes(np.vstack([capacity, times]).T), return_index=True, return_counts=True)
    order = np.argsort(first, kind="stable")
    first, copies = first[order], copies[order]
    times = np.ascontiguousarray(times[:, first])
    _, row, count = np.unique(_hashes(np.column_stack([resident, times])), return_index=True, return_counts=True)
    order = np.argsort(row, kind="stable")
    row, count = row[order], count[order]
    return _Merged(times[row], resident[row], count.astype(np.float64), capacity[first], copies.astype(np.float64))


def _hashes(rows: Floats) -> npt.NDArray[np.void]:
    """Each row as one value, equal where the rows are."""
    rows = np.ascontiguousarray(rows + 0.0)  # -0.0 is 0.0
    return rows.view(np.dtype((np.void, rows.shape[1] * rows.itemsize))).ravel()


def _lagrangian(merged: _Merged, weights: Floats, prices: Floats) -> float:
    """Value for multipliers of the columns: ``weights`` of all devices in one, ``prices`` of a byte in each."""
    weights = np.maximum(weights, 0.0)
    total = weights.sum()
    if total <= 0.0:
        return 0.0
    limited = np.isfinite(merged.capacity)
    prices = np.where(limited, np.maximum(prices, 0.0), 0.0) / total
    chosen = priced_sum(merged.times, merged.resident, merged.units, weights / total / merged.copies, prices)
    room = prices[limited] * merged.capacity[limited] * merged.copies[limited]
    return max(0.0, chosen - float(room.sum()))


def _solve_lp(merged: _Merged, budget: Budget) -> tuple[Floats, Floats] | None:
    """Dual multipliers of the loads and of the memories, or ``None`` when the program is infeasible.

    x[k, i] counts the units of row k on the devices of column i together; T stands for the load of one device.
    """
    import highspy

    times, resident, copies = merged.times, merged.resident, merged.copies
    units, D = times.shape
    scale = float(np.where(np.isfinite(times), times, 0.0).max(initial=0.0)) or 1.0
    rows, columns = np.nonzero(np.isfinite(times))
    n_x = len(rows)
    limited = np.flatnonzero(np.isfinite(merged.capacity))
    lp = highspy.HighsLp()
    inf = highspy.kHighsInf
    n_rows = units + D + len(limited)
    lp.num_col_, lp.num_row_ = n_x + 1, n_rows
    lp.col_cost_ = np.append(np.zeros(n_x), 1.0)
    lp.col_lower_, lp.col_upper_ = np.zeros(n_x + 1), np.full(n_x + 1, inf)
    memory_scale = float(max(1.0, resident.max(initial=0.0)))
    lp.row_lower_ = np.concatenate([merged.units, np.full(D + len(limited), -inf)])
    lp.row_upper_ = np.concatenate([merged.units, np.zeros(D), (copies * merged.capacity)[limited] / memory_scale])
    memory_row = np.full(D, -1)
    memory_row[limited] = units + D + np.arange(len(limited))
    has_memory = memory_row[columns] >= 0
    # Three entries a column at most: its unit's row, its device's load, its device's memory; then T's column.
    entry_row = np.concatenate([rows, units + columns, memory_row[columns][has_memory], units + np.arange(D)])
    entry_column = np.concatenate([np.arange(n_x), np.arange(n_x), np.flatnonzero(has_memory), np.full(D, n_x)])
    entry_value = np.concatenate(
        [np.ones(n_x), times[rows, columns] / scale, resident[rows][has_memory] / memory_scale, -copies]
    )
    by_column = np.lexsort((entry_row, entry_column))
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.searchsorted(entry_column[by_column], np.arange(n_x + 2)).astype(np.int32)
    lp.a_matrix_.index_ = entry_row[by_column].astype(np.int32)
    lp.a_matrix_.value_ = entry_value[by_column]
    solver = new_highs()
    # Multipliers of a program that wasn't finished are legal ones too.
    solver.setOptionValue("time_limit", max(0.1, min(LP_SHARE * budget.left_s, 1e6)))
    solver.passModel(lp)
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return None
    dual = np.asarray(solver.getSolution().row_dual, dtype=np.float64)
    if len(dual) != n_rows:
        return np.ones(D), np.zeros(D)
    prices = np.zeros(D)
    prices[limited] = -dual[units + D :] * scale / memory_scale
    return -dual[units : units + D] * copies, prices
