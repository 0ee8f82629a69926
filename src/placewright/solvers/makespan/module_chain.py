"""A chain of modules: which devices matter between them, and which modules with fixed devices are the same."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from placewright.bounds.makespan.span import alike_devices
from placewright.problem import Problem
from placewright.solvers.makespan.modules import Module, local_classes

__all__ = ["Boundary", "ModuleChain", "State", "Steps", "numbered_by_use"]

Ints: TypeAlias = npt.NDArray[np.int64]

State: TypeAlias = tuple[int, ...]
"""Device of the cut, if there is one; then those of the open classes."""

MOST_STATES = 600
"""States between two modules beyond which a class is no longer kept together."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """What is between two modules.

    Attributes
    ----------
    cut : int or None
        The operator; ``None`` at the start and at the end.
    classes : tuple of int
        Numbers of the colocation classes that are *open*: they have members before and behind, and the cut is none.
    states : list of State
    """

    cut: int | None
    classes: tuple[int, ...]
    states: list[State]


@dataclass(frozen=True, eq=False)
class Steps:
    """Ways through one module.

    Attributes
    ----------
    row, column : (S,) arrays
        Numbers of the states before and behind.
    key : (S,) array
        Equal keys: the same module with the same devices fixed, but for swaps of devices that are alike.
    turn : (S, D) array
        The device of the key's module that stands for each device.
    """

    row: Ints
    column: Ints
    key: Ints
    turn: Ints


@dataclass(frozen=True, eq=False)
class ModuleChain:
    """Modules one behind the other, with the states between them.

    Attributes
    ----------
    problem : Problem
    modules : list of Module
    boundaries : list of Boundary
        One more than modules.
    steps : list of Steps
        By module.
    fixed : list of (int, mapping)
        For each key a module, and the devices of its operators that are fixed.
    apart : bool
        Whether members of a class are left apart, because it would take too many states.
    """

    problem: Problem
    modules: list[Module]
    boundaries: list[Boundary]
    steps: list[Steps]
    fixed: list[tuple[int, Mapping[int, int]]]
    apart: bool

    @classmethod
    def of(cls, problem: Problem, modules: list[Module]) -> ModuleChain:
        """Find states, steps and keys."""
        boundaries, apart = _boundaries(problem, modules)
        names = _Names(problem)
        steps = [names.steps(k, m, boundaries[k], boundaries[k + 1]) for k, m in enumerate(modules)]
        return cls(problem, modules, boundaries, steps, names.fixed, apart)

    def distances(self, length: npt.NDArray[np.float64]) -> tuple[list[npt.NDArray[np.float64]], ...]:
        """Shortest ways to each state between modules, and from there to the end, with the length of each key."""
        before = [np.zeros(len(self.boundaries[0].states))]
        for steps, boundary in zip(self.steps, self.boundaries[1:], strict=True):
            reached = np.full(len(boundary.states), np.inf)
            np.minimum.at(reached, steps.column, before[-1][steps.row] + length[steps.key])
            before.append(reached)
        behind = [np.zeros(len(self.boundaries[-1].states))]
        for steps, boundary in zip(reversed(self.steps), reversed(self.boundaries[:-1]), strict=True):
            left = np.full(len(boundary.states), np.inf)
            np.minimum.at(left, steps.row, behind[-1][steps.column] + length[steps.key])
            behind.append(left)
        return before, behind[::-1]

    def shortest(self, length: npt.NDArray[np.float64]) -> tuple[float, list[int]]:
        """Length of the shortest way through all modules, and its step of each; none when there is no way."""
        before, _ = self.distances(length)
        total = float(before[-1].min(initial=np.inf))
        if not np.isfinite(total):
            return np.inf, []
        at, path = int(before[-1].argmin()), list[int]()
        for k in range(len(self.modules) - 1, -1, -1):
            steps = self.steps[k]
            here = np.flatnonzero(steps.column == at)
            path.append(int(here[(before[k][steps.row[here]] + length[steps.key[here]]).argmin()]))
            at = int(steps.row[path[-1]])
        return total, path[::-1]


def _boundaries(problem: Problem, modules: list[Module]) -> tuple[list[Boundary], bool]:
    cuts: list[int | None] = [modules[0].entry, *(m.exit for m in modules)]
    at: dict[int, float] = {v: k + 0.5 for k, m in enumerate(modules) for v in m.inner}
    at |= {v: float(k) for k, v in enumerate(cuts) if v is not None}
    classes = problem.graph.colocation
    where = [sorted({at[v] for v in members}) for members in classes]
    kept, apart = set(range(len(classes))), False
    D = len(problem.cluster)
    while True:
        opened = [
            tuple(q for q in sorted(kept) if where[q][0] < b < where[q][-1] and cuts[b] not in classes[q])
            for b in range(len(cuts))
        ]
        widest = max(opened, key=len)
        if len(widest) == 0 or D ** (1 + len(widest)) <= MOST_STATES:
            break
        kept.discard(max(widest, key=lambda q: (where[q][-1] - where[q][0], q)))
        apart = True
    boundaries = []
    for cut, inside in zip(cuts, opened, strict=True):
        ends = [] if cut is None else [cut]
        rows = [np.flatnonzero(problem.allowed[v]).tolist() for v in (*ends, *(classes[q][0] for q in inside))]
        boundaries.append(Boundary(cut, inside, list(itertools.product(*rows))))
    return boundaries, apart


@dataclass(eq=False)
class _Names:
    """Gives equal modules with equal devices the same number."""

    problem: Problem
    fixed: list[tuple[int, Mapping[int, int]]] = field(default_factory=list)
    keys: dict[tuple[bytes, State], int] = field(default_factory=dict)
    turned: dict[State, tuple[State, tuple[int, ...]]] = field(default_factory=dict)
    known: dict[tuple[bytes, tuple[object, ...]], Steps] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.alike = alike_devices(self.problem)

    def steps(self, k: int, module: Module, before: Boundary, behind: Boundary) -> Steps:
        """Find all pairs of states of a module that agree, and what is fixed in each."""
        classes = self.problem.graph.colocation
        ends = [v for v in (before.cut, behind.cut) if v is not None]
        inner = set(module.inner)
        # Where the device of each class stands in the two states put together.
        slots: dict[int, list[int]] = {}
        for offset, boundary in ((0, before), (len(before.states[0]) if before.states else 0, behind)):
            own = int(boundary.cut is not None)
            for q, members in enumerate(classes):
                if boundary.cut in members:
                    slots.setdefault(q, []).append(offset)
            for place, q in enumerate(boundary.classes):
                slots.setdefault(q, []).append(offset + own + place)
        pinned = [q for q in slots if (q in before.classes or q in behind.classes) and inner & set(classes[q])]
        base = module_signature(self.problem, module, [tuple(sorted(inner & set(classes[q]))) for q in pinned])
        agree = [tuple(places) for places in slots.values() if len(places) > 1]
        same = base, (tuple(before.states), tuple(behind.states), tuple(agree), tuple(slots[q][0] for q in pinned))
        if same in self.known:
            return self.known[same]
        cut_places = ([0] if before.cut is not None else []) + (
            [len(before.states[0])] if behind.cut is not None and before.states else []
        )
        rows, columns, key, turn = list[int](), list[int](), list[int](), list[tuple[int, ...]]()
        for a, first in enumerate(before.states):
            for b, last in enumerate(behind.states):
                both = first + last
                if any(both[p] != both[places[0]] for places in agree for p in places[1:]):
                    continue
                devices = tuple(both[p] for p in (*cut_places, *(slots[q][0] for q in pinned)))
                named, turned = self._renumbered(devices)
                rows.append(a)
                columns.append(b)
                turn.append(turned)
                if (base, named) not in self.keys:
                    self.keys[base, named] = len(self.fixed)
                    fixed = dict(zip(ends, named, strict=False))
                    for q, i in zip(pinned, named[len(ends) :], strict=True):
                        fixed |= dict.fromkeys(sorted(inner & set(classes[q])), i)
                    self.fixed.append((k, fixed))
                key.append(self.keys[base, named])
        D = len(self.problem.cluster)
        found = Steps(
            np.array(rows, dtype=np.int64),
            np.array(columns, dtype=np.int64),
            np.array(key, dtype=np.int64),
            np.array(turn, dtype=np.int64).reshape(len(turn), D),
        )
        self.known[same] = found
        return found

    def _renumbered(self, devices: State) -> tuple[State, tuple[int, ...]]:
        if devices not in self.turned:
            self.turned[devices] = numbered_by_use(devices, self.alike)
        return self.turned[devices]


def numbered_by_use(devices: State, alike: npt.NDArray[np.int32]) -> tuple[State, tuple[int, ...]]:
    """Swap devices that are alike so that those named first come first.

    Returns
    -------
    named : tuple of int
        The same devices after the swap.
    turn : tuple of int
        What takes the place of each device.

    Examples
    --------
    >>> numbered_by_use((3, 1), np.array([0, 1, 1, 1], dtype=np.int32))
    ((1, 2), (0, 2, 3, 1))
    """
    turn = np.arange(len(alike))
    for first in np.unique(alike):
        members = np.flatnonzero(alike == first).tolist()
        seen = list(dict.fromkeys([*(i for i in devices if i in members), *members]))
        turn[seen] = members
    return tuple(int(turn[i]) for i in devices), tuple(turn.tolist())


def module_signature(problem: Problem, module: Module, pinned: Sequence[tuple[int, ...]]) -> bytes:
    """Equal for modules that are the same problem once the same devices are fixed."""
    graph = problem.graph
    operators = module.operators
    local = {v: k for k, v in enumerate(operators)}
    tensors = module.tensors_in(graph)
    shape = [
        (local[t.producer], tuple(local[v] for v in t.readers), t.size_bytes)
        for t in (graph.tensors[u] for u in tensors)
    ]
    names = [tuple(local[v] for v in members) for members in pinned]
    digest = hashlib.sha256()
    what = len(operators), module.entry is None, module.exit is None, shape, local_classes(graph, local), names
    digest.update(repr(what).encode())
    own = list(operators)
    times = np.where(problem.allowed, problem.times.processing_s, np.inf)[own[int(module.entry is not None) :]]
    digest.update(times.tobytes())
    digest.update(problem.cut_s[own].tobytes())
    digest.update(problem.resident_bytes[own[int(module.entry is not None) :]].tobytes())
    if problem.times.transfer_s is not None:
        digest.update(problem.times.transfer_s[tensors].tobytes())
    return digest.digest()
