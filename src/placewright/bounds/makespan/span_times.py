"""How long spans take for each pair of devices at their ends, and what follows for a path of them."""

from __future__ import annotations

from math import inf

import numpy as np
import numpy.typing as npt

from placewright._kernel.energy import least_energy
from placewright._kernel.path import heads, tails
from placewright._kernel.span_search import least_time, scratch_for
from placewright.algorithm import Budget
from placewright.arrays import arrays_of
from placewright.bounds.makespan.span import Reach, Span, alike_devices, span_between
from placewright.problem import Problem

__all__ = ["NARROW", "SpanTimes", "bound_along", "finishes"]

Floats = npt.NDArray[np.float64]

WIDE = 10
"""Operators from which a span is also bounded by the load of its devices between heads and tails."""

NARROW = 40
"""Operators up to which a span is searched: of wider ones a search sees too little to be worth its time."""

SPAN_WORK, OPERATOR_WORK, CALL_WORK, ENERGY_WORK = 3_000, 300, 1_000, 30
"""What it takes to cut out a span and each of its operators, to call a search, and for the load between heads and tails
of an operator, in nodes of the search of one operator."""

FREE: Floats = np.zeros((0, 0))
"""No tolls."""


class SpanTimes:
    """V[u, v, i, j] for all devices, each distinct span searched once.

    Parameters
    ----------
    problem : Problem
    reach : Reach
    budget : Budget
    nodes, work : int
        Most nodes of one search, and nodes times operators times (devices + 4) of all; what else is done counts in the
        same unit. Once it, or the budget, is spent, a span takes what the tensor from its entry to its exit takes.
    """

    def __init__(self, problem: Problem, reach: Reach, budget: Budget, nodes: int, work: int) -> None:
        self.problem, self.reach, self.budget, self.nodes, self.work = problem, reach, budget, nodes, work
        self.alike = alike_devices(problem)
        self._known: dict[bytes, Floats] = {}
        self._at: dict[tuple[int | None, int | None], bytes] = {}

    def of(self, entry: int | None, last: int | None) -> Floats:
        """(D, D) seconds; one row without an entry, one column without an exit."""
        if (entry, last) in self._at:
            return self._known[self._at[entry, last]]
        if self.work <= 0 or self.budget.spent:
            return self._edge(entry, last)
        span = span_between(self.problem, entry, last, self.reach.between(entry, last))
        self._at[entry, last] = span.key
        if span.key not in self._known:
            self._known[span.key] = self._search(span)
        self.work -= SPAN_WORK + OPERATOR_WORK * len(span.operators)
        return self._known[span.key]

    def _edge(self, entry: int | None, last: int | None) -> Floats:
        """Bound by the tensors from entry to exit alone."""
        g = arrays_of(self.problem).network
        if last is None:
            return np.zeros((1 if entry is None else len(self.alike), 1))
        if entry is None:
            return np.array(g.processing[last][None, :])
        crossing = np.zeros((len(self.alike),) * 2)
        for u in range(g.made_ptr[entry], g.made_ptr[entry + 1]):
            if last in g.reader[g.reader_ptr[u] : g.reader_ptr[u + 1]]:
                way = g.transfer[u] if g.transfer.shape[0] else g.latency + g.size[u] * g.per_byte
                crossing = np.maximum(crossing, way + g.cut[entry][:, None] + g.cut[last])
        np.fill_diagonal(crossing, 0.0)
        return np.asarray(crossing + g.processing[last], dtype=np.float64)

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
        least, size = 0.0, len(span.operators) * (len(self.alike) + 4)
        if len(span.operators) >= WIDE:
            least = least_energy(network, scratch_for(network))
            self.work -= ENERGY_WORK * size
        nodes = max(1, min(self.nodes, self.work // size)) if len(span.operators) <= NARROW else 1
        price = np.where(allowed, 0.0, inf)
        value, made, _ = least_time(
            network, span.unit_ptr, span.member, price, FREE, 1.0, self.alike, inf, nodes, scratch_for(network)
        )
        self.work -= abs(made) * size + CALL_WORK
        return max(float(value), least)


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
    ends = [(None if x < 0 else path[x], None if y == len(path) else path[y]) for x, y in steps]
    for entry, exit_ in ends:  # wide ones first, before the others have used up the work
        if times.reach.between(entry, exit_).bit_count() > NARROW:
            times.of(entry, exit_)
    for (x, y), (entry, exit_) in zip(steps, ends, strict=True):
        taken = times.of(entry, exit_)
        reached = ((done[x][:, None] if x >= 0 else 0.0) + taken).min(axis=0)
        if y == len(path):
            last = max(last, float(reached[0]))
        else:
            done[y] = np.maximum(done[y], reached)
    return done, last


def bound_along(problem: Problem, path: list[int], steps: list[tuple[int, int]], times: SpanTimes) -> float:
    """Bound the makespan by a path of spans, and what must come behind each of its operators."""
    done, last = finishes(problem, path, steps, times)
    tail, _ = tails(arrays_of(problem).network)
    return max(last, *(float((done[k] + tail[v]).min()) for k, v in enumerate(path)))
