"""Every placement of a small network as a column: the best shares, memory and synchronisation, proved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product
from math import inf
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from placewright.algorithm import Budget, OnProgress, Progress, ignore
from placewright.arrays import arrays_of
from placewright.evaluate.throughput import sync_of
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result
from placewright.rounding import rounded_down
from placewright.solvers.mip_run import LEAST_MARGIN, UNITS, run_mip
from placewright.solvers.throughput.mixture import Pool

__all__ = ["CopiesExact"]

Floats: TypeAlias = npt.NDArray[np.float64]

MOST_PLACEMENTS = 20_000
"""Placements of the units that are tried."""

MOST_HOLDERS = 60_000
"""Units times sets of devices that may hold one, of the integer program."""

MOST_RUNS = 50
"""Of the integer program, each without what the one before held a few bytes too many of."""

NAME = "copies-exact"


@dataclass(frozen=True, slots=True)
class CopiesExact:
    """Find the best shares of all placements that break no rule.

    Without memory limits that bind and without synchronisation this is one linear program over the placements, and its
    proof a weighted load: for weights w >= 0 of the parts of the loads of sum 1, any plan takes at least the least of
    w loads over all placements, which is computed by trying them. Otherwise an integer program (HiGHS): z[k, S] = 1
    where exactly the devices S hold unit k; the shares of placements with k on i sum to at most sum of z[k, S] over S
    that have i; S takes memory, and when training 2 (r - 1) / r x weight bytes / bandwidth / period of each of its r
    devices. Sets that synchronise for longer than the best single placement takes are left out, and the variable of a
    placement is its share times its largest load, so that times of any size can stand side by side: an absolute
    tolerance must not be worth a share. Solutions that hold a few bytes too many, which the solver does not see, are
    barred and the program is solved again. Its bound is lowered by the tolerances of HiGHS.

    Guarantee: exact; bounds are lowered by the tolerances of HiGHS.
    Complexity: all D^U placements of U units, at most 20,000.
    Source: ours.
    When to use: for networks of a few units, and to judge the other methods by.
    """

    threads: int = 2

    def supports(self, problem: Problem) -> str | None:
        """Tell why a problem is out of reach; ``None`` when it isn't."""
        number = 1.0
        for allowed in arrays_of(problem).allowed.sum(axis=1).tolist():
            number *= max(1, allowed)
        if number > MOST_PLACEMENTS:
            return f"it tries every placement, and there are more than {MOST_PLACEMENTS:,}"
        if len(arrays_of(problem).allowed) * 2.0 ** len(problem.cluster) > MOST_HOLDERS:
            return (
                f"it tries every set of devices that may hold an operator, and of {len(problem.cluster)} are too many"
            )
        return None

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Solve; a budget that is spent before all placements are tried gives the incumbent."""
        begun, pool = budget.elapsed_s, Pool(problem)
        unit_of = arrays_of(problem).unit_of
        for placement in _placements(problem):
            if budget.spent:
                return Result(incumbent, solver=NAME, runtime_s=budget.elapsed_s - begun)
            pool.add(placement[unit_of])
        if not pool.columns:
            reason = "no placement respects devices, colocation, contiguity, links and memory (all were tried)"
            return Result(infeasible=reason, solver=NAME, runtime_s=budget.elapsed_s - begun)
        everything = list(range(len(pool.columns)))
        if pool.free:
            mixture = pool.mixed(everything)
            found = pool.plan(everything, mixture, Provenance(NAME))
            bound = rounded_down(float((pool.loads @ mixture.prices).min()))
        else:
            found, bound = self._mixed_whole(pool, budget, rng, on_progress)
        if found is None or (incumbent is not None and incumbent.value_s <= found.value_s):
            found = incumbent
        if found is not None:
            bound = min(bound, rounded_down(found.value_s))
        return Result(found, bound, "", budget.elapsed_s - begun, NAME, {NAME: bound})

    def _mixed_whole(
        self, pool: Pool, budget: Budget, rng: np.random.Generator, on_progress: OnProgress
    ) -> tuple[Plan | None, float]:
        program = _Program(pool)
        best: list[Plan | None] = [None]
        last: list[Floats] = []

        def offer(numbers: list[int]) -> None:
            mixture = pool.mixed(numbers)
            found = pool.plan(numbers, mixture, Provenance(NAME)) if mixture.value_s < inf else None
            if found is not None and (best[0] is None or found.value_s < best[0].value_s):
                best[0] = found

        def improve(values: Floats) -> None:
            last[:] = [values]
            for numbers in program.chosen(values):
                if numbers:
                    offer(numbers)

        def report(units: float) -> None:
            value = inf if best[0] is None else best[0].value_s
            on_progress(Progress(NAME, value, program.claimed(units), budget.elapsed_s))

        offer([int(pool.loads.max(axis=1).argmin())])
        seed, bound = int(rng.integers(2**31 - 1)), 0.0
        for _ in range(MOST_RUNS):
            run = run_mip(
                program.model(),
                budget=budget,
                threads=self.threads if budget.iterations is None else 1,
                seed=seed,
                start=None,
                on_solution=improve,
                on_bound=report,
                mip_feasibility_tolerance=1e-9,
            )
            bound = max(bound, program.claimed(run.bound))
            if budget.spent or not last or not program.overfull(last[0]):
                break
        return best[0], bound


def _placements(problem: Problem) -> Iterator[npt.NDArray[np.int32]]:
    """(U,) devices of the units, every combination that is allowed."""
    choices = [np.flatnonzero(row).tolist() for row in arrays_of(problem).allowed]
    for chosen in product(*choices):
        yield np.array(chosen, dtype=np.int32)


class _Program:
    """Shares of columns, then z[k, S], then T; rows: shares sum to 1, one S a unit, holding, memory, loads."""

    def __init__(self, pool: Pool) -> None:
        self.pool, problem = pool, pool.problem
        a, D = arrays_of(problem), len(problem.cluster)
        self.K, self.R = pool.loads.shape
        U = len(a.resident)
        limit = float(pool.loads.max(axis=1).min())
        self.scale = limit / UNITS or 1.0
        self.size = np.maximum(1.0, pool.loads.max(axis=1) / (self.scale * UNITS))
        self.sets: list[tuple[int, tuple[int, ...], Floats]] = []
        for k in range(U):
            devices = np.flatnonzero(a.allowed[k]).tolist()
            for r in range(1, len(devices) + 1):
                for held_by in combinations(devices, r):
                    sync = self._sync(a.member[a.member_ptr[k] : a.member_ptr[k + 1]].tolist(), held_by)
                    if sync is not None and not sync.max() > limit * (1.0 + LEAST_MARGIN):
                        self.sets.append((k, held_by, sync))
        share = (1.0 / self.size).tolist()
        self.rows: list[tuple[dict[int, float], float, float]] = [(dict(enumerate(share)), 1.0, 1.0)]
        inside: dict[tuple[int, int], list[int]] = {}
        own: list[list[int]] = [[] for _ in range(U)]
        for x, (k, held_by, _) in enumerate(self.sets):
            own[k].append(self.K + x)
            for i in held_by:
                inside.setdefault((k, i), []).append(self.K + x)
        self.rows += [(dict.fromkeys(sets, 1.0), 1.0, 1.0) for sets in own]
        self.unit_device = np.zeros((self.K, U), dtype=np.int64)
        for c, column in enumerate(pool.columns):
            self.unit_device[c, a.unit_of] = column.device_of
        for (k, i), holders in sorted(inside.items()):
            row = {c: share[c] for c in np.flatnonzero(self.unit_device[:, k] == i).tolist()}
            self.rows.append((row | dict.fromkeys(holders, -1.0), -inf, 0.0))
        most = max(1.0, float(a.resident.max(initial=0.0)))
        for i in np.flatnonzero(np.isfinite(a.capacity)).tolist():
            row = {self.K + x: float(a.resident[k]) / most for x, (k, s, _) in enumerate(self.sets) if i in s}
            self.rows.append((row, -inf, float(a.capacity[i]) / most))
        top = self.K + len(self.sets)
        parts = self.R - len(problem.cluster.channels)
        for r in range(self.R):
            row = {c: float(x) / self.scale * share[c] for c, x in enumerate(pool.loads[:, r].tolist()) if x}
            if r < parts:
                i = r % D
                row |= {self.K + x: float(s[i]) / self.scale for x, (_, _, s) in enumerate(self.sets) if s[i]}
            self.rows.append((row | {top: -1.0}, -inf, 0.0))
        self.top = top

    def _sync(self, members: list[int], held_by: tuple[int, ...]) -> Floats | None:
        """Seconds a sample by device of keeping a unit's weights on several; ``None`` where they can't be."""
        problem = self.pool.problem
        held = np.zeros(problem.times.processing_s.shape, dtype=np.bool_)
        held[np.ix_(members, held_by)] = True
        sync, unlinked = sync_of(problem, held)
        return None if unlinked else sync

    def chosen(self, values: Floats) -> Iterator[list[int]]:
        """Columns that may be mixed by a solution: those with a share, and all that its sets hold."""
        yield np.flatnonzero(values[: self.K] / self.size > 1e-7).tolist()
        may = np.zeros((self.unit_device.shape[1], len(self.pool.problem.cluster)), dtype=np.bool_)
        for (k, held_by, _), used in zip(self.sets, values[self.K : self.top].tolist(), strict=True):
            if used > 0.5:
                may[k, list(held_by)] = True
        yield np.flatnonzero(may[np.arange(len(may)), self.unit_device].all(axis=1)).tolist()

    def overfull(self, values: Floats) -> bool:
        """Whether a solution holds more than fits, by no more than the solver's tolerance; bars it from now on.

        Units that don't fit a device together are not all on it: a cover inequality.
        """
        a, found = arrays_of(self.pool.problem), False
        held = [s for s, used in zip(self.sets, values[self.K : self.top].tolist(), strict=True) if used > 0.5]
        for i in np.flatnonzero(np.isfinite(a.capacity)).tolist():
            cover = [k for k, held_by, _ in held if i in held_by]
            if sum(int(a.resident[k]) for k in cover) > a.capacity[i]:
                row = {self.K + x: 1.0 for x, (k, s, _) in enumerate(self.sets) if i in s and k in cover}
                self.rows.append((row, -inf, len(cover) - 1.0))
                found = True
        return found

    def claimed(self, units: float) -> float:
        """Seconds that a bound of the solver says for sure: a share may be off by its tolerance, a row too."""
        if not np.isfinite(units):
            return 0.0
        return rounded_down(max(0.0, units) * self.scale * (1.0 - LEAST_MARGIN))

    def model(self) -> Any:
        """Make the program for HiGHS."""
        import highspy

        n, infinite = self.top + 1, highspy.kHighsInf
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = n, len(self.rows)
        lp.col_cost_ = np.append(np.zeros(n - 1), 1.0)
        lp.col_lower_, lp.col_upper_ = np.zeros(n), np.append(np.ones(n - 1), infinite)
        lp.row_lower_ = np.array([-infinite if low == -inf else low for _, low, _ in self.rows])
        lp.row_upper_ = np.array([high for _, _, high in self.rows])
        kinds = highspy.HighsVarType
        lp.integrality_ = [kinds.kContinuous] * self.K + [kinds.kInteger] * len(self.sets) + [kinds.kContinuous]
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.concatenate([[0], np.cumsum([len(row) for row, _, _ in self.rows])]).astype(np.int32)
        lp.a_matrix_.index_ = np.array([c for row, _, _ in self.rows for c in row], dtype=np.int32)
        lp.a_matrix_.value_ = np.array([x for row, _, _ in self.rows for x in row.values()])
        return lp
