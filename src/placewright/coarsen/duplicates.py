"""Duplication: what is cheap and read by many is computed anew wherever it is read, and crosses no link."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from placewright.errors import InvalidInput
from placewright.graph import Operator, OperatorGraph
from placewright.problem import Problem, Times

__all__ = ["TRIVIAL_SHARE", "duplicable", "duplicate", "duplicated_parts"]

TRIVIAL_SHARE = 0.005
"""Of the longest path on a device: what all duplicated operators together may take there, unless a limit is given."""

STRETCH = 0.1
"""Of the longest path: how much later the last reader must be needed than the first, unless a limit is given."""

LARGEST = 256
"""Most operators that are duplicated together for one tensor."""

WEIGHT_SHARE = 0.01
"""Of all weights: an operator with more is not cheap, whatever its time."""

_RANDOM_KINDS = """
Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike
bernoulli cauchy exponential geometric log_normal multinomial normal poisson rand rand_like randint randint_like randn
randn_like random randperm uniform
"""
_RANDOM = frozenset(_RANDOM_KINDS.split())
"""Kinds whose copies would draw other numbers; dropout draws none at inference."""


def duplicate(problem: Problem, below_s: float | None = None) -> Problem:
    """Merge cheap operators into each of their readers, so that none waits for them and none of their tensors travels.

    An attention mask or a table of positions is read by every layer: an edge leaps from the start of the network over
    all of it, each device must be sent the tensor, and no operator lies on every path any more, so that the network
    falls into no modules. Each reader becomes an operator that also has the mask among its ``parts``; the mask itself
    is gone. A part that stands in several operators is run once on each device that has one of them.

    Parameters
    ----------
    problem : Problem
    below_s : float, optional
        Seconds: operators that, with all that they are made of, take at most so long on every device that may run
        them are duplicated. 0: none. By default the trivial ones: all together take at most 0.5 % of the longest path
        on any device, and of each the readers are needed a tenth of the longest path apart or more.

    Returns
    -------
    Problem
        Any plan of it is a placement of the same network. It is the problem given, itself, where nothing is
        duplicated.

    Raises
    ------
    InvalidInput
        If ``below_s`` is negative or no number.

    Notes
    -----
    **What may be duplicated**: an operator of the forward pass that reads only inputs and weights of the network, or
    tensors of operators that are duplicated too; that makes no output of the network; that draws no random numbers; in
    no colocation class; that holds nothing but weights, at most 1 % of all; that runs wherever its readers may run; and
    that at least two operators read in the end.

    **What it costs.** Each of k readers is charged 1/k of the operator's time and weights, and of the bytes of its
    tensors, since these stay for the next reader there. That is exact where all of them share a device, and on any
    device misses less than the operator's time and bytes. Charged in full, 24 layers would pay 24 times for what each
    device computes once. So a plan of the new problem is worth at most the time of the duplicated operators less than
    what really happens, on each device: by default 0.5 % of the longest path, less than times vary from run to run.

    **Complexity** O(n + m) for n operators and m readers of tensors, and for each cheap operator two sets: its readers
    in the end, and the operators that it is made of, of which there are 256 at most.

    Examples
    --------
    A mask of 2 s is read by two layers. Each is charged half of it.

    >>> from placewright import Cluster, Device, Link, Tensor
    >>> graph = OperatorGraph([Operator("mask"), Operator("first"), Operator("second")],
    ...                       [Tensor("m", 0, (1, 2), 64), Tensor("x", 1, (2,), 8)])
    >>> pair = Cluster([Device("gpu"), Device("cpu")], [Link(1.0, 1.0, link_class="same-host")])
    >>> made = duplicate(Problem(graph, pair, [[2, 2], [100, 100], [100, 100]]), below_s=2.0)
    >>> [(v.name, v.parts) for v in made.graph.operators]
    [('first', ('mask', 'first')), ('second', ('mask', 'second'))]
    >>> made.times.processing_s[:, 0].tolist(), [t.name for t in made.graph.tensors]
    ([101.0, 101.0], ['x'])
    """
    if below_s is not None and not below_s >= 0:
        raise InvalidInput(f"operators below {below_s} s can't be duplicated; give at least 0 s")
    if below_s == 0 or len(problem.cluster) < 2:
        return problem
    chosen = duplicable(problem, below_s)
    return _without(problem, chosen) if chosen else problem


def duplicable(problem: Problem, below_s: float | None = None) -> tuple[int, ...]:
    """Operators that :func:`duplicate` would duplicate, ascending."""
    graph = problem.graph
    seconds = np.where(problem.allowed, problem.times.processing_s, np.inf)
    fastest = seconds.min(axis=1, keepdims=True)
    fastest[np.isinf(fastest)] = 0.0  # no device may run it: there is no plan anyway
    seconds = np.where(np.isfinite(seconds), seconds, fastest)
    if below_s is None:
        limit_s = TRIVIAL_SHARE * _depths(graph, seconds).max(axis=0)
    else:
        limit_s = np.full(len(problem.cluster), below_s)
    needs = _cheap(problem, seconds, limit_s)
    # Operators in which a cheap one ends up: those that are not cheap and read it, or read what is made of it.
    final: dict[int, frozenset[int]] = {}
    for v in sorted(needs, reverse=True):
        final[v] = frozenset().union(*(final.get(r, {r}) for r in graph.successors[v]))
    many = [v for v in needs if len(final[v]) >= 2]
    if below_s is not None:
        return tuple(many)
    # How soon each is needed: a copy that a late layer makes for itself could be made early, but is needed late.
    tail = _tails(graph, fastest[:, 0])
    far = [v for v in many if np.ptp(tail[sorted(final[v])]) >= STRETCH * tail.max()]
    tops = [v for v in far if not set(far) >= set(graph.successors[v])]  # what only those read goes with them
    taken: frozenset[int] = frozenset()
    for v in sorted(tops, key=lambda v: (float(seconds[sorted(needs[v])].max()), v)):
        if (seconds[sorted(taken | needs[v])].sum(axis=0) <= limit_s).all():
            taken |= needs[v]
    return tuple(sorted(taken))


def duplicated_parts(graph: OperatorGraph) -> tuple[str, ...]:
    """Names of the parts that stand in several operators, in the order in which they are met.

    Examples
    --------
    >>> duplicated_parts(OperatorGraph([Operator("a", parts=("mask", "a")), Operator("b", parts=("mask", "b"))]))
    ('mask',)
    """
    count = Counter(name for v in graph.operators for name in dict.fromkeys(v.part_names))
    return tuple(name for name, k in count.items() if k > 1)


def _cheap(
    problem: Problem, seconds: npt.NDArray[np.float64], limit_s: npt.NDArray[np.float64]
) -> dict[int, frozenset[int]]:
    """Find what may be duplicated as far as it, its inputs and its readers go, with all that each is made of."""
    graph, allowed = problem.graph, problem.allowed
    bound = {v for members in graph.colocation for v in members}
    most = WEIGHT_SHARE * sum(v.weight_bytes for v in graph.operators)
    needs: dict[int, frozenset[int]] = {}
    for v, operator in enumerate(graph.operators):
        readers = graph.successors[v]
        if not (
            readers
            and all(u in needs for u in graph.predecessors[v])
            and v not in bound
            and not any(graph.tensors[u].output for u in graph.outputs_of[v])
            and not any(graph.operators[r].backward for r in (v, *readers))
            and operator.resident_bytes == operator.weight_bytes
            and operator.weight_bytes <= most
            and not _draws(operator.kind)
        ):
            continue
        above = frozenset({v}).union(*(needs[u] for u in graph.predecessors[v]))
        if len(above) <= LARGEST and (seconds[sorted(above)].sum(axis=0) <= limit_s).all():
            needs[v] = above
    for v in sorted(needs, reverse=True):  # it must run wherever its readers may
        if not all((allowed[v] | ~allowed[r]).all() for r in graph.successors[v]):
            del needs[v]
    return {v: above for v, above in needs.items() if needs.keys() >= above}


def _draws(kind: str) -> bool:
    """Whether a kind draws random numbers; ``aten.`` and the overload of torch's are dropped."""
    bases = (part.removeprefix("aten.").split(".")[0].rstrip("_") for part in kind.split("+"))
    return not _RANDOM.isdisjoint(bases)


