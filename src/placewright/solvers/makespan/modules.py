"""Modules of a network: what lies between two operators that every path passes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from placewright._kernel.path import heads, tails
from placewright.arrays import arrays_of
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.problem import Problem, Times

__all__ = ["Module", "cut_operators", "local_classes", "module_problem", "modules_of", "within"]


@dataclass(frozen=True, slots=True)
class Module:
    """Operators after ``entry`` up to and with ``exit``.

    Attributes
    ----------
    entry, exit : int or None
        Operators that every path passes; ``None`` at the start and at the end of the network.
    inner : tuple of int
        The operators between them, ascending.
    """

    entry: int | None
    exit: int | None
    inner: tuple[int, ...]

    @property
    def operators(self) -> tuple[int, ...]:
        """Entry, inner, exit, as far as they are there, ascending."""
        ends = [v for v in (self.entry, self.exit) if v is not None]
        return tuple(sorted((*self.inner, *ends)))

    def tensors_in(self, graph: OperatorGraph) -> list[int]:
        """Tensors that entry and inner operators make, in the graph's order."""
        makers = [v for v in self.operators if v != self.exit]
        return sorted(u for v in makers for u in graph.outputs_of[v])


def cut_operators(graph: OperatorGraph) -> list[int]:
    """Operators on every path from a source to a sink, ascending.

    With a virtual source before all operators without inputs and a virtual sink behind all without readers, v is on
    every path exactly when no edge leads from an operator before v (in topological order) to one behind it: a path
    that avoids v must leap over it, and an edge that leaps over v is part of a path that avoids it. O(n + E).

    Examples
    --------
    >>> diamond = OperatorGraph([Operator(v) for v in "abcd"], [Tensor("x", 0, (1, 2)), Tensor("y", 1, (3,)),
    ...                         Tensor("z", 2, (3,))])
    >>> cut_operators(diamond)
    [0, 3]
    """
    n = len(graph)
    sources = [v for v in range(n) if not graph.predecessors[v]]
    furthest = max(sources, default=0)  # reader that an edge from an operator so far reaches
    cuts = []
    for v in range(n):
        if furthest <= v:
            cuts.append(v)
        readers = graph.successors[v]
        furthest = max(furthest, readers[-1] if readers else n)
    return cuts


def modules_of(graph: OperatorGraph) -> list[Module]:
    """Cut a network at every operator on all paths."""
    cuts = cut_operators(graph)
    ends: list[int | None] = [None, *cuts, None]
    modules = []
    for entry, last in itertools.pairwise(ends):
        low = -1 if entry is None else entry
        high = len(graph) if last is None else last
        module = Module(entry, last, tuple(range(low + 1, high)))
        if module.inner or last is not None:
            modules.append(module)
    return modules


def module_problem(problem: Problem, module: Module, fixed: Mapping[int, int]) -> Problem:
    """Make the problem of one module with the devices of its ends, and of what else is fixed.

    The entry takes no time (its processing counts in the module that it ends) but pays for a cut behind it; what the
    exit makes is left out. Weights are left out too: see :mod:`.module_memory`.
    """
    graph = problem.graph
    operators = module.operators
    local = {v: k for k, v in enumerate(operators)}
    tensors = module.tensors_in(graph)
    times = np.where(problem.allowed, problem.times.processing_s, np.inf)[list(operators)]
    for v, device in fixed.items():
        kept = 0.0 if v == module.entry else times[local[v], device]
        times[local[v]] = np.inf
        times[local[v], device] = kept
    sub = OperatorGraph(
        [Operator(f"{k:06d}") for k in range(len(operators))],
        [
            Tensor(
                f"{k:06d}",
                local[graph.tensors[u].producer],
                tuple(local[v] for v in graph.tensors[u].readers),
                graph.tensors[u].size_bytes,
            )
            for k, u in enumerate(tensors)
        ],
        local_classes(graph, local),
    )
    transfer = None if problem.times.transfer_s is None else problem.times.transfer_s[tensors]
    given = Times(times, transfer, problem.times.source, problem.cut_s[list(operators)])
    return Problem(sub, problem.cluster, given, problem.objective)


def local_classes(graph: OperatorGraph, local: Mapping[int, int]) -> list[list[int]]:
    """Members of each class that are here, where there are two or more."""
    parts = ([local[v] for v in members if v in local] for members in graph.colocation)
    return [part for part in parts if len(part) > 1]


def within(problem: Problem, limit_s: float) -> Problem | None:
    """Leave out what no schedule of at most ``limit_s`` can use; ``None`` when there is no such schedule.

    An operator does not run on a device where what must pass before it, its time and what must follow are more than
    the limit together, and a tensor takes no link where that holds of its way. Each round sharpens the next one's
    heads and tails. The problem itself where nothing can be left out.
    """
    g = arrays_of(problem).network
    processing, D = g.processing.copy(), g.processing.shape[1]
    table = g.transfer.copy() if len(g.transfer) else g.latency + g.size[:, None, None] * g.per_byte
    crossing = ~np.eye(D, dtype=bool)
    limit = limit_s * (1.0 + 1e-9)
    known = before = int(np.isfinite(processing).sum() + np.isfinite(table).sum())
    while True:
        h = g._replace(processing=processing, transfer=table)
        (_, done), (tail, _) = heads(h), tails(h)
        processing[~(done + tail <= limit)] = np.inf
        if not np.isfinite(processing).any(axis=1).all():
            return None
        follows = processing + tail
        for u in range(len(table)):
            readers = g.reader[g.reader_ptr[u] : g.reader_ptr[u + 1]]
            rest = follows[readers].min(axis=0, initial=np.inf)
            way = done[g.producer[u]][:, None] + table[u] + rest[None, :]
            table[u][crossing & ~(way <= limit)] = np.inf
        left = int(np.isfinite(processing).sum() + np.isfinite(table).sum())
        if left == before:
            break
        before = left
    if left == known:
        return problem
    times = replace(problem.times, processing_s=processing, transfer_s=table)
    return Problem(problem.graph, problem.cluster, times, problem.objective, problem.wishes, problem.name)
