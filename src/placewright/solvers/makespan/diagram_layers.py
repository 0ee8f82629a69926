"""The ideals of a narrow network, and what the states of schedules at each of them consist of."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright._kernel.diagram import FIXED_POINT, Diagram
from placewright._kernel.path import heads, tails
from placewright.arrays import arrays_of
from placewright.graph import OperatorGraph
from placewright.problem import Problem
from placewright.ragged import ragged
from placewright.rounding import RELATIVE_SLACK, quantise_down

__all__ = ["MOST_IDEALS", "diagram_of", "ideals_of"]

MOST_IDEALS = 20_000
"""Ideals beyond which a network is not narrow."""

STEPS = 300
"""Of the search for multipliers of loads."""


def ideals_of(graph: OperatorGraph, most: int = MOST_IDEALS) -> list[int] | None:
    """All ideals as bit sets, by size; ``None`` when there are more than ``most``.

    Examples
    --------
    >>> from placewright import Operator, Tensor
    >>> ideals_of(OperatorGraph([Operator("a"), Operator("b"), Operator("c")], [Tensor("x", 0, (2,), 8)]))
    [0, 1, 2, 3, 5, 7]
    """
    needed = [sum(1 << u for u in graph.predecessors[v]) for v in range(len(graph))]
    level = {0: tuple(v for v in range(len(graph)) if not needed[v])}
    ideals = [0]
    for _ in range(len(graph)):
        following: dict[int, tuple[int, ...]] = {}
        for ideal, ready in level.items():
            for v in ready:
                larger = ideal | 1 << v
                if larger not in following:
                    freed = (w for w in graph.successors[v] if needed[w] & ~larger == 0)
                    following[larger] = tuple(sorted({*ready, *freed} - {v}))
            if len(ideals) + len(following) > most:
                return None
        level = following
        ideals += level
    return ideals


def diagram_of(problem: Problem, ideals: list[int], quantum_s: float, most: int) -> Diagram:
    """Make the arrays for a problem whose durations are at most ``most`` quanta, or can't be part of a schedule."""
    a, graph = arrays_of(problem), problem.graph
    g, n, D = a.network, len(graph), len(problem.cluster)

    def quanta(seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
        kept = np.minimum(np.where(np.isfinite(seconds), seconds, np.inf), most * quantum_s)
        return quantise_down(kept, quantum_s).astype(np.int32)

    processing = quanta(g.processing)
    # Dominance knows no cuts, so that what is pruned by must not either.
    uncut = g._replace(cut=np.zeros_like(g.cut))
    head, tail = quanta(heads(uncut)[0] * (1 - RELATIVE_SLACK)), quanta(tails(uncut)[1] * (1 - RELATIVE_SLACK))
    rows = range(D)
    transfer = [[[problem.transfer_s(u, i, j) for j in rows] for i in rows] for u in range(len(graph.tensors))]
    index = {ideal: k for k, ideal in enumerate(ideals)}
    leading: list[list[tuple[int, int]]] = [[] for _ in ideals]
    coming: list[list[tuple[int, int]]] = [[] for _ in ideals]
    needed = [sum(1 << u for u in graph.predecessors[v]) for v in range(n)]
    read_by = [sum(1 << v for v in t.readers) for t in graph.tensors]
    live: list[list[int]] = []
    front, front_ready, need, reader = _Rows(), [], _Rows(), _Rows()
    back, back_ready, use, maker = _Rows(), [], _Rows(), []
    for k, ideal in enumerate(ideals):
        outside = [v for v in range(n) if not ideal >> v & 1]
        for v in outside:
            if needed[v] & ~ideal == 0:
                larger = index[ideal | 1 << v]
                leading[k].append((v, larger))
                coming[larger].append((v, k))
        here = [u for u, t in enumerate(graph.tensors) if ideal >> t.producer & 1 and read_by[u] & ~ideal]
        live.append(here)
        place = {u: x for x, u in enumerate(here)}
        ahead = sorted(
            {v for u in here for v in graph.tensors[u].readers if not ideal >> v & 1} | _without(graph, outside)
        )
        at = {v: x for x, v in enumerate(ahead)}
        front.add(ahead)
        for v in ahead:
            makers = {u: graph.tensors[u].producer for u in graph.inputs_of[v]}
            front_ready.append(all(u in place for u in makers))
            reads = [u for u in makers if u in place or makers[u] in at]
            need.add([place[u] if u in place else -1 - at[makers[u]] for u in reads], reads)
        for u in here:
            reader.add([at[v] for v in graph.tensors[u].readers if v in at])
        inside = [v for v in range(n) if ideal >> v & 1]
        behind = sorted({graph.tensors[u].producer for u in here} | {v for v in inside if not graph.successors[v]})[
            ::-1
        ]
        at = {v: x for x, v in enumerate(behind)}
        back.add(behind)
        for v in behind:
            back_ready.append(all(not ideal >> w & 1 for w in graph.successors[v]))
            made = [u for u in graph.outputs_of[v] if u in place]
            within = [(at[w], u) for u in graph.outputs_of[v] for w in graph.tensors[u].readers if w in at]
            use.add([place[u] for u in made] + [-1 - x for x, _ in within], made + [u for _, u in within])
        maker += [at[graph.tensors[u].producer] for u in here]
    multiplier = _multipliers(np.where(np.isfinite(g.processing), g.processing, 2.0 * most * quantum_s))
    weighted = (multiplier[:, None, :] * processing[None].astype(np.int64)).min(axis=2)
    member = np.array([[ideal >> v & 1 for v in range(n)] for ideal in ideals], dtype=np.int64).reshape(-1, n)
    least = [
        np.array([[int(row[inside, i].min(initial=most)) for i in range(D)] for inside in masks], dtype=np.int32)
        for row, masks in ((processing + tail, member == 0), (processing + head, member == 1))
    ]
    live_ptr, live_of = ragged(live)
    out_ptr, out_op = ragged([[v for v, _ in row] for row in leading])
    in_ptr, in_op = ragged([[v for v, _ in row] for row in coming])
    return Diagram(
        processing,
        quanta(np.array(transfer, dtype=np.float64).reshape(-1, D, D)),
        head,
        tail,
        g.read_ptr,
        g.read,
        g.made_ptr,
        g.producer,
        live_ptr,
        live_of,
        in_ptr,
        in_op,
        ragged([[k for _, k in row] for row in coming])[1],
        out_ptr,
        out_op,
        ragged([[k for _, k in row] for row in leading])[1],
        *front.arrays(),
        np.array(front_ready, dtype=np.bool_),
        *need.arrays(),
        need.beside(),
        *reader.arrays(),
        *back.arrays(),
        np.array(back_ready, dtype=np.bool_),
        *use.arrays(),
        use.beside(),
        np.array(maker, dtype=np.int32),
        least[0],
        least[1],
        multiplier,
        (1 - member) @ weighted.T,
        member @ weighted.T,
        *_queues(g.resources),
    )


def _queues(resources: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int32], int]:
    """Give numbers to the resources that lie between two devices."""
    D = len(resources)
    between = resources[~np.eye(D, dtype=np.bool_)]
    used = np.unique(between[between >= 0])
    numbers = np.full(int(resources.max(initial=-1)) + 2, -1, dtype=np.int32)
    numbers[used] = np.arange(len(used), dtype=np.int32)
    return numbers[resources], len(used)  # -1, nothing, is the last of the numbers


