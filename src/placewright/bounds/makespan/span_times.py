"""How long spans take for each pair of devices at their ends, and what follows for a path of them."""

from __future__ import annotations

from math import inf

import numpy as np
import numpy.typing as npt

from placewright._kernel.energy import least_energy
from placewright._kernel.path import heads
from placewright._kernel.span_search import least_time, scratch_for
from placewright.algorithm import Budget
from placewright.arrays import arrays_of
from placewright.bounds.makespan.span import Reach, Span, alike_devices, span_between
from placewright.problem import Problem

__all__ = ["SpanTimes", "finishes"]

Floats = npt.NDArray[np.float64]

WIDE = 10
"""Operators from which a span is also bounded by the load of its devices between heads and tails."""

FREE: Floats = np.zeros((0, 0))
"""No tolls."""


class SpanTimes:
    """V[u, v, i, j] for all devices, each distinct span searched once.

    Parameters
    ----------
    problem : Problem
    reach : Reach
    budget : Budget
        Once it is spent, spans are bounded by their longest paths.
    nodes, work : int
        Most nodes of one search, and nodes times operators times (devices + 4) of all.
    """

    def __init__(self, problem: Problem, reach: Reach, budget: Budget, nodes: int, work: int) -> None:
        self.problem, self.reach, self.budget, self.nodes, self.work = problem, reach, budget, nodes, work
        self.alike = alike_devices(problem)
        self._known: dict[bytes, Floats] = {}

    def of(self, entry: int | None, last: int | None) -> Floats:
        """(D, D) seconds; one row without an entry, one column without an exit."""
        span = span_between(self.problem, entry, last, self.reach.between(entry, last))
        if span.key not in self._known:
            self._known[span.key] = self._search(span)
        return self._known[span.key]

    def _search(self, span: Span) -> Floats:
        D = len(self.alike)
        rows, columns = (1 if end is None else D for end in (span.entry, span.exit))
        found = np.full((rows, columns), inf)
        seen: dict[tuple[int, int, bool], float] = {}
        for i in range(rows):
            for j in range(columns):
                same = span.entry is not None and span.exit is not None and i == j
                kind = int(self.alike[i]), int(self.alike[j]), same
                if kind not in seen:
                    seen[kind] = self._least(span, i, j)
                found[i, j] = seen[kind]
        return found

    def _least(self, span: Span, i: int, j: int) -> float:
        network, allowed = span.placed(i, j)
        if not allowed.any(axis=1).all():
            return inf
        least = least_energy(network, scratch_for(network)) if len(span.operators) >= WIDE else 0.0
        size = len(span.operators) * (len(self.alike) + 4)
        nodes = 1 if self.budget.spent else max(1, min(self.nodes, self.work // size))
        price = np.where(allowed, 0.0, inf)
        value, made, _ = least_time(
            network, span.unit_ptr, span.member, price, FREE, 1.0, self.alike, inf, nodes, scratch_for(network)
        )
        self.work -= abs(made) * size
        return max(float(value), float(least))


def finishes(problem: Problem, path: list[int], steps: list[tuple[int, int]], times: SpanTimes) -> tuple[Floats, float]:
    """Bound when each operator of a path has been processed, and the makespan.

    Parameters
    ----------
    path : list of int
        Operators, each an ancestor of the next.
    steps : list of (int, int)
        Positions in the path, sorted by the second: -1 stands for time 0, ``len(path)`` for the makespan.

    Returns
    -------
    done : (len(path), D) array
        f: ``inf`` where an operator may not run.
    last : float
        A bound of the makespan from the spans that end with it; 0 without.
    """
    _, done = heads(arrays_of(problem).network)
    done, last = done[path], 0.0
    for x, y in steps:
        taken = times.of(None if x < 0 else path[x], None if y == len(path) else path[y])
        reached = ((done[x][:, None] if x >= 0 else 0.0) + taken).min(axis=0)
        if y == len(path):
            last = max(last, float(reached[0]))
        else:
            done[y] = np.maximum(done[y], reached)
    return done, last
