"""A population of placements with orders: what is drawn at random, bred, and judged."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placewright._kernel.anneal import Limits, cost_of
from placewright._kernel.compiling import inner, kernel
from placewright._kernel.schedule import Network, Workspace

__all__ = ["Population", "appraise", "breed", "scatter"]

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class Population(NamedTuple):
    """P chromosomes of two strings each."""

    device: Ints
    """(P, n) matching string: the device of each operator."""
    order: Ints
    """(P, n) scheduling string: a topological order of the operators."""
    cost: Floats
    """(P,) seconds, memory penalty included."""
    stale: Bools
    """(P,) whether the cost is out of date."""


@kernel
def scatter(g: Network, limits: Limits, population: Population, first: int, rng: np.random.Generator) -> None:
    """Draw the chromosomes from ``first`` on: any allowed device for each unit, and any ready operator next."""
    P, n = population.order.shape
    ready = np.empty(n, dtype=np.int32)
    for p in range(first, P):
        for unit in range(len(limits.resident)):
            a, b = limits.choice_ptr[unit], limits.choice_ptr[unit + 1]
            _place(limits, population.device[p], unit, limits.choice[a + int(rng.random() * (b - a))])
        waiting = g.read_ptr[1:] - g.read_ptr[:-1]
        count = 0
        for v in range(n):
            if waiting[v] == 0:
                ready[count] = v
                count += 1
        for position in range(n):
            k = int(rng.random() * count)
            v = ready[k]
            count -= 1
            ready[k] = ready[count]
            population.order[p, position] = v
            for j in range(g.reader_ptr[g.made_ptr[v]], g.reader_ptr[g.made_ptr[v + 1]]):
                x = g.reader[j]
                waiting[x] -= 1
                if waiting[x] == 0:
                    ready[count] = x
                    count += 1
        population.stale[p] = True


@inner
def _place(limits: Limits, device: Ints, unit: int, i: int) -> None:
    for k in range(limits.member_ptr[unit], limits.member_ptr[unit + 1]):
        device[limits.member[k]] = i


@kernel
def breed(
    g: Network,
    limits: Limits,
    parents: Population,
    children: Population,
    ratio: float,
    crossover: float,
    mutation: float,
    rng: np.random.Generator,
) -> None:
    """Select, cross and mutate a generation.

    Parameters
    ----------
    children : Population
        Overwritten; those that differ from a parent are marked as stale.
    ratio : float
        Of the chances of two neighbours in the ranking by cost.
    crossover : float
        Chance of each pair to be crossed, for either string.
    mutation : float
        Chance of each chromosome to be mutated, for either string.
    """
    P, n = parents.order.shape
    ranking = np.argsort(parents.cost, kind="mergesort")
    sectors = np.empty(P)
    total = 0.0
    for r in range(P):
        total += ratio ** (-r)
        sectors[r] = total
    for p in range(P):
        r = min(P - 1, np.searchsorted(sectors, rng.random() * total, side="right"))
        children.device[p] = parents.device[ranking[r]]
        children.order[p] = parents.order[ranking[r]]
        children.cost[p] = parents.cost[ranking[r]]
        children.stale[p] = parents.stale[ranking[r]]
    units = len(limits.resident)
    marks = np.zeros(n, dtype=np.int64)
    spare = np.empty(n, dtype=np.int32)
    for p in range(0, P - 1, 2):
        if rng.random() < crossover:
            at = int(rng.random() * n)
            spare[:] = children.order[p]
            _reorder(children.order[p], children.order[p + 1], at, marks, 2 * p + 1)
            _reorder(children.order[p + 1], spare, at, marks, 2 * p + 2)
            children.stale[p] = children.stale[p + 1] = True
        if rng.random() < crossover:
            for unit in range(int(rng.random() * units), units):
                v = limits.member[limits.member_ptr[unit]]
                i, j = children.device[p, v], children.device[p + 1, v]
                _place(limits, children.device[p], unit, j)
                _place(limits, children.device[p + 1], unit, i)
            children.stale[p] = children.stale[p + 1] = True
    for p in range(P):
        if rng.random() < mutation:
            _move(g, children.order[p], int(rng.random() * n), spare, rng)
            children.stale[p] = True
        if rng.random() < mutation:
            unit = int(rng.random() * units)
            a, b = limits.choice_ptr[unit], limits.choice_ptr[unit + 1]
            _place(limits, children.device[p], unit, limits.choice[a + int(rng.random() * (b - a))])
            children.stale[p] = True


@inner
def _reorder(order: Ints, other: Ints, at: int, marks: npt.NDArray[np.int64], mark: int) -> None:
    """Keep ``order`` before ``at``, and put the rest in the sequence in which ``other`` has it: topological again."""
    for k in range(at):
        marks[order[k]] = mark
    for k in range(len(other)):
        if marks[other[k]] != mark:
            order[at] = other[k]
            at += 1


@inner
def _move(g: Network, order: Ints, source: int, position: Ints, rng: np.random.Generator) -> None:
    """Move the operator at ``source`` to any place between the last it reads from and the first that reads it."""
    n = len(order)
    for k in range(n):
        position[order[k]] = k
    v = order[source]
    low, high = 0, n - 1
    for k in range(g.read_ptr[v], g.read_ptr[v + 1]):
        low = max(low, position[g.producer[g.read[k]]] + 1)
    for k in range(g.reader_ptr[g.made_ptr[v]], g.reader_ptr[g.made_ptr[v + 1]]):
        high = min(high, position[g.reader[k]] - 1)
    target = low + int(rng.random() * (high - low + 1))
    step = 1 if target > source else -1
    for k in range(source, target, step):
        order[k] = order[k + step]
    order[target] = v


@kernel
def appraise(
    g: Network,
    limits: Limits,
    population: Population,
    first: int,
    last: int,
    by_reader: bool,
    tail: Floats,
    w: Workspace,
    best_device: Ints,
    best_order: Ints,
    best_s: Floats,
) -> None:
    """Bring the costs of chromosomes ``first`` to ``last`` - 1 up to date, and keep the best one that fits.

    Parameters
    ----------
    best_device, best_order, best_s : (n,), (n,), (1,)
        Overwritten where a chromosome is better.
    """
    for p in range(first, last):
        if not population.stale[p]:
            continue
        population.stale[p] = False
        cost, fits = cost_of(g, limits, population.device[p], population.order[p], by_reader, tail, np.inf, w)
        population.cost[p] = cost
        if fits and cost < best_s[0]:
            best_s[0] = cost
            best_device[:] = population.device[p]
            best_order[:] = population.order[p]
