"""When operators can run: heads and tails of a constraint program, lengthened by spans."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright._kernel.path import heads, tails
from placewright._kernel.schedule import Network
from placewright.algorithm import Budget
from placewright.arrays import arrays_of
from placewright.bounds.makespan.span import Reach
from placewright.bounds.makespan.span_times import SpanTimes
from placewright.problem import Problem

__all__ = ["windows_of"]

Floats = npt.NDArray[np.float64]

MOST_OPERATORS = 500
"""Operators up to which spans are searched: between all pairs of them those of few operators are picked."""

LARGEST_SPAN, SPANS_AN_OPERATOR = 8, 2
"""Most operators inside a span, and how many spans, the largest ones, end with each operator."""

NODES, WORK = 100, 3_000_000
"""Most nodes of one search, and of all, times operators times (devices + 4): a tenth of a second."""


def windows_of(problem: Problem, budget: Budget) -> tuple[Floats, Floats, Floats]:
    """Bound what must pass before and after an operator on a device.

    Let V[u, v, i, j] bound the time from the end of u's processing on i to that of v's on j, from the operators that
    are both below u and above v (:class:`placewright.bounds.makespan.span_times.SpanTimes`): branches between them
    follow each other on one device or pay for the transfers. With c the crossing of a tensor from u to v,

    done[v, j] = max(begun by the tensors that v reads + p[v, j], max over spans of min over i of done[u, i] + V),

    and likewise backwards for the tail t[u, i] after u's processing. What must pass after its finish, of which the
    overhead of a cut behind u is a part already, is at least t[u, i] - cut[u, i].

    Returns
    -------
    ready, done, after : (n, D)
        Seconds, as by ``heads`` and ``tails`` of :mod:`placewright._kernel.path`, and never less.
    """
    g = arrays_of(problem).network
    (ready, done), (tail, after) = heads(g), tails(g)
    n = len(problem.graph)
    if n <= MOST_OPERATORS:
        spans = _spans(problem, budget)
        into: list[list[int]] = [[] for _ in range(n)]
        out_of: list[list[int]] = [[] for _ in range(n)]
        for u, v in spans:
            into[v].append(u)
            out_of[u].append(v)
        _forward(g, spans, into, ready, done)
        _backward(g, spans, out_of, tail, after)
    return ready, done, after


def _spans(problem: Problem, budget: Budget) -> dict[tuple[int, int], Floats]:
    """(u, v) -> V, small spans first, so that large ones take what is left of the work."""
    reach = Reach.of(problem)
    size: dict[tuple[int, int], int] = {}
    for v in range(len(problem.graph)):
        above = ((reach.between(u, v).bit_count(), u) for u in range(v))
        for inner, u in sorted((s for s in above if 0 < s[0] <= LARGEST_SPAN), reverse=True)[:SPANS_AN_OPERATOR]:
            size[u, v] = inner
    times = SpanTimes(problem, reach, budget, NODES, WORK)
    return {pair: times.of(*pair) for pair in sorted(size, key=lambda e: (size[e], e))}


def _crossings(g: Network, u: int) -> Floats:
    """(D, D) seconds that tensor u takes between devices; none to stay."""
    taken = g.transfer[u].copy() if g.transfer.shape[0] else g.latency + g.size[u] * g.per_byte
    np.fill_diagonal(taken, 0.0)
    return np.asarray(taken, dtype=np.float64)


def _forward(
    g: Network, spans: dict[tuple[int, int], Floats], into: list[list[int]], ready: Floats, done: Floats
) -> None:
    elsewhere = 1.0 - np.eye(done.shape[1])
    for v in range(len(done)):
        begun = np.zeros(done.shape[1])
        for u in g.read[g.read_ptr[v] : g.read_ptr[v + 1]]:
            x = int(g.producer[u])
            there = done[x][:, None] + g.cut[x][:, None] * elsewhere + _crossings(g, int(u))
            ready[v] = np.maximum(ready[v], there.min(axis=0))
            begun = np.maximum(begun, (there + g.cut[v] * elsewhere).min(axis=0))
        done[v] = np.maximum(done[v], begun + g.processing[v])
        for x in into[v]:
            done[v] = np.maximum(done[v], (done[x][:, None] + spans[x, v]).min(axis=0))


def _backward(
    g: Network, spans: dict[tuple[int, int], Floats], out_of: list[list[int]], tail: Floats, after: Floats
) -> None:
    elsewhere = 1.0 - np.eye(tail.shape[1])
    for v in range(len(tail) - 1, -1, -1):
        for u in range(g.made_ptr[v], g.made_ptr[v + 1]):
            for x in g.reader[g.reader_ptr[u] : g.reader_ptr[u + 1]]:
                rest = _crossings(g, u) + g.cut[x] * elsewhere + g.processing[x] + tail[x]
                after[v] = np.maximum(after[v], rest.min(axis=1))
                tail[v] = np.maximum(tail[v], (rest + g.cut[v][:, None] * elsewhere).min(axis=1))
        for x in out_of[v]:
            tail[v] = np.maximum(tail[v], (spans[v, x] + tail[x]).min(axis=1))
            after[v] = np.maximum(after[v], tail[v] - g.cut[v])
