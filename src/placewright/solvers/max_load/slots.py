"""Places that the exact max-load models fill: devices, or positions in a chain with a class of alike devices each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import rustworkx

from placewright.loads import loads_of, objective_of
from placewright.problem import Problem
from placewright.solvers.max_load.groups import Groups

__all__ = ["Slot", "Slots", "Start", "canonical", "slots_of"]

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Slot:
    """A place: of class ``kind``, with the times of ``device``, at ``position`` (-1: in no chain)."""

    kind: int
    device: int
    position: int = -1


@dataclass(frozen=True, eq=False)
class Slots:
    """All slots of a problem.

    Attributes
    ----------
    slots : tuple of Slot
    device_class : (D,) int32
    ordered : bool
        Whether bound devices form a chain.
    gaps : bool
        Whether there are devices besides the chain, whose groups lie on levels between its positions.
    n_positions : int
        Length of the chain.
    """

    slots: tuple[Slot, ...]
    device_class: Ints
    ordered: bool
    gaps: bool
    n_positions: int

    def __len__(self) -> int:
        return len(self.slots)

    @cached_property
    def kinds(self) -> tuple[tuple[int, int], ...]:
        """(class, number of devices) of the chain."""
        found = sorted({s.kind for s in self.slots if s.position >= 0})
        return tuple((c, int((self.device_class == c).sum())) for c in found)

    @property
    def n_kinds(self) -> int:
        """Classes in the chain."""
        return len(self.kinds)

    @property
    def n_levels(self) -> int:
        """Levels of an order: positions, or positions and the gaps around them."""
        return 2 * self.n_positions + 1 if self.gaps else self.n_positions

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """Level of each slot in an order; -1: any gap."""
        return tuple(-1 if s.position < 0 else (2 * s.position + 1 if self.gaps else s.position) for s in self.slots)

    def at_position(self, position: int) -> list[tuple[int, int]]:
        """(class, slot) at a position."""
        return [(s.kind, k) for k, s in enumerate(self.slots) if s.position == position]

    def possible(self, s: int, t: int) -> bool:
        """Whether two slots can be in use at once, as different devices."""
        a, b = self.slots[s], self.slots[t]
        if s == t or (a.position >= 0 and a.position == b.position):
            return False
        return a.position < 0 or a.kind != b.kind or int((self.device_class == a.kind).sum()) > 1

    def pair(self, s: int, t: int) -> tuple[int, int]:
        """Devices whose link stands for the one between two slots."""
        a, b = self.slots[s], self.slots[t]
        if a.device != b.device:
            return a.device, b.device
        other = np.flatnonzero(self.device_class == a.kind)
        return a.device, int(other[other != a.device][0])

    def symmetry(self, groups: Groups) -> npt.NDArray[np.bool_]:
        """(G, D) where groups may be, when alike devices are numbered by the heaviest group on them."""
        total = groups.compute_s.sum(axis=0)
        may: npt.NDArray[np.bool_] = np.isfinite(total)
        for kind in np.unique(self.device_class):
            alike = np.flatnonzero(self.device_class == kind)
            for rank, g in enumerate(_heaviest(total[:, alike[0]])):
                may[g, alike[rank + 1 :]] = False
        return may

    def devices(self, slot_of: Ints) -> Ints:
        """(G,) device of each group from its slot."""
        if not self.ordered:
            return np.array([self.slots[s].device for s in slot_of], dtype=np.int32)
        rest = {int(c): np.flatnonzero(self.device_class == c).tolist() for c in np.unique(self.device_class)}
        chosen: dict[int, int] = {}
        for s in sorted(set(slot_of.tolist())):
            slot = self.slots[s]
            chosen[s] = slot.device if slot.position < 0 else rest[slot.kind].pop(0)
        return np.array([chosen[s] for s in slot_of.tolist()], dtype=np.int32)


@dataclass(frozen=True, eq=False)
class Start:
    """A placement in terms of slots.

    Attributes
    ----------
    slot, level : (G,) int32
    kind : (n_positions,) int32
        Class at each position.
    """

    slot: Ints
    level: Ints
    kind: Ints


def slots_of(problem: Problem, bound: npt.NDArray[np.bool_]) -> Slots:
    """Return the slots of a problem."""
    classes, D = loads_of(problem).device_class, len(problem.cluster)
    if objective_of(problem).contiguity != "contiguous":
        return Slots(tuple(Slot(int(classes[i]), i) for i in range(D)), classes, False, False, 0)
    n_positions = int(bound.sum())
    first = [int(np.flatnonzero(classes == c)[0]) for c in np.unique(classes[bound])]
    chain = [Slot(int(classes[i]), i, p) for p in range(n_positions) for i in first]
    aside = [Slot(int(classes[i]), i) for i in range(D) if not bound[i]]
    return Slots(tuple(chain + aside), classes, True, bool(aside), n_positions)


def _heaviest(times: npt.NDArray[np.float64]) -> Iterator[int]:
    """List the groups that may be on a device, heaviest first."""
    return (int(g) for g in np.argsort(-np.where(np.isfinite(times), times, -1.0), kind="stable") if times[g] < np.inf)


def canonical(slots: Slots, groups: Groups, unit_device: npt.ArrayLike | None) -> Start | None:
    """Tell which slots a placement fills, alike devices numbered as in the models; ``None``: it breaks the order."""
    if unit_device is None:
        return None
    device = np.zeros(len(groups), dtype=np.int32)
    device[groups.of_unit] = np.asarray(unit_device, dtype=np.int32)
    if not slots.ordered:
        total = groups.compute_s.sum(axis=0)
        new = device.copy()
        for kind in np.unique(slots.device_class):
            alike = np.flatnonzero(slots.device_class == kind)
            seen: dict[int, int] = {}
            for g in _heaviest(total[:, alike[0]]):
                if device[g] in alike:
                    new[g] = alike[seen.setdefault(int(device[g]), len(seen))]
        return Start(new, new, np.zeros(0, dtype=np.int32))
    D, chain = len(slots.device_class), [i for i in range(len(groups.bound)) if groups.bound[i]]
    node = np.where(groups.bound[device], device, D + np.arange(len(groups)))
    graph: rustworkx.PyDiGraph[int, None] = rustworkx.PyDiGraph(multigraph=False)
    graph.add_nodes_from(range(D + len(groups)))
    graph.add_edges_from_no_data([(int(node[a]), int(node[b])) for a, b in groups.edges if node[a] != node[b]])
    order = list(rustworkx.lexicographical_topological_sort(graph, lambda k: f"{k:012d}"))
    if len(order) < D + len(groups):
        return None
    used, position, level_of, kind = set(node.tolist()), 0, {}, []
    for k in order:
        if k < D and k in used:
            level_of[k] = 2 * position + 1 if slots.gaps else position
            kind.append(int(slots.device_class[k]))
            position += 1
        elif k >= D:
            level_of[k] = 2 * position
    kind += [int(slots.device_class[i]) for i in chain if i not in used]
    number = {(s.kind, s.position): k for k, s in enumerate(slots.slots) if s.position >= 0}
    aside = {s.device: k for k, s in enumerate(slots.slots) if s.position < 0}
    level = np.array([level_of[k] for k in node.tolist()], dtype=np.int32)
    slot = np.array(
        [
            number[int(slots.device_class[i]), lv // 2 if slots.gaps else lv] if groups.bound[i] else aside[i]
            for i, lv in zip(device.tolist(), level.tolist(), strict=True)
        ],
        dtype=np.int32,
    )
    return Start(slot, level, np.array(kind, dtype=np.int32))
