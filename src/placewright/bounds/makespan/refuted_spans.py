"""A series of wide spans, each shown to take longer than one time after another."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

import numpy as np
import numpy.typing as npt

from placewright._kernel.span_refute import FOUND, REFUTED, UNKNOWN, refute
from placewright._kernel.span_search import SpanScratch, scratch_for
from placewright.algorithm import Budget, OnProgress, Progress, ignore
from placewright.bounds.makespan.span import Reach, Span, span_between
from placewright.bounds.makespan.span_path import chain_of, longest_path, steps_of
from placewright.bounds.makespan.span_times import SpanTimes, bound_along
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.result import Result
from placewright.rounding import rounded_down

__all__ = ["RefutedSpans"]

log = logging.getLogger(__name__)

Floats = npt.NDArray[np.float64]

MOST_OPERATORS, MOST_DEVICES = 5_000, 16
"""Up to which the bound is tried."""

LARGEST_SPAN = 2_000
"""Most operators inside a step of the path that the start comes from."""

NODES, WORK = 2_000, 12_000_000
"""Limits of the searches for the start; see :class:`placewright.bounds.makespan.span_times.SpanTimes`."""

FIRST_SHARE = 0.2
"""Part of the budget for them."""

FEW, MORE = 300, 4
"""Nodes of a search when all is tried for the first time, and by what they grow each further time."""

AT_ONCE = 500
"""Nodes between two looks at the budget: parts of a second."""

LEAP, LEAST_LEAP = 0.03, 0.0005
"""Part by which a span's time is raised, at first and at least."""

SMALL_LEAP = 0.004
"""Part below which more nodes are better than a smaller leap."""

MET = 1.0 - 1e-9
"""Part of a value that is as good as the value."""


@dataclass(eq=False)
class _Pair:
    """A span with its ends on two devices: what is known of its time, and how to raise it."""

    span: Span
    entry: int
    exit: int
    seconds: float
    leap: float = LEAP
    closed: bool = False
    stuck: bool = False


