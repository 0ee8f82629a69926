"""Orders of the blocks: random ones, and moves of blocks within them, each order worth its best cut into stages."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import inner, kernel
from placewright._kernel.segment import Stages, Table, cut

__all__ = ["Order", "random_order", "search"]

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


class Order(NamedTuple):
    """Order edges of the blocks, both ways, as ragged arrays."""

    before_ptr: Ints
    before: Ints
    after_ptr: Ints
    after: Ints


@kernel
def random_order(g: Order, kind: int, rng: np.random.Generator) -> Ints:
    """Random topological order: 0 any block that is ready, 1 depth first, 2 depth first from the end."""
    B = len(g.before_ptr) - 1
    ptr, to, back_ptr = g.after_ptr, g.after, g.before_ptr
    if kind == 2:
        ptr, to, back_ptr = g.before_ptr, g.before, g.after_ptr
    waits = np.empty(B, dtype=np.int64)
    ready, n = np.empty(B, dtype=np.int64), 0
    for b in range(B):
        waits[b] = back_ptr[b + 1] - back_ptr[b]
        if waits[b] == 0:
            ready[n] = b
            n += 1
    for k in range(n - 1, 0, -1):
        x = rng.integers(0, k + 1)
        ready[k], ready[x] = ready[x], ready[k]
    order = np.empty(B, dtype=np.int32)
    for k in range(B):
        if kind == 0:
            x = rng.integers(0, n)
            ready[n - 1], ready[x] = ready[x], ready[n - 1]
        n -= 1
        b = ready[n]
        order[k if kind != 2 else B - 1 - k] = b
        begun = n
        for e in range(ptr[b], ptr[b + 1]):
            waits[to[e]] -= 1
            if waits[to[e]] == 0:
                ready[n] = to[e]
                n += 1
        for e in range(n - 1, begun, -1):
            x = begun + rng.integers(0, e - begun + 1)
            ready[e], ready[x] = ready[x], ready[e]
    return order


@inner
def _move(g: Order, order: Ints, at: int, to: int, marked: Ints, spare: Ints) -> None:
    """Bring the block at ``at`` to ``to``, with what must stay before it (or after it) in between."""
    marked[order[at]] = 1
    n = kept = 0
    if to < at:  # those that must come along are taken in order, the rest follows
        for k in range(at - 1, to - 1, -1):
            b = order[k]
            for e in range(g.after_ptr[b], g.after_ptr[b + 1]):
                if marked[g.after[e]] == 1:
                    marked[b] = 1
                    break
        for first in (1, 0):
            for k in range(to, at + 1):
                if marked[order[k]] == first:
                    spare[n] = order[k]
                    n += 1
        kept = to
    else:
        for k in range(at + 1, to + 1):
            b = order[k]
            for e in range(g.before_ptr[b], g.before_ptr[b + 1]):
                if marked[g.before[e]] == 1:
                    marked[b] = 1
                    break
        for first in (0, 1):
            for k in range(at, to + 1):
                if marked[order[k]] == first:
                    spare[n] = order[k]
                    n += 1
        kept = at
    for k in range(n):
        order[kept + k] = spare[k]
        marked[spare[k]] = 0


@kernel
def search(
    s: Stages,
    t: Table,
    g: Order,
    order: Ints,
    best: Ints,
    cuts: Ints,
    value: Floats,
    hot: float,
    cold: float,
    moves: int,
    rng: np.random.Generator,
) -> None:
    """Anneal ``order``, whose value is ``value[0]``; ``best`` and ``value[1]`` are the best seen.

    A move takes a block, with those that must stay before (or after) it, over a random distance or just over a place
    where stages meet: ``cuts[1:1 + cuts[0]]``. It is accepted when its value is below the current one plus an
    exponentially distributed allowance, drawn first, so that scoring may stop there. The temperature falls from
    ``hot`` to ``cold`` over the moves.
    """
    B = len(order)
    if B < 2:
        return
    candidate, spare, marked = order.copy(), order.copy(), np.zeros(B, dtype=np.int32)
    for step in range(moves):
        at = int(rng.integers(0, B))
        to = at
        if cuts[0] > 0 and rng.random() < 0.7:
            # Across a cut: a block on one side goes just beyond it.
            meet = cuts[1 + rng.integers(0, cuts[0])]
            far = int(np.exp(rng.random() * np.log(0.5 * B + 1.0)))
            if rng.random() < 0.5:
                at, to = min(B - 1, meet + far - 1), max(0, meet - int(rng.integers(0, 2)))
            else:
                at, to = max(0, meet - far), min(B - 1, meet - 1 + int(rng.integers(0, 2)))
        else:
            far = int(np.exp(rng.random() * np.log(0.5 * B + 1.0)))
            to = min(B - 1, at + far) if rng.random() < 0.5 else max(0, at - far)
        if at == to:
            continue
        candidate[:] = order
        _move(g, candidate, at, to, marked, spare)
        heat = hot * (cold / hot) ** (step / moves)
        limit = value[0] * (1.0 + 1e-12) - heat * np.log(1.0 - rng.random())
        got, state, rank = cut(s, t, candidate, limit)
        if got < limit:
            order[:] = candidate
            value[0] = got
            n, j = 0, B
            while j > 0:
                source = t.source[j, state, rank]
                j, rank = source[0], source[1]
                state -= source[3] * s.stride[source[2]]
                if j > 0:
                    cuts[1 + n] = j
                    n += 1
            cuts[0] = n
            if got < value[1]:
                value[1] = got
                best[:] = candidate
