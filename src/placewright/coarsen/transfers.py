"""How often a tensor travels to a device: once, however many readers it has there, or once for each edge."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np

from placewright.graph import OperatorGraph, Tensor
from placewright.problem import Problem

__all__ = ["Transfers", "per_device", "per_edge", "transfers_of"]

Transfers: TypeAlias = Literal["per-device", "per-edge"]


def per_edge(problem: Problem) -> Problem:
    """Give each reader a tensor of its own, so that each edge has its own transfer, as in Moirai's sheets.

    A tensor ``x`` with several readers becomes ``x@reader`` for each of them, of the same size and transfer times; the
    first one is the output of the network where ``x`` was. What a cut costs stays as it was. Live memory grows: each
    edge has a buffer of its own at both ends.

    Examples
    --------
    >>> from placewright import Cluster, Device, Link, Operator, OperatorGraph, Problem, Tensor
    >>> graph = OperatorGraph([Operator(v) for v in "abc"], [Tensor("x", 0, (1, 2), 8)])
    >>> pair = Cluster([Device("d0"), Device("d1")], [Link(1.0, 8.0, link_class="same-host")])
    >>> [t.name for t in per_edge(Problem(graph, pair, [[1, 1]] * 3)).graph.tensors]
    ['x@b', 'x@c']
    """
    graph = problem.graph
    taken = {t.name for t in graph.tensors}
    made: list[tuple[Tensor, int]] = []
    for u, t in enumerate(graph.tensors):
        if len(t.readers) < 2:
            made.append((t, u))
            continue
        for k, v in enumerate(t.readers):
            name = _unused(f"{t.name}@{graph.operators[v].name}", taken)
            made.append((replace(t, name=name, readers=(v,), output=t.output and k == 0), u))
    return _with(problem, made)


def per_device(problem: Problem) -> Problem:
    """Make the tensors that :func:`per_edge`, or a sheet of Moirai, has for each reader one again.

    That is: tensors of one producer that are called ``x@reader``, each with that one reader, of equal size, type and
    transfer times. They become ``x``, an output of the network where one of them was.

    Examples
    --------
    >>> from placewright import Cluster, Device, Link, Operator, OperatorGraph, Problem, Tensor
    >>> graph = OperatorGraph([Operator(v) for v in "abc"], [Tensor("x", 0, (1, 2), 8)])
    >>> pair = Cluster([Device("d0"), Device("d1")], [Link(1.0, 8.0, link_class="same-host")])
    >>> per_device(per_edge(Problem(graph, pair, [[1, 1]] * 3))).graph.tensors == graph.tensors
    True
    """
    graph = problem.graph
    groups = _groups(problem)
    taken = Counter(t.name for t in graph.tensors)
    made: list[tuple[Tensor, int]] = []
    for stem, members in groups:
        first = graph.tensors[members[0]]
        if len(members) == 1:
            made.append((first, members[0]))
            continue
        readers = tuple(sorted({v for u in members for v in graph.tensors[u].readers}))
        output = any(graph.tensors[u].output for u in members)
        taken[stem] += 1
        name = stem if taken[stem] == 1 else first.name
        made.append((replace(first, name=name, readers=readers, output=output), members[0]))
    return _with(problem, made)


def transfers_of(problem: Problem) -> Transfers:
    """Tell how tensors with several readers travel: ``per-edge`` where :func:`per_device` would change something."""
    return "per-edge" if len(_groups(problem)) < len(problem.graph.tensors) else "per-device"


def _groups(problem: Problem) -> list[tuple[str, list[int]]]:
    """Tensors that are one but for their readers, with the name that they share; one that is alone by its own name."""
    graph, table = problem.graph, problem.times.transfer_s
    found: dict[object, tuple[str, list[int]]] = {}
    for u, t in enumerate(graph.tensors):
        end = f"@{graph.operators[t.readers[0]].name}" if len(t.readers) == 1 else ""
        if not end or not t.name.endswith(end) or t.name == end:
            found[u] = t.name, [u]
            continue
        stem = t.name.removesuffix(end)
        times = b"" if table is None else (table[u] * ~np.eye(len(problem.cluster), dtype=bool)).tobytes()
        key = (t.producer, stem, t.size_bytes, t.shape, t.dtype, times)
        found.setdefault(key, (stem, []))[1].append(u)
    return list(found.values())


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "'"
    taken.add(name)
    return name


def _with(problem: Problem, made: list[tuple[Tensor, int]]) -> Problem:
    """Make the problem with other tensors, each with the index of the one whose transfer times it has."""
    graph = problem.graph
    made = sorted(made, key=lambda one: (one[0].producer, one[0].name))  # the order of a graph
    times = problem.times
    if times.transfer_s is not None:
        times = replace(times, transfer_s=times.transfer_s[[u for _, u in made]])
    changed = OperatorGraph(graph.operators, [t for t, _ in made], graph.colocation, graph.name, graph.source)
    return Problem(changed, problem.cluster, times, problem.objective, problem.wishes, problem.name)