class _Rows:
    """Rows of numbers, and a second number beside each."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        self.second: list[int] = []

    def add(self, row: list[int], beside: list[int] | None = None) -> None:
        self.rows.append(row)
        self.second += beside or []

    def arrays(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        return ragged(self.rows)

    def beside(self) -> npt.NDArray[np.int32]:
        return np.array(self.second, dtype=np.int32)


def _without(graph: OperatorGraph, operators: list[int]) -> set[int]:
    """Operators that read nothing."""
    return {v for v in operators if not graph.predecessors[v]}


def _multipliers(processing: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """(4, D) weights of devices: those that make most of the load of all operators, of either half, and equal ones.

    Any non-negative weights of sum at most 1 give a bound; these are found by multiplicative updates on the Lagrangian
    of the fractional load.
    """
    n, D = processing.shape
    found = [np.full(D, 1.0 / D)]
    for part in (processing, processing[: n // 2], processing[n // 2 :]):
        weight, best, most = np.full(D, 1.0 / D), np.full(D, 1.0 / D), -1.0
        for step in range(STEPS):
            chosen = (part * weight).argmin(axis=1)
            load = np.bincount(chosen, weights=part[np.arange(len(part)), chosen], minlength=D)
            if load @ weight > most:
                best, most = weight, float(load @ weight)
            weight = weight * np.exp(0.3 / (1.0 + 0.05 * step) * load / max(load.max(), 1e-300))
            weight /= weight.sum()
        found.append(best)
    whole: npt.NDArray[np.int64] = np.floor(np.array(found) * (1 << FIXED_POINT)).astype(np.int64)
    return whole
