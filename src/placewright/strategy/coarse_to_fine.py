"""Annealing of the max-load level by level: at first of large groups of units, at last of single ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from placewright.algorithm import Budget, OnProgress, Progress, ignore
from placewright.evaluate import plan_for
from placewright.loads import Loads, loads_of
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.max_load.annealing import LoadAnnealing

__all__ = ["CoarseToFine", "nested_groups"]

Ints = npt.NDArray[np.intp]

LEVELS = ((25, 0.3), (50, 0.1), (100, 0.05), (200, 0.02), (400, 0.01))
"""A group has at most this part of all work, and the temperature that its level starts at."""

LAST_HOT = 0.005
"""Temperature of the last level, of single units."""

SWEEPS = 3
"""Times that groups are joined at a level."""


@dataclass(frozen=True, slots=True)
class CoarseToFine:
    """``annealing`` on groups that share a device, ever smaller ones, each level from the plan of the one before.

    Units of a network with large tensors seldom move alone, and regions that grow breadth-first cut many tensors.
    Groups are joined along the tensors that take longest, so that what is between them is cheap to send. A group is a
    colocation class of a problem that is otherwise the same: its plans are plans of the problem. Multilevel refinement
    is what graph partitioners do (Karypis and Kumar 1998). ``iterations`` of the budget count moves, of all levels.
    """

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Improve on ``incumbent``; never worse."""
        begun, value_s = budget.elapsed_s, np.inf if incumbent is None else incumbent.value_s

        def report(progress: Progress) -> None:
            if progress.value_s < value_s:
                on_progress(progress)

        best: Plan | None = None
        levels = [*nested_groups(loads_of(problem), tuple(parts for parts, _ in LEVELS)), None]
        hots = [*(hot for _, hot in LEVELS), LAST_HOT]
        for k, (groups, hot) in enumerate(zip(levels, hots, strict=True)):
            if budget.spent and best is not None:
                break
            level = problem if groups is None else _grouped(problem, groups)
            part = budget.share(1.0 / (len(levels) - k))
            if budget.iterations is not None:
                part = replace(part, iterations=max(1, budget.iterations // len(levels)))
            start = None if best is None else plan_for(level, best.device_of)
            found = LoadAnnealing(hot=hot, cycles=2)(level, budget=part, rng=rng, incumbent=start, on_progress=report)
            best = best if found.plan is None else found.plan
        plan = None if best is None else plan_for(problem, best.device_of, provenance=best.provenance)
        if plan is None or plan.value_s >= value_s:
            plan = incumbent
        return Result(plan, solver="annealing", runtime_s=budget.elapsed_s - begun)


def nested_groups(a: Loads, parts: tuple[int, ...]) -> list[Ints]:
    """Return the group of each unit for each number of parts, groups of more parts inside those of fewer.

    Joined are the groups between which most is sent, in seconds, as long as both together have no more than 1/parts of
    all work, each unit where it is fastest, and may run on the same devices.

    Parameters
    ----------
    a : Loads
    parts : tuple of int
        Ascending.

    Returns
    -------
    list of (U,) array of int
        In the order of ``parts``; a group is named by one of its units.
    """
    work = np.where(a.allowed, a.compute_s.sum(axis=0), np.inf).min(axis=1, initial=np.inf)
    work = np.where(np.isfinite(work), work, 0.0)
    may = [row.tobytes() for row in a.allowed]
    sent = np.maximum(a.send_s.max(axis=1, initial=0.0), a.receive_s.max(axis=1, initial=0.0))
    size, parent = work.copy(), np.arange(a.n_units)

    def group(unit: int) -> int:
        while parent[unit] != unit:
            parent[unit] = parent[parent[unit]]
            unit = int(parent[unit])
        return unit

    found = []
    for most in sorted(parts, reverse=True):
        for _ in range(SWEEPS):
            between: dict[tuple[int, int], float] = {}
            for u, producer in enumerate(a.producer.tolist()):
                one = group(producer)
                others = {group(k) for k in a.reader[a.reader_ptr[u] : a.reader_ptr[u + 1]].tolist()} - {one}
                for other in sorted(others):
                    ends = min(one, other), max(one, other)
                    between[ends] = between.get(ends, 0.0) + float(sent[u])
            for x, y in sorted(between, key=lambda e: (-between[e], size[e[0]] + size[e[1]], e)):
                one, other = group(x), group(y)
                if one != other and may[one] == may[other] and size[one] + size[other] <= work.sum() / most:
                    parent[other] = one
                    size[one] += size[other]
        found.append(np.array([group(k) for k in range(a.n_units)], dtype=np.intp))
    return found[::-1]


def _grouped(problem: Problem, groups: Ints) -> Problem:
    """Return the problem with a colocation class for each group."""
    a = loads_of(problem)
    members: dict[int, list[int]] = {}
    for unit, group in enumerate(groups.tolist()):
        members.setdefault(group, []).extend(a.members(unit).tolist())
    classes = [tuple(sorted(row)) for row in members.values() if len(row) > 1]
    return replace(problem, graph=replace(problem.graph, colocation=tuple(classes)))
