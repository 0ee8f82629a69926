"""The largest load of a device when units may be divided among devices: a linear program and its safe value."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright.algorithm import Budget
from placewright.highs import new_highs
from placewright.result import Result
from placewright.rounding import rounded_down

__all__ = ["divided_load"]

LARGEST_LP = 300_000
"""Most variables for which the linear program is solved; beyond, multiplicative weights alone."""


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
    weights, prices = _multiplicative_weights(times), np.zeros(times.shape[1])
    value = _lagrangian(times, resident, capacity, weights, prices)
    if times.size <= LARGEST_LP and not budget.spent:
        solved = _solve_lp(times, resident, capacity, budget)
        if solved is None:
            total, room = float(resident.sum()), float(capacity.sum())
            return Result(
                infeasible=f"weights and KV cache of {total:.0f} B don't fit the devices that may hold them "
                f"({room:.0f} B in all), even divided; allow more devices or raise their memory",
            )
        value = max(value, _lagrangian(times, resident, capacity, *solved))
    return Result(lower_bound_s=rounded_down(value))


def _lagrangian(
    times: npt.NDArray[np.float64],
    resident: npt.NDArray[np.float64],
    capacity: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64],
    prices: npt.NDArray[np.float64],
) -> float:
    weights = np.maximum(weights, 0.0)
    total = weights.sum()
    if total <= 0.0:
        return 0.0
    limited = np.isfinite(capacity)
    prices = np.where(limited, np.maximum(prices, 0.0), 0.0) / total
    with np.errstate(invalid="ignore"):
        # A device without weight still can't run what it may not run: inf stays inf.
        weighted = np.where(np.isfinite(times), times, 0.0) * (weights / total) + np.where(
            np.isfinite(times), 0.0, np.inf
        )
    chosen = (weighted + resident[:, None] * prices).min(axis=1)
    return max(0.0, float(chosen.sum() - (prices[limited] * capacity[limited]).sum()))


def _multiplicative_weights(times: npt.NDArray[np.float64], rounds: int = 60) -> npt.NDArray[np.float64]:
    """Weights of the devices that make the Lagrangian without memory large; any weights would be legal."""
    D = times.shape[1]
    weights = np.full(D, 1.0 / D)
    best, best_value = weights, -1.0
    finite = np.where(np.isfinite(times), times, 0.0)
    for k in range(rounds):
        weighted = np.where(np.isfinite(times), finite * weights, np.inf)
        choice = weighted.argmin(axis=1)
        value = float(weighted[np.arange(len(times)), choice].sum())
        if value > best_value:
            best, best_value = weights, value
        load = np.bincount(choice, weights=finite[np.arange(len(times)), choice], minlength=D)
        peak = load.max(initial=0.0)
        if peak <= 0.0:
            break
        weights = weights * np.exp(0.5 / np.sqrt(k + 1.0) * load / peak)
        weights = weights / weights.sum()
    return best


def _solve_lp(
    times: npt.NDArray[np.float64], resident: npt.NDArray[np.float64], capacity: npt.NDArray[np.float64], budget: Budget
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None:
    """Dual multipliers of the loads and of the memories, or ``None`` when the program is infeasible."""
    import highspy

    units, D = times.shape
    scale = float(np.where(np.isfinite(times), times, 0.0).max(initial=0.0)) or 1.0
    rows, columns = np.nonzero(np.isfinite(times))
    n_x = len(rows)
    limited = np.flatnonzero(np.isfinite(capacity))
    lp = highspy.HighsLp()
    inf = highspy.kHighsInf
    n_rows = units + D + len(limited)
    lp.num_col_, lp.num_row_ = n_x + 1, n_rows
    lp.col_cost_ = np.append(np.zeros(n_x), 1.0)
    lp.col_lower_, lp.col_upper_ = np.zeros(n_x + 1), np.full(n_x + 1, inf)
    memory_scale = float(max(1.0, resident.max(initial=0.0)))
    lp.row_lower_ = np.concatenate([np.ones(units), np.full(D + len(limited), -inf)])
    lp.row_upper_ = np.concatenate([np.ones(units), np.zeros(D), capacity[limited] / memory_scale])
    memory_row = np.full(D, -1)
    memory_row[limited] = units + D + np.arange(len(limited))
    has_memory = memory_row[columns] >= 0
    # Three entries a column at most: its unit's row, its device's load, its device's memory; then T's column.
    entry_row = np.concatenate([rows, units + columns, memory_row[columns][has_memory], units + np.arange(D)])
    entry_column = np.concatenate([np.arange(n_x), np.arange(n_x), np.flatnonzero(has_memory), np.full(D, n_x)])
    entry_value = np.concatenate(
        [np.ones(n_x), times[rows, columns] / scale, resident[rows][has_memory] / memory_scale, np.full(D, -1.0)]
    )
    by_column = np.lexsort((entry_row, entry_column))
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.searchsorted(entry_column[by_column], np.arange(n_x + 2)).astype(np.int32)
    lp.a_matrix_.index_ = entry_row[by_column].astype(np.int32)
    lp.a_matrix_.value_ = entry_value[by_column]
    solver = new_highs()
    solver.setOptionValue("time_limit", max(0.1, min(budget.left_s, 1e6)))
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
    return -dual[units : units + D], prices
