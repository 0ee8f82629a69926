"""Which path the spans are taken along, and between which of its operators."""

from __future__ import annotations

import numpy as np

from placewright.bounds.makespan.span import Reach
from placewright.bounds.makespan.span_times import NARROW, SpanTimes, finishes
from placewright.problem import Problem

__all__ = ["chain_of", "longest_path", "steps_of"]

FURTHEST = 64
"""Operators of a path within which the next that all others pass is looked for."""


def longest_path(problem: Problem) -> list[int]:
    """Operators of a path of most processing, each where it is fastest; of equal ones one with many operators."""
    graph = problem.graph
    least = np.where(problem.allowed, problem.times.processing_s, np.inf).min(axis=1)
    weight = least + 1e-6 * float(least.mean())
    reached, before = np.zeros(len(graph)), np.full(len(graph), -1)
    for v in range(len(graph)):
        for u in graph.predecessors[v]:
            if reached[u] > reached[v]:
                reached[v], before[v] = reached[u], u
        reached[v] += weight[v]
    path = [int(reached.argmax())]
    while before[path[-1]] >= 0:
        path.append(int(before[path[-1]]))
    return path[::-1]


def steps_of(problem: Problem, reach: Reach, path: list[int], largest: int) -> list[tuple[int, int]]:
    """Pairs of positions in the path, sorted by the second; -1 and ``len(path)`` stand for no operator.

    Each operator with the next of the path; with the next one y such that whatever is below the first is comparable
    to y; and with the last one x such that whatever is above it is comparable to x. Of spans of more than ``NARROW``
    operators inside only those that both rules name, and none of more than ``largest``.
    """
    m = len(path)
    ends: list[int | None] = [*path, None, None]  # ends[-1] is no operator, and so is ends[m]
    comparable = [reach.above[v] | reach.below[v] | 1 << v for v in path]
    steps = {(x, x + 1) for x in range(-1, m)}
    forward, backward = set[tuple[int, int]](), set[tuple[int, int]]()
    for x in range(-1, m):
        inside = reach.between(ends[x], None)
        for y in range(x + 1, min(m, x + 1 + FURTHEST)):
            if not inside & ~comparable[y]:
                forward.add((x, y))
                break
    for y in range(m + 1):
        inside = reach.between(None, ends[y])
        for x in range(y - 1, max(-1, y - 1 - FURTHEST), -1):
            if not inside & ~comparable[x]:
                backward.add((x, y))
                break
    both = forward & backward
    size = {(x, y): reach.between(ends[x], ends[y]).bit_count() for x, y in steps | forward | backward}
    small = [s for s, inner in size.items() if inner <= (largest if s in both else min(largest, NARROW))]
    return sorted(small, key=lambda s: (s[1], s[0]))


def chain_of(problem: Problem, path: list[int], steps: list[tuple[int, int]], times: SpanTimes) -> list[int]:
    """Operators of a path between whose spans the bound by spans has its longest way."""
    done, _ = finishes(problem, path, steps, times)
    ends: list[int | None] = [*path, None, None]
    into: dict[int, list[tuple[float, int]]] = {}
    for x, y in steps:
        way = ((done[x][:, None] if x >= 0 else 0.0) + times.of(ends[x], ends[y])).min()
        into.setdefault(y, []).append((float(way), x))
    at, chain = len(path), list[int]()
    while at >= 0:
        at = max(into[at])[1] if at in into else at - 1
        if at >= 0:
            chain.append(path[at])
    return chain[::-1]
