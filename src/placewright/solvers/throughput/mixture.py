"""Placements of one copy as columns of a linear program: the best shares of given copies, and which copies to take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from placewright.algorithm import Budget
from placewright.evaluate import plan_for
from placewright.evaluate.throughput import copy_violations, parts_of, sync_of
from placewright.highs import new_highs
from placewright.objective import load_rows
from placewright.one_copy import throughput_of
from placewright.plan import Copy, Plan, Provenance
from placewright.problem import Problem

__all__ = ["Column", "Mixture", "Pool", "best_shares"]

Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]

LEAST_SHARE = 1e-9
"""Smaller shares are left out."""

CANDIDATES = 10
"""Columns that are tried, in the order of their priced loads, before a choice counts as the best of its kind."""


@dataclass(frozen=True, eq=False)
class Column:
    """A copy that breaks no rule of its own.

    Attributes
    ----------
    device_of : (n,) int32
    load : (R,) float64
        Seconds a sample of what must not exceed the time per sample: one to three rows of each device's load
        (:func:`placewright.objective.load_rows`; devices first), and channels.
    """

    device_of: npt.NDArray[np.int32]
    load: Floats


@dataclass(frozen=True, eq=False)
class Mixture:
    """Shares of columns, the time per sample that they give, and what a second of each part of the loads is worth."""

    value_s: float
    shares: Floats
    prices: Floats


def best_shares(loads: Floats, fixed: Floats) -> Mixture:
    """Minimise T such that shares s of sum 1 keep sum_k s_k loads[k, r] + fixed[r] <= T (HiGHS).

    A copy's variable is its share times its largest load, so that loads of any size can stand side by side.

    Parameters
    ----------
    loads : (K, R) array of seconds
    fixed : (R,) array of seconds
    """
    import highspy

    K, R = loads.shape
    alone = (loads + fixed).max(axis=1)
    first = int(alone.argmin())
    scale = float(alone[first])
    if K == 1 or scale == 0.0:
        return Mixture(scale, np.eye(K)[first], np.eye(R)[int((loads[first] + fixed).argmax())])
    size = np.maximum(1.0, loads.max(axis=1) / scale)
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = K + 1, R + 1
    lp.col_cost_ = np.append(np.zeros(K), 1.0)
    lp.col_lower_, lp.col_upper_ = np.zeros(K + 1), np.full(K + 1, highspy.kHighsInf)
    lp.row_lower_ = np.append(np.full(R, -highspy.kHighsInf), 1.0)
    lp.row_upper_ = np.append(-fixed / scale, 1.0)
    dense = np.zeros((K + 1, R + 1))
    dense[:K, :R], dense[:K, R], dense[K, :R] = loads / scale / size[:, None], 1.0 / size, -1.0
    columns, rows = np.nonzero(dense)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.searchsorted(columns, np.arange(K + 2)).astype(np.int32)
    lp.a_matrix_.index_ = rows.astype(np.int32)
    lp.a_matrix_.value_ = dense[columns, rows]
    solver = new_highs()
    solver.passModel(lp)
    solver.run()
    solution = solver.getSolution()
    shares = np.maximum(0.0, np.asarray(solution.col_value, dtype=np.float64)[:K]) / size
    if not shares.sum() > 0.5:
        shares = np.eye(K)[first]
    shares /= shares.sum()
    prices = np.maximum(0.0, -np.asarray(solution.row_dual, dtype=np.float64)[:R])
    return Mixture(float((shares @ loads + fixed).max()), shares, prices / (prices.sum() or 1.0))


class Pool:
    """Columns that were met, and the choice among them.

    Without memory limits that bind and without synchronisation all columns may be mixed: one linear program. Otherwise
    what the copies hold together must fit and is synchronised, and sets of columns are searched: from the best known
    set one column is added, or dropped, or both, as long as that helps.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        cluster, operators = problem.cluster, problem.graph.operators
        self.columns: list[Column] = []
        self._known: dict[bytes, int] = {}
        self._loads = np.zeros((0, 0))
        self.trains = any(v.backward for v in operators) and any(v.weight_bytes for v in operators)
        self.limited = bool((cluster.capacity_bytes < problem.resident_bytes.sum()).any())
        self._rows = load_rows(throughput_of(problem))

    @property
    def free(self) -> bool:
        """Whether any columns may be mixed."""
        return not (self.trains or self.limited)

    @property
    def loads(self) -> Floats:
        """(K, R) loads of all columns."""
        if len(self._loads) != len(self.columns):
            self._loads = np.array([column.load for column in self.columns])
        return self._loads

    def add(self, device_of: npt.ArrayLike) -> int | None:
        """Take a placement in; its number, or ``None`` where it breaks a rule."""
        device = np.ascontiguousarray(device_of, dtype=np.int32)
        key = device.tobytes()
        if key in self._known:
            return self._known[key] if self._known[key] >= 0 else None
        self._known[key] = -1
        held = np.bincount(device, weights=self.problem.resident_bytes, minlength=len(self.problem.cluster))
        if (held > self.problem.cluster.capacity_bytes).any():
            return None
        if next(copy_violations(self.problem, [Copy(device, 1.0)]), None) is not None:
            return None
        self._known[key] = len(self.columns)
        self.columns.append(Column(device, self._load(device)))
        return self._known[key]

    def _load(self, device: npt.NDArray[np.int32]) -> Floats:
        parts = parts_of(self.problem, device)
        summed = [of_c * parts.compute + of_i * parts.enters + of_o * parts.leaves for of_c, of_i, of_o in self._rows]
        return np.concatenate([*summed, parts.channels])

    def mixed(self, numbers: Sequence[int]) -> Mixture:
        """Best shares of a set of columns; an infinite value where they don't fit together."""
        chosen = self.loads[list(numbers)]
        fixed = np.zeros(chosen.shape[1])
        if not self.free and len(numbers) > 1:
            n, D = self.problem.times.processing_s.shape
            held = np.zeros((n, D), dtype=np.bool_)
            for k in numbers:
                held[np.arange(n), self.columns[k].device_of] = True
            nothing = Mixture(inf, np.zeros(len(numbers)), np.zeros(chosen.shape[1]))
            if (self.problem.resident_bytes @ held > self.problem.cluster.capacity_bytes).any():
                return nothing
            if self.trains:
                sync, unlinked = sync_of(self.problem, held)
                if unlinked:
                    return nothing
                fixed[: len(self._rows) * D] = np.tile(sync, len(self._rows))
        return best_shares(chosen, fixed)

    def best(self, start: Sequence[int], budget: Budget) -> tuple[list[int], Mixture]:
        """Best choice of columns that is found, from one that fits."""
        if self.free:
            everything = list(range(len(self.columns)))
            return everything, self.mixed(everything)
        numbers, mixture = self._used(list(start), self.mixed(start))
        while not budget.spent:
            found = self._better(numbers, mixture, budget)
            if found is None:
                break
            numbers, mixture = self._used(*found)
        return numbers, mixture

    def _used(self, numbers: list[int], mixture: Mixture) -> tuple[list[int], Mixture]:
        """Leave out what has no share: it would be held for nothing."""
        kept = [k for k, share in zip(numbers, mixture.shares.tolist(), strict=True) if share > LEAST_SHARE]
        return (numbers, mixture) if len(kept) == len(numbers) or not kept else (kept, self.mixed(kept))

    def _better(self, numbers: list[int], mixture: Mixture, budget: Budget) -> tuple[list[int], Mixture] | None:
        limit = mixture.value_s * (1.0 - 1e-9)
        priced = self.loads @ mixture.prices
        order = [k for k in np.argsort(priced, kind="stable").tolist() if k not in numbers]
        alone = np.argsort(self.loads.max(axis=1), kind="stable").tolist()
        others = list(dict.fromkeys([*order[:CANDIDATES], *[k for k in alone if k not in numbers][:CANDIDATES]]))
        tries = [[x for x in numbers if x != k] for k in numbers if len(numbers) > 1]
        tries += [[*numbers, k] for k in others]
        tries += [[*(x for x in numbers if x != gone), k] for gone in numbers for k in others]
        best: tuple[list[int], Mixture] | None = None
        for tried in tries:
            if budget.spent:
                break
            found = self.mixed(tried)
            if found.value_s < limit:
                limit, best = found.value_s * (1.0 - 1e-9), (tried, found)
        return best

    def plan(self, numbers: Sequence[int], mixture: Mixture, provenance: Provenance) -> Plan | None:
        """Make the plan of a choice."""
        copies = [
            Copy(self.columns[k].device_of, share)
            for k, share in zip(numbers, mixture.shares.tolist(), strict=True)
            if share > LEAST_SHARE
        ]
        if not copies:
            return None
        return plan_for(self.problem, copies[0].device_of, copies=copies, provenance=provenance)
