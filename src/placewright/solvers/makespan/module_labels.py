"""Labels of time and memory along a chain of modules."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from placewright._kernel.module_columns import unbeaten
from placewright.algorithm import Budget
from placewright.bounds.makespan.span import alike_devices
from placewright.solvers.makespan.module_chain import ModuleChain, numbered_by_use

__all__ = ["Column", "Ends", "joined_labels"]

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int32]
Longs: TypeAlias = npt.NDArray[np.int64]

MOST_AT_ONCE = 200_000
"""Labels from which on those that are there are looked through before more are made."""

CANDIDATES = 4
"""Times the width: most labels of one kind of state that are compared."""

TOLERANCE = 1.0 + 1e-9
"""What sums of floats may be above a limit and still be tried."""


@dataclass(eq=False)
class Column:
    """Placements of one module with fixed devices.

    Attributes
    ----------
    device : (P, n) array
    low_s : (P,) array
        Bound of each one's makespan, whole multiples of one quantum, so that sums in any order are equal.
    held, peak : (P, D) arrays
        Bytes of weights on each device, and live bytes that it must have room for at some instant.
    listed : (n,) array
        Operators whose devices are what the placement is about; the others are where it suits.
    """

    device: Ints
    low_s: Floats
    held: Floats
    peak: Floats
    listed: npt.NDArray[np.bool_]

    def unbeaten(self, limited: npt.NDArray[np.bool_]) -> Longs:
        """Rows that no other row is nowhere above: those that a best plan needs."""
        numbers = np.column_stack([self.low_s, self.held[:, limited], self.peak[:, limited]])
        order = np.lexsort(numbers.T[::-1])
        kept, _ = unbeaten(np.ascontiguousarray(numbers[order]), len(order))
        return np.asarray(order[kept], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Ends:
    """What comes out at the end of the chain.

    Attributes
    ----------
    time_s : float
        Least sum of bounds of placements that fit together; ``inf`` when none were found.
    dropped_s : float
        Bound of everything that labels which were dropped could have become.
    path : list of (int, int)
        Step of each module, and which placement of its column.
    """

    time_s: float
    dropped_s: float
    path: list[tuple[int, int]]


@dataclass(eq=False)
class _Labels:
    state: Longs
    time_s: Floats
    held: Floats
    peak: Floats
    cost: Floats
    origin: Longs
    step: Longs
    placed: Longs

    def __getitem__(self, rows: Longs) -> _Labels:
        return _Labels(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


def joined_labels(
    chain: ModuleChain,
    columns: dict[int, Column],
    capacity: Floats,
    prices: Floats,
    behind: list[Floats],
    due_s: float,
    limit_s: float,
    width: int,
    budget: Budget,
) -> Ends:
    """Find the placements of all modules that fit together and take the least time.

    A label is what is known after some modules: state, time, bytes held on each device, largest peak of live bytes on
    each. It can end at time + prices x held + ``behind`` - due at least, and is dropped when that is above the limit. A
    label that is nowhere below another one of its state is dropped too: each way on is open to the other as well.
    So is one that is so after devices which are alike are swapped, since the swap makes a way on of one to one of the
    other. When there are too many, those that could end last are dropped, and their bounds noted.

    Parameters
    ----------
    columns : mapping
        By key; keys that are not there can't be part of anything within the limit.
    capacity, prices : (D,) arrays
    behind : list of arrays
        For each boundary and state what the rest costs at least at these prices.
    width : int
        Most labels of one kind of state.
    """
    D, limited = len(capacity), np.isfinite(capacity)
    one = np.zeros(1, dtype=np.int64)
    labels = _Labels(one, np.zeros(1), np.zeros((1, D)), np.zeros((1, D)), np.zeros(1), one, one, one)
    labels = labels[np.zeros(len(chain.boundaries[0].states), dtype=np.int64)]
    labels.state = np.arange(len(chain.boundaries[0].states))
    layers, dropped = [labels], inf
    alike = alike_devices(chain.problem)
    rows_of = {key: column.unbeaten(limited) for key, column in columns.items()}
    for k in range(len(chain.modules)):
        steps, states = chain.steps[k], chain.boundaries[k + 1].states
        parts, made = list[_Labels](), 0
        for a in np.unique(labels.state).tolist():
            rows = np.flatnonzero(labels.state == a)
            for s in np.flatnonzero(steps.row == a).tolist():
                column = columns.get(int(steps.key[s]))
                if column is None or budget.spent:
                    continue
                b, turn, some = int(steps.column[s]), steps.turn[s], rows_of[int(steps.key[s])]
                held, low_s = column.held[some][:, turn] * limited, column.low_s[some]
                cost = low_s + held @ prices
                ends = labels.cost[rows][:, None] + cost[None, :] + (behind[k + 1][b] - due_s)
                x, y = np.nonzero(ends <= limit_s * TOLERANCE)
                if not len(x):
                    continue
                x = rows[x]
                both = labels.held[x] + held[y]
                peak = np.maximum(labels.peak[x], (column.peak[some][:, turn] * limited)[y])
                fits = ((both + peak <= capacity) | ~limited).all(axis=1)
                x, y, both, peak = x[fits], y[fits], both[fits], peak[fits]
                time_s = labels.time_s[x] + low_s[y]
                n = len(x)
                full = np.full(n, b, dtype=np.int64), np.full(n, s, dtype=np.int64)
                parts.append(_Labels(full[0], time_s, both, peak, labels.cost[x] + cost[y], x, full[1], some[y]))
                made += n
                if made > MOST_AT_ONCE:
                    merged, lost = _kept(_together(parts), behind[k + 1] - due_s, states, alike, limited, width)
                    parts, made, dropped = [merged], 0, min(dropped, lost)
        if budget.spent:
            return Ends(inf, -inf, [])
        if not parts:
            return Ends(inf, dropped, [])
        labels, lost = _kept(_together(parts), behind[k + 1] - due_s, states, alike, limited, width)
        dropped = min(dropped, lost)
        layers.append(labels)
    if not len(labels.time_s):
        return Ends(inf, dropped, [])
    at, path = int(labels.time_s.argmin()), list[tuple[int, int]]()
    least = float(labels.time_s[at])
    for layer in reversed(layers[1:]):
        path.append((int(layer.step[at]), int(layer.placed[at])))
        at = int(layer.origin[at])
    return Ends(least, dropped, path[::-1])


def _together(parts: list[_Labels]) -> _Labels:
    return _Labels(*(np.concatenate([getattr(p, name) for p in parts]) for name in _Labels.__dataclass_fields__))


def _kept(
    labels: _Labels,
    rest: Floats,
    states: list[tuple[int, ...]],
    alike: Ints,
    limited: npt.NDArray[np.bool_],
    width: int,
) -> tuple[_Labels, float]:
    """Drop what others are nowhere above, and what is too much; and the least end of the latter."""
    kinds: dict[tuple[int, ...], list[int]] = {}
    turns: list[list[int]] = []
    for b, state in enumerate(states):
        named, turn = numbered_by_use(state, alike)
        kinds.setdefault(named, []).append(b)
        turns.append(np.argsort(turn).tolist())
    keep, lost = list[Longs](), inf
    for named, members in kinds.items():
        rows = np.flatnonzero(np.isin(labels.state, members))
        if not len(rows):
            continue
        ends = labels.cost[rows] + rest[labels.state[rows]]
        most = CANDIDATES * width
        if len(rows) > most:
            by_end = np.argsort(ends, kind="stable")
            lost = min(lost, float(ends[by_end[most]]))
            rows, ends = rows[by_end[:most]], ends[by_end[:most]]
        back = np.array(turns)[labels.state[rows]]
        held = np.take_along_axis(labels.held[rows], back, axis=1)
        peak = np.take_along_axis(labels.peak[rows], back, axis=1)
        for first in np.unique(alike):
            free = np.array([i for i in np.flatnonzero(alike == first) if i not in named], dtype=np.int64)
            if len(free) > 1 and limited[free[0]]:
                by_size = free[np.argsort(-held[:, free], axis=1, kind="stable")]
                held[:, free] = np.take_along_axis(held, by_size, axis=1)
                peak[:, free] = np.take_along_axis(peak, by_size, axis=1)
        numbers = np.column_stack([labels.time_s[rows], held[:, limited], peak[:, limited]])
        order = np.lexsort(numbers.T[::-1])
        kept, _ = unbeaten(np.ascontiguousarray(numbers[order]), len(rows))
        best = order[kept]
        if len(best) > width:
            best = best[np.argsort(ends[best], kind="stable")]
            lost, best = min(lost, float(ends[best[width]])), best[:width]
        keep.append(rows[best])
    chosen = np.concatenate(keep) if keep else np.zeros(0, dtype=np.int64)
    return labels[chosen], lost
