"""A max-load problem without order and memory: kinds of devices, units, and tensors as hyperedges that devices cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from placewright._kernel.configuration import Incidence
from placewright.algorithm import Budget
from placewright.loads import loads_of, objective_of
from placewright.objective import busy_share_of
from placewright.problem import Problem
from placewright.ragged import ragged

__all__ = ["Hypergraph", "hypergraph_of", "incidence", "reduced"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Hypergraph:
    """Load of a device of kind c with the vertices S: sum of ``time[c]`` over S and of ``weight[c]`` over cut edges.

    An edge is cut by S when some of its ends are in S and some are not. The edge of a tensor has its producer and its
    readers as ends: made inside and read outside it leaves, made outside and read inside it enters, and it can't do
    both. So direction is of no matter where entering costs what leaving does; else the lesser of the two is taken.

    Attributes
    ----------
    kinds : tuple of tuple of int
        Devices of each kind.
    pays : (C,) bool
        Whether devices of the kind pay for transfers. Where they don't the weights are 0.
    time : (C, n) float64
        ``inf`` where a vertex may not be.
    ends : tuple of tuple of int
        Of each edge, ascending, two or more; no two edges have the same.
    weight : (C, E) float64
    groups : tuple of tuple of int
        Units of each vertex.
    exact : bool
        Whether loads are those of the problem, rather than lower bounds.
    """

    kinds: tuple[tuple[int, ...], ...]
    pays: npt.NDArray[np.bool_]
    time: Floats
    ends: tuple[tuple[int, ...], ...]
    weight: Floats
    groups: tuple[tuple[int, ...], ...]
    exact: bool

    def __len__(self) -> int:
        return len(self.groups)


def hypergraph_of(problem: Problem) -> Hypergraph:
    """Relax a problem: no memory but what one unit alone needs, no order but blocks, no channels, no replicas.

    Both passes are added: the largest forward load plus the largest backward load is at least the largest sum of both.
    Where transfers overlap computing, what the device is busy with is left, which a load is at least: computing, and
    the busy share of its transfers. Where links differ by pair a device pays the least of its transfer times.
    """
    a, objective = loads_of(problem), objective_of(problem)
    share = busy_share_of(objective)
    block = a.block_of if objective.contiguity != "any" else np.arange(a.n_units)
    block = np.unique(block, return_inverse=True)[1]
    n, D = int(block.max()) + 1, len(a.pays)
    compute = np.where(a.resident[:, None] <= a.capacity[None, :], a.compute_s.sum(axis=0), np.inf)
    time = np.zeros((D, n))
    np.add.at(time.T, block, compute)
    one_way = share * np.minimum(a.send_s, a.receive_s) if share else np.zeros_like(a.send_s)
    weight_of: dict[tuple[int, ...], Floats] = {}
    for m in range(len(a.producer)):
        readers = a.reader[a.reader_ptr[m] : a.reader_ptr[m + 1]]
        ends = tuple(sorted({int(block[a.producer[m]]), *block[readers].tolist()}))
        if len(ends) > 1 and one_way[m].any():
            weight_of[ends] = weight_of.get(ends, np.zeros(D)) + one_way[m]
    weight = np.array(list(weight_of.values())).reshape(-1, D).T
    kinds: list[list[int]] = []
    for i in range(D):
        for alike in kinds:
            j = alike[0]
            if a.pays[i] == a.pays[j] and (time[i] == time[j]).all() and (weight[i] == weight[j]).all():
                alike.append(i)
                break
        else:
            kinds.append([i])
    first = [alike[0] for alike in kinds]
    groups = tuple(tuple(np.flatnonzero(block == k).tolist()) for k in range(n))
    exact = (
        share == 1.0
        and len(a.compute_s) == 1
        and a.separable
        and a.n_channels == 0
        and not objective.replicate
        and bool((a.send_s == a.receive_s).all())
    )
    return Hypergraph(
        tuple(map(tuple, kinds)), a.pays[first], time[first], tuple(weight_of), weight[first], groups, exact
    )


def incidence(n: int, ends: Sequence[Sequence[int]]) -> Incidence:
    """Make the ragged arrays of a hypergraph with n vertices."""
    edges: list[list[int]] = [[] for _ in range(n)]
    for e, row in enumerate(ends):
        for v in row:
            edges[v].append(e)
    return Incidence(*ragged(edges), *ragged(ends))


def reduced(h: Hypergraph, upper_s: float, budget: Budget) -> Hypergraph:
    """Merge vertices that some placement of value at most T has together if there is one at all, for all T <= upper_s.

    The rule, with E the edges of which a and b are the only ends and R those of a without b: a joins b when on every
    kind that pays and where b fits, a fits too and ``time(a) + weight(R) <= weight(E)``; and on every kind that pays
    and where a fits, ``weight(R) <= weight(E) + time(a)``. *Proof.* Let a be on device i and b on j. Move a to j. If j
    pays, it gains at most time(a) + weight(R) and no longer pays E; edges with ends a, b and more it paid already. If i
    pays, it loses time(a) and E, and gains at most R; edges of a, b and more it paid already. A third device pays an
    edge of a before and after, or neither. If j doesn't pay, it would have to take time(a): so the rule is used only

    - where b fits no device that doesn't pay; or
    - where the rule holds with a and b exchanged as well. With a on a paying device, b goes there instead. With both
      on devices that don't pay, the merged vertex is given a time that one of the two made room for: the sum if there
      is but one such device, the larger time if all are alike, else the smaller. The result is a relaxation.

    To fit means a time of at most ``upper_s``: what doesn't fit is in no placement that matters. Memory is left out.
    """
    while not budget.spent:
        root, time = _round(h, upper_s)
        if root is None:
            return h
        h = _contracted(h, root, time)
    return h


def _round(h: Hypergraph, upper_s: float) -> tuple[list[int] | None, Floats]:
    """One pass over all vertices: to which each goes, and the times of those that others join; none: no one joins."""
    n, paying, free = len(h), np.flatnonzero(h.pays), np.flatnonzero(~h.pays)
    incident: list[list[int]] = [[] for _ in range(n)]
    for e, row in enumerate(h.ends):
        for v in row:
            incident[v].append(e)
    fits, time = h.time <= upper_s * (1.0 + 1e-9), h.time.copy()
    weight, here, one = h.weight[paying], h.time[paying], len(paying) == 1
    free_devices = sum(len(h.kinds[c]) for c in free)
    root, busy, joined = list(range(n)), [False] * n, False
    nothing = np.zeros(len(paying))

    def may_join(a: int, b: int) -> bool:
        inner, rest = nothing.copy(), nothing.copy()
        for e in incident[a]:
            if b not in h.ends[e]:
                rest += weight[:, e]
            elif len(h.ends[e]) == 2:
                inner += weight[:, e]
        there, from_here = fits[paying, b], fits[paying, a]
        whole = np.where(np.isfinite(here[:, a]), here[:, a], 0.0)
        onto = ~there | (from_here & (whole + rest <= inner))
        off = ~from_here | (rest <= inner + whole)
        return bool((onto & off).all())

    for a in range(n):
        if busy[a] or not incident[a] or len(paying) == 0:
            continue
        if one and weight[0, incident[a]].sum() < here[0, a]:
            continue  # nothing that is tied to it outweighs it
        mates = sorted({v for e in incident[a] for v in h.ends[e]} - {a})
        for b in mates:
            if busy[b] or not may_join(a, b):
                continue
            both = may_join(b, a)
            if not both and fits[free, b].any():
                continue
            if both and len(free):
                pair = h.time[free][:, [a, b]]
                if free_devices == 1:
                    time[free, b] = pair.sum(axis=1)
                else:
                    time[free, b] = pair.max(axis=1) if len(free) == 1 else pair.min(axis=1)
            time[paying, b] += here[:, a]
            root[a], joined = b, True
            # Their neighbours' edges change: they wait for the next round.
            for v in {v for x in (a, b) for e in incident[x] for v in h.ends[e]} | {a, b}:
                busy[v] = True
            break
    return (root if joined else None), time


def _contracted(h: Hypergraph, root: Sequence[int], time: Floats) -> Hypergraph:
    kept = [v for v in range(len(h)) if root[v] == v]
    number = {v: k for k, v in enumerate(kept)}
    groups: list[list[int]] = [[] for _ in kept]
    for v, r in enumerate(root):
        groups[number[r]] += h.groups[v]
    merged: dict[tuple[int, ...], Floats] = {}
    for e, row in enumerate(h.ends):
        ends = tuple(sorted({number[root[v]] for v in row}))
        if len(ends) > 1:
            merged[ends] = merged.get(ends, np.zeros(len(h.kinds))) + h.weight[:, e]
    weight = np.array(list(merged.values())).reshape(-1, len(h.kinds)).T
    return replace(
        h, time=time[:, kept], ends=tuple(merged), weight=weight, groups=tuple(tuple(sorted(g)) for g in groups)
    )
