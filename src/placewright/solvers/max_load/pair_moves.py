"""Placements of a hypergraph's vertices, and moves that share out the vertices of two devices anew."""

from __future__ import annotations

from math import inf

import numpy as np
import numpy.typing as npt

from placewright._kernel.configuration import Incidence, Labels
from placewright._kernel.pair_labels import FAR, loads_of_vertices, pair_states, share_out, stage_end, with_bits
from placewright.bounds.max_load.hypergraph import Hypergraph

__all__ = ["Choice", "PairMoves"]

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]

MOST_STATES = 60_000
"""States of a pair's dynamic program up to which the pair is tried."""

MOST_LABELS = 4_000_000
"""Labels of one."""

MOST_CELLS = 500_000
"""Labels of one of its layers: with more states there are fewer buckets."""


class Choice:
    """Ways to share out the vertices of two devices: a row (first load, second load) each, by the first load.

    The next choice of the same moves takes its memory.
    """

    def __init__(self, moves: PairMoves, device: Ints, pair: tuple[int, int], order: Ints, limit: float) -> None:
        self._moves, self._device, self._pair = moves, device, pair
        self._order = np.asarray(order[(device[order] == pair[0]) | (device[order] == pair[1])], dtype=np.int32)
        self.loads, self._ends = moves.shared_out(self._order, pair, limit)

    def __len__(self) -> int:
        return len(self.loads)

    def placement(self, k: int) -> Ints | None:
        """Placement of the k-th way; ``None`` where it needs more memory than there is."""
        made: Ints = with_bits(self._device, self._order, self._moves.pool, int(self._ends[k]), *self._pair)
        return made if self._moves.fits(made, self._pair) else None


class PairMoves:
    """What moves are made on.

    Attributes
    ----------
    time, weight : (D, n), (D, E) float64
        By device, finite: where a vertex may not be it takes longer than any limit.
    held : (n,) float64
        Bytes of each vertex.
    """

    def __init__(
        self,
        h: Hypergraph,
        graph: Incidence,
        orders: list[Ints],
        held: Floats,
        capacity: Floats,
        far: float,
        fineness: int,
    ) -> None:
        self.graph, self.orders, self.held, self.capacity, self.fineness = graph, orders, held, capacity, fineness
        kind = np.zeros(sum(map(len, h.kinds)), dtype=np.int64)
        for c, alike in enumerate(h.kinds):
            kind[list(alike)] = c
        self.kind, self.pays, self.far = kind, h.pays[kind], far
        self.time = np.ascontiguousarray(np.minimum(h.time[kind], far))
        self.weight = np.ascontiguousarray(np.minimum(h.weight[kind], far))
        self.pool = np.empty(MOST_LABELS, dtype=np.int64)
        self._labels: Labels | None = None
        self.limited = bool((capacity < held.sum()).any())

    def loads(self, device: Ints) -> Floats:
        """(D,) loads."""
        found: Floats = loads_of_vertices(self.graph, self.time, self.weight, device)
        return found

    def fits(self, device: Ints, devices: tuple[int, ...] | None = None) -> bool:
        """Whether memory suffices, on some devices or on all."""
        if not self.limited:
            return True
        used = np.bincount(device, weights=self.held, minlength=len(self.capacity))
        chosen = list(range(len(used))) if devices is None else list(devices)
        return bool((used[chosen] <= self.capacity[chosen]).all())

    def shared_out(self, order: Ints, pair: tuple[int, int], limit: float) -> tuple[Floats, Longs]:
        """List loads of the vertices in ``order`` on two devices, and their labels in the pool."""
        nothing = np.zeros((0, 2)), np.zeros(0, dtype=np.int64)
        if len(order) == 0 or limit <= 0.0:
            return nothing
        rows = list(pair)
        ptr, follow, added = pair_states(self.graph, order, self.time[rows], self.weight[rows], MOST_STATES)
        if len(ptr) == 0:
            return nothing
        width = int(np.diff(ptr).max())
        fineness = min(self.fineness, max(32, MOST_CELLS // width))
        labels = self._labels
        if labels is None or labels.gain.shape[1] < width * fineness or labels.low.shape[1] < width:
            cells, full = 2 * width * fineness, np.full((2, 2 * width), 1 << 40, dtype=np.int64)
            empty = np.zeros((2, cells)), np.full((2, cells), FAR), np.zeros((2, cells), dtype=np.int64)
            self._labels = labels = Labels(*empty, full, np.full((2, 2 * width), -1, dtype=np.int64))
        loads, ends = share_out(ptr, follow, added, limit, fineness, labels, self.pool)
        if len(loads) == 0:
            self._labels = None  # it may have stopped half-way
        return loads, ends

    def choice(self, device: Ints, pair: tuple[int, int], limit: float, order: int) -> Choice:
        """Ways to share out the vertices of two devices, with loads of at most ``limit``."""
        return Choice(self, device, pair, self.orders[order], limit)

    def chain(self, order: int, rng: np.random.Generator) -> Ints | None:
        """Cut an order into runs, one a device that pays, alike ones next to each other, for the least largest load.

        ``None`` where that is not possible.
        """
        devices = np.flatnonzero(self.pays) if self.pays.any() else np.arange(len(self.pays))
        rank = rng.permutation(int(self.kind.max()) + 1)
        devices = devices[np.argsort(rank[self.kind[devices]], kind="stable")]
        best, low, high = None, 0.0, min(self.far, float(self.time.max(axis=0).sum() + self.weight.max(initial=0.0)))
        for _ in range(30):
            middle = 0.5 * (low + high)
            found = self._cut(self.orders[order], devices, middle)
            if found is None:
                low = middle
            else:
                best, high = found, middle
        return best

    def _cut(self, order: Ints, devices: npt.NDArray[np.intp], limit: float) -> Ints | None:
        made, p = np.zeros(len(order), dtype=np.int32), 0
        for i in devices.tolist():
            end = int(
                stage_end(self.graph, order, p, self.time[i], self.weight[i], self.held, limit, float(self.capacity[i]))
            )
            made[order[p:end]] = i
            p = end
        return made if p == len(order) else None

    def alone(self, rng: np.random.Generator) -> Ints | None:
        """Put the vertices, largest first, where the load they add is least; ``None``: one of them fits nowhere."""
        made, load = np.zeros(len(self.held), dtype=np.int32), np.zeros(len(self.capacity))
        room = np.array(self.capacity)
        for v in np.argsort(-self.held, kind="stable").tolist():
            after = np.where((self.time[:, v] < self.far) & (self.held[v] <= room), load + self.time[:, v], inf)
            i = int(after.argmin())
            if after[i] == inf:
                return None
            made[v], load[i] = i, after[i]
            room[i] -= self.held[v]
        return made
