"""All partial placements along a chain of modules that may beat a plan: extended, compared, merged where too many."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

import numpy as np
import numpy.typing as npt

from placewright._kernel.load_front import cells, front, merge
from placewright._kernel.load_vectors import Vectors, extend, new_vectors
from placewright.algorithm import Budget
from placewright.bounds.max_load.module_network import ModuleNetwork
from placewright.bounds.max_load.module_prices import Priced

__all__ = ["Walk", "walk"]

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

AT_ONCE = 4096
"""Vectors that are extended between two looks at the budget."""

ASKED = 128
"""Vectors of a state that a new one is compared with, the most promising first."""

FINEST, COARSEST = 2.0**-14, 4.0
"""Widths of a cell, in limits."""


@dataclass(slots=True)
class Walk:
    """What is left at the end of the chain.

    Attributes
    ----------
    values : (N,) float64
        Seconds, ascending; each at most the value of every placement that its vector stands for.
    merged : int
        Vectors that were merged into others: 0 when what is left is exact.
    """

    values: Floats = field(default_factory=lambda: np.zeros(0))
    merged: int = 0
    _order: Longs = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    _steps: list[tuple[Ints, npt.NDArray[np.int8], Longs]] = field(default_factory=list)
    _devices: int = 0

    def place(self, rank: int) -> Ints:
        """(G,) devices, by step, of a placement that the rank-th vector stands for."""
        path, x = [], int(self._order[rank])
        for parent, choice, moved in reversed(self._steps):
            path.append((int(choice[x]), int(moved[x])))
            x = int(parent[x])
        device_of_name = list(range(self._devices))
        found = []
        for d, moved_to in reversed(path):
            found.append(device_of_name[d])
            before, device_of_name = device_of_name, [0] * self._devices
            for i, device in enumerate(before):
                device_of_name[moved_to >> 4 * i & 15] = device
        return np.array(found, dtype=np.int32)


def walk(
    network: ModuleNetwork, prices: list[Priced], limit_s: float, width: int, budget: Budget, *, lower: bool = True
) -> Walk | None:
    """Extend the empty placement step by step; ``None`` when the budget is spent on the way.

    Left out is only what can't end within ``limit_s``, and what another vector of its state is no worse than. More than
    ``width`` vectors are sorted into cells, and those of a cell replaced by one with the least of each entry, and of
    each priced sum: no worse than any of them, so that the least value at the end is a lower bound on that of all
    placements within the limit. Without ``lower`` the most promising one of a cell stays as it is: no bound, but what
    is left at the end is real.
    """
    s = network.steps
    G, _, D = s.compute.shape
    slots, marks = int(s.slot.max()) + 1, D + int(s.slot.max()) + 1 if s.mode else 0
    now = new_vectors(1, slots, network.entries, marks, len(prices))
    offered = np.array([p.price for p in prices])
    tables = np.array([p.table for p in prices])
    found, fineness = Walk(_devices=D), FINEST
    unit = _units(network, limit_s)
    for t in range(G):
        parts = []
        for begin in range(0, len(now.load), AT_ONCE):
            if budget.spent:
                return None
            old = Vectors._make(array[begin : begin + AT_ONCE] for array in now)
            parts.append(_extended(network, t, old, begin, offered, tables, limit_s))
        new = Vectors._make(np.concatenate([part[0][k] for part in parts]) for k in range(len(now)))
        parent, choice, moved, key, score = (np.concatenate([part[k] for part in parts]) for k in range(1, 6))
        keep = front(new, key, np.lexsort((score, key)), ASKED)
        kept = np.flatnonzero(keep)
        if len(kept) > width:
            small = Vectors._make(array[kept] for array in new)
            fineness, merged, left = _merged(small, key[kept], score[kept], unit, width, fineness, lower)
            found.merged += merged
            now, kept = Vectors._make(array[left] for array in small), kept[left]
        else:
            now = Vectors._make(array[kept] for array in new)
        found._steps.append((parent[kept], choice[kept], moved[kept]))
        if not len(kept):
            return found
    values = np.maximum(_values(network, now.load), _priced_values(network, prices, now.priced))
    found._order = np.argsort(values, kind="stable")
    found.values = values[found._order]
    return found


def _extended(
    network: ModuleNetwork, t: int, old: Vectors, begin: int, prices: Floats, tables: Floats, limit_s: float
) -> tuple[Vectors, Ints, npt.NDArray[np.int8], Longs, Longs, Floats]:
    D = network.steps.compute.shape[2]
    most = len(old.load) * D + 1
    new = new_vectors(most, old.device.shape[1], old.load.shape[1], old.marks.shape[1], len(prices))
    parent, choice = np.empty(most, dtype=np.int32), np.empty(most, dtype=np.int8)
    moved, key, score = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64), np.empty(most)
    n = extend(
        network.steps, t, old, prices, network.at, tables, limit_s, new, parent, choice, moved, key, score
    )  # fmt: skip
    return Vectors._make(a[:n] for a in new), parent[:n] + np.int32(begin), choice[:n], moved[:n], key[:n], score[:n]


def _units(network: ModuleNetwork, limit_s: float) -> Floats:
    """Say what an entry may be at most: the limit, or a memory."""
    s = network.steps
    finite = np.where(np.isfinite(s.compute), s.compute, 0.0)
    unit = np.full(network.entries, limit_s if limit_s < inf else max(float(finite.max(axis=2).sum()), 1e-300))
    if s.memory:
        D = len(s.capacity)
        unit[network.prices - D : network.prices] = np.minimum(s.capacity, max(float(s.held.sum()), 1.0)) + 1.0
    return unit


def _merged(
    v: Vectors, key: Longs, score: Floats, unit: Floats, width: int, fineness: float, lower: bool
) -> tuple[float, int, npt.NDArray[np.int64]]:
    """Merge in the finest cells of which there are few enough; give their fineness, how many merged, which are left."""
    code = np.empty(len(key), dtype=np.int64)
    fineness = max(FINEST, fineness / 4.0)
    while True:
        cells(v, unit * fineness, code)
        order = np.lexsort((score, code, key))
        a, b = key[order], code[order]
        count = 1 + int(((a[1:] != a[:-1]) | (b[1:] != b[:-1])).sum())
        if count <= width or fineness >= COARSEST:
            break
        fineness *= 2.0
    keep = np.empty(len(key), dtype=np.bool_)
    merged = merge(v, key, code, order, lower, keep)
    return fineness, merged, np.flatnonzero(keep)


def _priced_values(network: ModuleNetwork, prices: list[Priced], sums: Floats) -> Floats:
    """Bound values by priced sums, where no device is closed."""
    s = network.steps
    if s.mode:
        return np.zeros(len(sums))
    found = np.zeros(len(sums))
    for k, p in enumerate(prices):
        found = np.maximum(found, sums[:, k] - p.room)
    return found


def _values(network: ModuleNetwork, load: Floats) -> Floats:
    """Sum of the largest entries of each pass."""
    s = network.steps
    passes, D = s.compute.shape[1:]
    wires = passes * D * s.parts
    total = np.zeros(len(load))
    for p in range(passes):
        own = [
            load[:, p * D * s.parts : (p + 1) * D * s.parts],
            load[:, wires + p * s.channels : wires + (p + 1) * s.channels],
            load[:, network.prices + p : network.prices + p + 1],
        ]
        total += np.concatenate(own, axis=1).max(axis=1)
    return total