@dataclass(frozen=True, slots=True)
class RefutedSpans:
    """Bound the makespan by spans of up to ``widest`` operators, one after the other.

    Let c_1, ..., c_K be operators of a path and V_k(i, j) a bound of the time from when c_k on i has been processed
    until c_k+1 on j has been (see :func:`placewright.bounds.makespan.spans.spans`). The makespan is at least the
    shortest path over (k, i) with steps V_k. V comes from the spans inside at first. Then, again and again, the steps
    on the shortest path are raised: a time is *refuted* when a depth-first search finds no placement of the span's
    operators that could meet it (:func:`placewright._kernel.span_refute.refute`). To know the time beforehand is what
    makes it strong: each device where an operator would be too late is struck out in every node, so that the heads and
    tails of the others grow, and what is left must fit the devices between heads and tails.

    Guarantee: holds for every contention, colocation and memory; a span's schedule is part of the whole one. Memory is
    not seen. Any-time. ``budget.iterations``: searches, 300 by default with no limit of time. Beyond 5,000 operators or
    16 devices: none, with a reason in the log.

    Complexity: exponential in the operators of a span; a node takes O(E D^2) for itself and for each of ``tried`` x D
    trials.
    Source: ours, of placements; destructive bounds are Klein and Scholl's (1999) for scheduling with resources.
    When to use: given time, where ``spans`` leaves a gap and branches are wide.

    Attributes
    ----------
    widest : int
        Operators inside a span up to which neighbours are joined.
    tried : int
        Units that are tried in a node before one is branched on.

    Examples
    --------
    Two branches of 2 s between two operators of 1 s; to send a tensor takes 3 s. One device takes 6 s; two
    take 1 + 3 + 2 + 3 + 1 s.

    >>> from placewright import Cluster, Device, Link, Operator, OperatorGraph, Tensor
    >>> tensors = [Tensor("x", 0, (1, 2), 9), Tensor("y", 1, (3,), 9), Tensor("z", 2, (3,), 9)]
    >>> graph = OperatorGraph([Operator(v) for v in "abcd"], tensors)
    >>> pair = Cluster([Device("g0"), Device("g1")], [Link(0, 3, link_class="same-host")])
    >>> problem = Problem(graph, pair, [[1.0, 1.0], [2.0, 2.0], [2.0, 2.0], [1.0, 1.0]])
    >>> found = RefutedSpans()(problem, budget=Budget(60, iterations=50), rng=np.random.default_rng(0))
    >>> round(found.lower_bound_s, 3)
    6.0
    """

    widest: int = 100
    tried: int = 40

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Bound up to the value of ``incumbent``."""
        begun, target = budget.elapsed_s, inf if incumbent is None else incumbent.value_s
        if not 0 < len(problem.graph) <= MOST_OPERATORS or len(problem.cluster) > MOST_DEVICES:
            log.info("no bound by refuted spans: more than %d operators or %d devices", MOST_OPERATORS, MOST_DEVICES)
            return Result(solver="refuted-spans")
        if not problem.allowed.any(axis=1).all():
            return Result(solver="refuted-spans")  # the checks of feasibility say why
        reach, path = Reach.of(problem), longest_path(problem)
        times = SpanTimes(problem, reach, budget.share(FIRST_SHARE), NODES, WORK)
        steps = steps_of(problem, reach, path, LARGEST_SPAN)
        best = rounded_down(bound_along(problem, path, steps, times))
        if not np.isfinite(best):
            return Result(solver="refuted-spans")  # the critical path says why
        chain = _joined(reach, chain_of(problem, path, steps, times), self.widest)
        series = _Series(problem, reach, chain, path, steps, times)
        for value in self._raised(series, budget, target):
            if value > best:
                best = value
                on_progress(Progress("refuted-spans", inf, best, budget.elapsed_s))
            if best >= target * MET:
                break
        bounds = {"refuted-spans": best} if best > 0.0 else {}
        return Result(lower_bound_s=best, bounds=bounds, solver="refuted-spans", runtime_s=budget.elapsed_s - begun)

    def _raised(self, series: _Series, budget: Budget, target: float) -> Iterator[float]:
        """Yield a bound whenever a step of the shortest path has been raised."""
        searches = budget.iterations
        if searches is None:
            searches = 300 if np.isinf(budget.seconds) else 10**9
        nodes = FEW
        total, way = series.shortest()
        yield rounded_down(total)
        while searches > 0 and not budget.spent and np.isfinite(total):
            todo = [pair for pair in way if not pair.closed and not pair.stuck]
            if not todo:
                if all(pair.closed for pair in way):
                    return  # no search proves more
                nodes *= MORE
                for pair in series.pairs():
                    pair.stuck = False
                continue
            pair = max(todo, key=lambda p: p.leap * p.seconds)
            limit = pair.seconds + max(pair.leap * pair.seconds, 1e-12)
            if np.isfinite(target):
                limit = min(limit, pair.seconds + max(0.0, target - total))
            outcome = series.refuted(pair, limit, nodes, self.tried, budget)
            searches -= 1
            if outcome == REFUTED:
                pair.seconds = limit
                total, way = series.shortest()
                yield rounded_down(total)
                continue
            pair.leap /= 3.0
            if pair.leap < (LEAST_LEAP if outcome == FOUND else SMALL_LEAP):
                pair.leap = LEAP / 3.0
                pair.closed, pair.stuck = outcome == FOUND, True


def _joined(reach: Reach, chain: list[int], widest: int) -> list[int]:
    """Leave out operators of a chain as long as no more than ``widest`` lie between two that are left."""
    kept, last = list[int](), None
    for k, v in enumerate(chain):
        further = chain[k + 1] if k + 1 < len(chain) else None
        if reach.between(last, further).bit_count() > widest:
            kept.append(v)
            last = v
    return kept


@dataclass(frozen=True, eq=False)
class _Series:
    """Spans one after the other, and what is known of each pair of devices at their ends."""

    problem: Problem
    reach: Reach
    chain: list[int]
    path: list[int]
    steps: list[tuple[int, int]]
    times: SpanTimes
    _pairs: dict[tuple[bytes, int, int, bool], _Pair] = field(default_factory=dict)
    _steps: list[list[list[_Pair | None]]] = field(default_factory=list)
    _scratch: dict[bytes, SpanScratch] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ends: list[int | None] = [None, *self.chain, None]
        D = len(self.problem.cluster)
        for k in range(len(ends) - 1):
            entry, last = ends[k], ends[k + 1]
            span = span_between(self.problem, entry, last, self.reach.between(entry, last))
            rows = [self._along(entry, last, i) for i in range(1 if entry is None else D)]
            columns = range(1 if last is None else D)
            self._steps.append([[self._pair(span, i, j, float(row[j])) for j in columns] for i, row in enumerate(rows)])

    def _pair(self, span: Span, i: int, j: int, seconds: float) -> _Pair | None:
        """One object for all that are equal; none where the ends may not be there."""
        if not np.isfinite(seconds) or not span.placed(i, j)[1].any(axis=1).all():
            return None
        alike, both = self.times.alike, span.entry is not None and span.exit is not None
        at = span.key, int(alike[i]), int(alike[j]), both and i == j
        pair = self._pairs.setdefault(at, _Pair(span, i, j, seconds))
        pair.seconds = max(pair.seconds, seconds)
        return pair

    def _along(self, entry: int | None, last: int | None, i: int) -> Floats:
        """(D,) time from ``entry`` on i until ``last`` has been processed, by the steps between them."""
        m, D = len(self.path), len(self.times.alike)
        x = -1 if entry is None else self.path.index(entry)
        y = m if last is None else self.path.index(last)
        ends: list[int | None] = [*self.path, None, None]
        done = np.zeros((m + 2, D))
        if entry is not None:
            done[x] = inf
            done[x, i] = 0.0
        for a, b in self.steps:
            if x <= a and b <= y:
                taken = self.times.of(ends[a], ends[b])
                before = done[a][:, None] if a >= 0 else 0.0
                done[b] = np.maximum(done[b], (before + taken).min(axis=0))
        return np.asarray(done[y], dtype=np.float64)

    def pairs(self) -> Iterator[_Pair]:
        """All there are."""
        yield from self._pairs.values()

    def shortest(self) -> tuple[float, list[_Pair]]:
        """Length of the shortest path, and its steps."""
        reached: list[tuple[float, tuple[_Pair, ...]]] = [(0.0, ())]
        for step in self._steps:
            fresh = list[tuple[float, tuple[_Pair, ...]]]()
            for j in range(len(step[0])):
                best: tuple[float, tuple[_Pair, ...]] = (inf, ())
                for (so_far, way), row in zip(reached, step, strict=True):
                    pair = row[j]
                    if pair is not None and so_far + pair.seconds < best[0]:
                        best = so_far + pair.seconds, (*way, pair)
                fresh.append(best)
            reached = fresh
        return reached[0][0], list(reached[0][1])

    def refuted(self, pair: _Pair, limit: float, nodes: int, tried: int, budget: Budget) -> int:
        """Outcome of one search for a placement that takes at most ``limit``."""
        span = pair.span
        network, allowed = span.placed(pair.entry, pair.exit)
        bits = (allowed * (1 << np.arange(allowed.shape[1]))).sum(axis=1).astype(np.int32)
        processing = network.processing.copy()
        if span.key not in self._scratch:
            self._scratch[span.key] = scratch_for(network)
        U, D = allowed.shape
        stack = np.zeros((U * D + 2, U), dtype=np.int32)
        stack[0], size = bits, 1
        while True:
            outcome, size = refute(
                network, processing, span.unit_ptr, span.member, self.times.alike, limit, stack, size,
                min(nodes, AT_ONCE), tried, self._scratch[span.key],
            )  # fmt: skip
            nodes -= AT_ONCE
            if outcome != UNKNOWN or nodes <= 0 or budget.spent:
                return int(outcome)