def _depths(graph: OperatorGraph, seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """(n, D) seconds of the longest path up to and with each operator, with the times of each column."""
    ready = np.zeros_like(seconds)
    for v in range(len(graph)):
        before = ready[list(graph.predecessors[v])].max(axis=0) if graph.predecessors[v] else 0.0
        ready[v] = before + seconds[v]
    return ready


def _tails(graph: OperatorGraph, seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """(n,) seconds of the longest path from and with each operator."""
    tail = seconds.copy()
    for v in reversed(range(len(graph))):
        tail[v] += max((tail[r] for r in graph.successors[v]), default=0.0)
    return tail


@dataclass(frozen=True)
class _Copies:
    """Which duplicated operators each reader takes in, in topological order, and how many readers each has."""

    of: Mapping[int, tuple[int, ...]]
    readers: Mapping[int, int]


def _copies(graph: OperatorGraph, chosen: frozenset[int]) -> _Copies:
    needs: dict[int, frozenset[int]] = {}
    readers: dict[int, int] = {}
    for v in range(len(graph)):
        above = frozenset[int]().union(*({u} | needs[u] for u in graph.predecessors[v] if u in chosen))
        needs[v] = above
        if v not in chosen:
            for u in above:
                readers[u] = readers.get(u, 0) + 1
    return _Copies({v: tuple(sorted(row)) for v, row in needs.items() if row and v not in chosen}, readers)


def _without(problem: Problem, chosen: Sequence[int]) -> Problem:
    """Make the problem in which the readers of the chosen operators have taken them in."""
    graph, times = problem.graph, problem.times
    gone = frozenset(chosen)
    copies = _copies(graph, gone)
    kept = [v for v in range(len(graph)) if v not in gone]
    at = {v: k for k, v in enumerate(kept)}
    tensors = [u for u, t in enumerate(graph.tensors) if t.producer not in gone]
    made = OperatorGraph(
        _operators(graph, kept, copies),
        [
            replace(t, producer=at[t.producer], readers=tuple(at[r] for r in t.readers))
            for t in (graph.tensors[u] for u in tensors)
        ],
        [[at[v] for v in members] for members in graph.colocation],
        graph.name,
        graph.source,
    )
    processing = times.processing_s.copy()
    for v, row in copies.of.items():
        for u in row:
            processing[v] += times.processing_s[u] / copies.readers[u]
    # Where the reader may run, so may what it takes in; elsewhere its time is no time at all.
    processing[~problem.allowed] = np.where(np.isfinite(times.processing_s), processing, np.inf)[~problem.allowed]
    given = Times(
        processing[kept],
        None if times.transfer_s is None else times.transfer_s[tensors],
        times.source,
        None if times.cut_s is None else times.cut_s[kept],
    )
    return Problem(made, problem.cluster, given, problem.objective, problem.wishes, problem.name)


def _operators(graph: OperatorGraph, kept: Sequence[int], copies: _Copies) -> list[Operator]:
    counted: dict[int, int] = {}
    made = []
    for v in kept:
        operator = graph.operators[v]
        row = copies.of.get(v, ())
        if not row:
            made.append(operator)
            continue
        work = [operator.flops, operator.traffic_bytes, operator.weight_bytes]
        for u in row:
            taken, k = graph.operators[u], copies.readers[u]
            position = counted[u] = counted.get(u, -1) + 1
            lasting = taken.weight_bytes + sum(graph.tensors[t].size_bytes for t in graph.outputs_of[u])
            for q, amount in enumerate((taken.flops, taken.traffic_bytes, lasting)):
                share, rest = divmod(amount, k)
                work[q] += share + (position < rest)
        parts = tuple(name for u in row for name in graph.operators[u].part_names)
        made.append(
            replace(
                operator,
                parts=(*parts, *operator.part_names),
                folded=tuple(dict.fromkeys(n for x in (*row, v) for n in graph.operators[x].folded)),
                signature=_signature(operator, [(graph.operators[u], copies.readers[u]) for u in row]),
                flops=work[0],
                traffic_bytes=work[1],
                weight_bytes=work[2],
            )
        )
    return made


def _signature(operator: Operator, taken: Sequence[tuple[Operator, int]]) -> str:
    """Equal for equal readers of equal copies; empty when one of them has none."""
    if not operator.signature or not all(u.signature for u, _ in taken):
        return ""
    text = ";".join([operator.signature, *(f"{u.signature}/{k}" for u, k in taken)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
