"""The best split of a row of groups that is found where the recurrence of ``chain_split`` is not the judge's.

A split is an order of devices and how many groups each takes. One after another is changed as long as the judge finds a
better one; where all splits are few enough, all are judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, groupby, permutations
from math import comb, perm

import numpy as np
import numpy.typing as npt

from placewright.algorithm import Budget
from placewright.evaluate import evaluate, plan_for
from placewright.objective import MaxLoad, Offload
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.solvers.chain_split import ChainSplit, placed, split_chain

__all__ = ["best_row"]

Row = tuple[tuple[int, int], ...]
"""Blocks in their order: a device, and how many groups it takes."""

MOST_RETRIES = 16
MOST_SPLITS = 4096
"""Of which each is judged, where there are no more."""
MOST_STARTS = 16
"""Random changes of the best split, from which the search goes on, one after another without a better one."""
STEPS = (1, -1, 2, -2, 4, -4)
"""Groups that an end of a block is moved by."""


def best_row(
    problem: Problem,
    groups: Sequence[Sequence[int]],
    devices: Sequence[int],
    first_only: Sequence[int],
    clock: Budget,
    rng: np.random.Generator,
) -> tuple[Plan | None, bool]:
    """Split groups that stand in a row among devices, each of which takes one block of groups or none.

    What :func:`placewright.solvers.chain_split.split_chain` finds is judged, with less memory where live tensors don't
    fit. Where it is not exact, it and the best splits without one of the devices are improved: ends are moved, blocks
    change their device with each other or with one that has none, begin and vanish, as long as the judge finds a better
    split; then the best one is changed at random and improved again. If there are no more than :data:`MOST_SPLITS`
    splits, all of the others are judged, which is a proof under ``max-load`` alone: of a makespan the judge knows one
    order of each device's operators, and another may be better.

    Parameters
    ----------
    problem : Problem
    groups : sequence of sequence of int
        Operators of each group; edges between groups go forward.
    devices, first_only : sequence of int
        That may be used, and of them those that may take the first block only.
    clock : Budget
        Its iterations are splits judged; many more than any case needs by default.
    rng : numpy.random.Generator

    Returns
    -------
    plan : Plan or None
        ``None`` where none that fits is found.
    proved : bool
        Whether no other split is better; of ``None``, whether none fits.
    """
    split, plan, exact = _split(problem, groups, devices, first_only)
    if plan is not None and exact:
        return plan, True
    search = _Search(problem, groups, devices, first_only, clock)
    for left_out in (None, *devices) if len(devices) > 1 else (None,):
        if left_out is not None:
            split, plan, _ = _split(problem, groups, [i for i in devices if i != left_out], first_only)
        if split is not None:
            search.improve(_blocks(split.device_of_group))
        if search.spent:
            break
    search.improve_at_random(rng)
    all_judged = _number(len(groups), len(devices), len(first_only)) <= MOST_SPLITS and search.judge_all()
    return search.best, all_judged and isinstance(problem.objective, MaxLoad)  # no order of operators counts in it


def _split(
    problem: Problem, groups: Sequence[Sequence[int]], devices: Sequence[int], first_only: Sequence[int]
) -> tuple[ChainSplit | None, Plan | None, bool]:
    """Split by the recurrence, with less memory where live tensors need it; with whether that is the best of all."""
    capacity = np.array(problem.cluster.capacity_bytes, dtype=np.float64)
    first = [i for i in first_only if i in devices]
    split = None
    for retry in range(MOST_RETRIES):
        found = split_chain(problem, groups, devices, first_only=first, capacity_bytes=capacity)
        if found is None:
            break
        split = found
        device = placed(problem, groups, split.device_of_group)
        plan = plan_for(problem, device)
        if plan is not None:
            return split, plan, split.exact and retry == 0
        used = evaluate(problem, device).devices
        over = [u.memory_bytes - limit for u, limit in zip(used, problem.cluster.capacity_bytes, strict=True)]
        if max(over) <= 0:
            break
        capacity -= np.maximum(over, 0)
    return split, None, False


def _blocks(at: Sequence[int]) -> Row:
    return tuple((i, len(list(row))) for i, row in groupby(at))


def _number(groups: int, devices: int, first_only: int) -> int:
    """Count the splits of a row: an order of some devices, and the ends of their blocks.

    Examples
    --------
    >>> _number(3, 2, 0), _number(3, 2, 1)  # two devices alone, and ab and ba with two ends each; of these ab alone
    (6, 4)
    """
    others = devices - first_only
    orders = [perm(others, k) + first_only * perm(others, k - 1) for k in range(1, min(groups, devices) + 1)]
    return sum(n * comb(groups - 1, k) for k, n in enumerate(orders))


class _Search:
    """Splits that were judged, and the best plan of them."""

    def __init__(
        self,
        problem: Problem,
        groups: Sequence[Sequence[int]],
        devices: Sequence[int],
        first_only: Sequence[int],
        clock: Budget,
    ) -> None:
        self.problem, self.groups, self.devices, self.clock = problem, groups, list(devices), clock
        self.first_only = set(first_only)
        self.best: Plan | None = None
        self.best_row: Row = ()
        self.judged: dict[Row, float] = {}
        rows = [list(row) for row in groups]
        p = np.where(problem.allowed, problem.times.processing_s, 0.0)
        if isinstance(problem.objective, Offload):  # CPUs run operators side by side
            p = p * np.array([d.kind != "cpu" for d in problem.cluster.devices])
        self.work = _sums(np.array([p[row].sum(axis=0) for row in rows]))
        self.never = _sums(np.array([(~problem.allowed[row]).any(axis=0) for row in rows], dtype=np.float64))
        self.held = _sums(np.array([[problem.resident_bytes[row].sum(dtype=np.float64)] for row in rows]))[:, 0]

    @property
    def spent(self) -> bool:
        limit = self.clock.iterations
        return self.clock.spent or (limit is not None and len(self.judged) >= limit)

    def value(self, row: Row) -> float:
        """Judge a split; ``inf`` where it breaks a rule or can't be better than the best."""
        if row in self.judged:
            return self.judged[row]
        value, low = np.inf, 0
        for i, count in row:
            high = low + count
            if self.never[high, i] > self.never[low, i]:
                break
            if self.held[high] - self.held[low] > self.problem.cluster.capacity_bytes[i]:
                break
            if self.best is not None and self.work[high, i] - self.work[low, i] > self.best.value_s:
                break  # one device alone takes longer
            low = high
        else:
            at = [i for i, count in row for _ in range(count)]
            plan = plan_for(self.problem, placed(self.problem, self.groups, at))
            if plan is not None:
                value = plan.value_s
                if self.best is None or value < self.best.value_s * (1 - 1e-9):
                    self.best, self.best_row = plan, row
        self.judged[row] = value
        return value

    def improve(self, row: Row) -> None:
        """Go to the first better neighbour until there is none."""
        value, better = self.value(row), True
        while better and not self.spent:
            better = False
            for other in self.neighbours(row):
                if self.spent:
                    return
                found = self.value(other)
                if found < value * (1 - 1e-9):
                    row, value, better = other, found, True
                    break

    def improve_at_random(self, rng: np.random.Generator) -> None:
        """Change the best split at random and improve that, until it was in vain :data:`MOST_STARTS` times."""
        tries = 0
        while tries < MOST_STARTS and not self.spent:
            before = self.best_row
            row = before
            for _ in range(3):
                others = list(self.neighbours(row)) if row else []
                row = others[int(rng.integers(len(others)))] if others else self.any_row(rng)
            self.improve(row)
            tries = 0 if self.best_row != before else tries + 1

    def any_row(self, rng: np.random.Generator) -> Row:
        """Draw an order of devices and the ends of their blocks."""
        m = len(self.groups)
        order = [int(i) for i in rng.permutation(self.devices)][: int(rng.integers(1, min(m, len(self.devices)) + 1))]
        order.sort(key=lambda i: i not in self.first_only)
        while len([i for i in order if i in self.first_only]) > 1:
            order.pop(0)
        ends = sorted(int(k) for k in rng.choice(np.arange(1, m), len(order) - 1, replace=False))
        return tuple((i, high - low) for i, low, high in zip(order, [0, *ends], [*ends, m], strict=True))

    def judge_all(self) -> bool:
        """Judge every split; with whether there was time for all."""
        m = len(self.groups)
        for used in range(1, min(len(self.devices), m) + 1):
            for order in permutations(self.devices, used):
                if self.first_only.intersection(order[1:]):
                    continue
                for ends in combinations(range(1, m), used - 1):
                    if self.spent:
                        return False
                    self.value(tuple((i, b - a) for i, a, b in zip(order, (0, *ends), (*ends, m), strict=True)))
        return True

    def neighbours(self, row: Row) -> Iterator[Row]:
        """Change a split by one end, one device, one block more or less."""
        for other in self._changed(row):
            if not self.first_only.intersection(i for i, _ in other[1:]):
                yield other

    def _changed(self, row: Row) -> Iterator[Row]:
        n = len(row)
        for k in range(n - 1):
            (a, count), (b, more) = row[k], row[k + 1]
            for step in STEPS:
                if count + step > 0 and more - step > 0:
                    yield (*row[:k], (a, count + step), (b, more - step), *row[k + 2 :])
        for k, j in combinations(range(n), 2):
            swapped = list(row)
            swapped[k], swapped[j] = (row[j][0], row[k][1]), (row[k][0], row[j][1])
            yield tuple(swapped)
            swapped[k], swapped[j] = row[j], row[k]
            yield tuple(swapped)
        unused = [i for i in self.devices if all(i != d for d, _ in row)]
        for k, (i, count) in enumerate(row):
            for e in unused:
                yield (*row[:k], (e, count), *row[k + 1 :])
            if k:
                yield (*row[: k - 1], (row[k - 1][0], row[k - 1][1] + count), *row[k + 1 :])
            if k + 1 < n:
                yield (*row[:k], (row[k + 1][0], row[k + 1][1] + count), *row[k + 2 :])
            for e in unused:
                for step in sorted({1, 2, count // 2} & set(range(1, count))):
                    yield (*row[:k], (e, step), (i, count - step), *row[k + 1 :])
                    yield (*row[:k], (i, count - step), (e, step), *row[k + 1 :])


def _sums(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Sum the first k rows, for each k."""
    return np.concatenate([np.zeros((1, rows.shape[1])), np.cumsum(rows, axis=0)])
