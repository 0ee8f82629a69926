"""The ideals of the blocks, and the best chain of stages through them that is below a limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np
import numpy.typing as npt

from placewright._kernel.ideal_dp import Labels, Lattice, boundaries, expand, may_lie, new_labels, states_above
from placewright._kernel.ideals import Ideals, enumerate_ideals, first_ideal, sums
from placewright._kernel.order_moves import Order
from placewright._kernel.segment import SLACK, multipliers
from placewright.algorithm import Budget
from placewright.solvers.max_load.blocks import Blocks, Stage

__all__ = ["MOST_BYTES", "Chain", "all_ideals", "best_chain", "fractional_bound", "most_ideals"]

MOST_BYTES = 350_000_000
"""Of the ideals, and again of what is stored of those that stages may end at."""

FULL = f"the ideals that stages may end at take more than {MOST_BYTES // 1_000_000} MB"

STEPS = 100
"""Of the search for multipliers."""

PAIRS = 2_000_000
"""Of ideals looked at between two looks at the budget: well under 0.3 s."""

SPENT = "the budget was spent"

TOLERANCE = 1e-9
"""By how much, relative, a chain must be better than the best known one to be looked for."""

KEPT = 20_000
"""Ideals whose boundaries are found between two looks at the budget."""

CHILDREN = 100_000
"""Ideals extended between two looks at the budget."""


@dataclass(frozen=True, slots=True)
class Chain:
    """What a walk through the lattice found.

    Attributes
    ----------
    proved_s : float
        No chain of the blocks is below it; 0 when the walk was cut short.
    value_s : float
        Of the best chain below the limit; ``inf`` when there is none.
    stages : list of Stage
        Of that chain, in order.
    ideals : int
        That stages may end at.
    costed : int
        Stages whose load was computed.
    why : str
        Why the walk was cut short; empty when it was not.
    """

    proved_s: float
    value_s: float = inf
    stages: list[Stage] = field(default_factory=list)
    ideals: int = 0
    costed: int = 0
    why: str = ""


def most_ideals(blocks: Blocks) -> int:
    """Count the ideals that :data:`MOST_BYTES` hold."""
    words, masks = -(-blocks.n_blocks // 64), -(-int(blocks.stages.stride[-1]) // 64)
    return max(2, MOST_BYTES // (16 * words + 8 * masks + 24))


def all_ideals(graph: Order, budget: Budget, most: int) -> Ideals | None:
    """Enumerate all ideals; ``None`` when they are more than ``most`` or the budget is spent."""
    ideals = first_ideal(graph.before_ptr, most)
    done, known = 0, 1
    while done < known:
        if budget.spent:
            return None
        before = done
        done, known = enumerate_ideals(*graph, ideals, done, known, CHILDREN)
        if done == before:
            return None
    return Ideals(ideals.bits[:known], ideals.ready[:0], ideals.parent[:known], ideals.last[:known])


def fractional_bound(blocks: Blocks) -> float:
    """Lower bound on the largest load: the work shared out in fractions, and the longest block on its best class."""
    s = blocks.stages
    y = multipliers(_finite(blocks), s.banned, s.count, STEPS)
    weight, room = _weights(blocks, y, s.count)
    if np.isinf(weight).any():
        return inf
    shared = float(weight.sum()) / room if room > 0 else 0.0
    return max(shared, float((blocks.total_s / s.most_copies).min(axis=1).max(initial=0.0)))


def best_chain(
    blocks: Blocks, ideals: Ideals, limit_s: float, budget: Budget, tick: Callable[[float], None] = lambda value: None
) -> Chain:
    r"""Find the best chain of stages below ``limit_s``, or prove that there is none.

    .. math:: best(J, u + r e_c) = \min_{I \subset J} \max(best(I, u), load_c(J \setminus I, r))
    """
    blocks = _fast_enough(blocks, limit_s)
    alive = _alive(blocks, ideals, limit_s, budget)
    if alive is None:
        return Chain(0.0, why=SPENT)
    kept = np.flatnonzero(alive.any(axis=1))
    if not alive[-1].any() or kept[0] != 0:
        return Chain(limit_s)
    lattice = _lattice(blocks, ideals, alive, kept, budget)
    if lattice is None:
        return Chain(0.0, ideals=len(kept), why=SPENT if budget.spent else FULL)
    del alive
    s, n = blocks.stages, len(kept)
    value, stages, costed = inf, [], 0
    while True:
        labels, limit = new_labels(n, 4 * n + 1024), np.array([limit_s])
        walked = lattice._replace(alive=lattice.alive.copy())
        at = 0
        while at < n:
            at, more, roomy = expand(s, walked, labels, limit, at, PAIRS)
            costed += more
            if not roomy:
                labels = new_labels(n, 2 * len(labels.next), labels)
            if limit[0] < min(value, limit_s):
                value, stages = float(limit[0]), _stages(lattice, labels, blocks.n_blocks)
                tick(value)
            if at < n and budget.spent:
                return Chain(0.0, value, stages, n, costed, SPENT)
        if limit[0] == limit_s:
            return Chain(limit_s, value, stages, n, costed)
        if limit_s == inf:  # sums are finer where what takes too long is left out
            finer = best_chain(blocks, ideals, value * (1.0 - TOLERANCE), budget, tick)
            return finer if finer.value_s < inf else replace(finer, value_s=value, stages=stages)
        limit_s = value * (1.0 - TOLERANCE)


def _fast_enough(blocks: Blocks, limit_s: float) -> Blocks:
    """Ban blocks from the classes on which they alone take too long: sums of times stay near to the limit then."""
    if limit_s == inf:
        return blocks
    s = blocks.stages
    slow = blocks.total_s / s.most_copies > limit_s * (1.0 + SLACK)
    stages = s._replace(
        compute=np.where(slow[:, None, :], 0.0, s.compute), banned=np.maximum(s.banned, slow.astype(np.int32))
    )
    return replace(blocks, stages=stages, total_s=np.where(slow, inf, blocks.total_s))


def _finite(blocks: Blocks) -> npt.NDArray[np.float64]:
    return np.where(np.isfinite(blocks.total_s), blocks.total_s, 0.0)


def _weights(
    blocks: Blocks, y: npt.NDArray[np.float64], devices: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.float64], float]:
    """Weigh with y what each block takes at least of ``devices`` (by class), and what those have at a limit of 1."""
    there = devices > 0
    if not there.any():
        return np.full(blocks.n_blocks, inf), 0.0
    return (blocks.total_s[:, there] * y[there]).min(axis=1), float((y * devices).sum())


def _alive(blocks: Blocks, ideals: Ideals, limit_s: float, budget: Budget) -> npt.NDArray[np.uint64] | None:
    """(n, .) bit s: the devices of state s can do an ideal, and the others the rest, each at most ``limit_s``."""
    s = blocks.stages
    states = int(s.stride[-1])
    alive = np.zeros((len(ideals.parent), -(-states // 64)), dtype=np.uint64)
    finite = _finite(blocks)
    for state in range(states):
        if budget.spent:
            return None
        used = state // s.stride[:-1] % (s.count + 1)
        for devices, outside in ((used, False), (s.count - used, True)):
            y = multipliers(finite, s.banned, devices, STEPS)
            weight, room = _weights(blocks, y, devices)
            whole = float(weight[np.isfinite(weight)].sum())
            most = (room * limit_s * (1.0 + SLACK) if room > 0.0 else 0.0) + SLACK * whole
            may_lie(ideals.parent, ideals.last, weight, outside, most, alive, state, not outside)
    return alive


def _lattice(
    blocks: Blocks, ideals: Ideals, alive: npt.NDArray[np.uint64], kept: npt.NDArray[np.int64], budget: Budget
) -> Lattice | None:
    s, n = blocks.stages, len(kept)
    _, passes, classes = s.compute.shape
    if n * (8 * ideals.bits.shape[1] + 16 * alive.shape[1] + (8 * passes + 16) * classes + 80) > MOST_BYTES:
        return None
    # Sums in the order of the blocks never fall from an ideal to one around it, so this order is one of the lattice.
    most = int(np.argmax(s.count))
    kept = kept[np.argsort(sums(ideals.parent, ideals.last, s.compute[:, :, most].sum(axis=1))[kept], kind="stable")]

    def of(weight: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
        return np.asarray(sums(ideals.parent, ideals.last, weight.astype(np.float64))[kept])

    work = np.empty((n, passes, classes))
    banned = np.zeros((n, classes), dtype=np.int32)
    for c in range(classes):
        for p in range(passes):
            work[:, p, c] = of(s.compute[:, p, c])
        if s.banned[:, c].any():
            banned[:, c] = of(s.banned[:, c])
    key = work.sum(axis=1).T.copy()
    at = np.argsort(key, axis=1, kind="stable").astype(np.int32)
    key = np.take_along_axis(key, at, axis=1)
    bits = np.ascontiguousarray(ideals.bits[kept])
    cut_ptr = np.zeros(n + 1, dtype=np.int64)
    cut = inside = np.zeros(0, dtype=np.int32)
    for counted in (False, True):
        for begin in range(0, n, KEPT):
            if budget.spent or 8 * cut_ptr[begin] > MOST_BYTES:
                return None
            boundaries(s, bits, begin, min(n, begin + KEPT), counted, cut_ptr, cut, inside)
        if not counted:
            cut, inside = (np.zeros(int(cut_ptr[-1]), dtype=np.int32) for _ in range(2))
    return Lattice(
        bits, work, banned, of(s.resident), of(s.weights), np.ascontiguousarray(alive[kept]),
        states_above(s.stride, s.count), key, at, cut_ptr, cut, inside
    )  # fmt: skip


def _stages(lattice: Lattice, labels: Labels, n_blocks: int) -> list[Stage]:
    """Stages of the best whole chain."""
    k = int(labels.cell[2])
    stages: list[Stage] = []
    while k >= 0 and labels.before[k] >= 0:
        before = int(labels.before[k])
        bits = lattice.bits[labels.ideal[k]] & ~lattice.bits[labels.ideal[before]]
        inside = np.unpackbits(bits.view(np.uint8), bitorder="little")[:n_blocks]
        stages.append((np.flatnonzero(inside).tolist(), int(labels.kind[k]), int(labels.copies[k])))
        k = before
    return stages[::-1]
