"""Part of a schedule as a constraint program: a window of the order, all before and behind it as it stands.

The operators of the window are free to move in time, those of some units also between devices. What comes before has
its times: when devices and resources are free, and where tensors are. What comes behind gives each operator, device and
resource a tail: the seconds from its end to the end of the schedule if nothing behind changes its order. Costs of cuts
are those of the operator's present neighbours. So a solution is a proposal: the schedule is timed again in full.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from placewright._kernel.anneal import Limits
from placewright._kernel.schedule import Network
from placewright._kernel.standing import Standing, free_before

__all__ = ["Window", "WindowModel", "build_window", "proposal"]

QUANTA = 2**22
"""Quanta that the window's time is divided into."""


@dataclass(frozen=True, slots=True)
class Window:
    """What is solved again.

    Attributes
    ----------
    first, last : int
        Positions in the order.
    units : frozenset of int
        Units, all of whose operators are in between, that may change device.
    devices : tuple of int
        Where they may go, beside the device where they are.
    """

    first: int
    last: int
    units: frozenset[int]
    devices: tuple[int, ...]


@dataclass(eq=False)
class WindowModel:
    """The program and its variables."""

    proto: Any
    operators: list[int]
    start: dict[int, Any] = field(default_factory=dict)
    x: dict[int, dict[int, Any]] = field(default_factory=dict)
    """Free unit -> device -> literal."""


def proposal(
    model: WindowModel, value_of: Callable[[Any], int], position: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int32], dict[int, int]]:
    """Operators of the window in their new order, and the device of each free unit."""
    order = sorted(model.operators, key=lambda v: (value_of(model.start[v]), int(position[v])))
    devices = {k: next(j for j, here in row.items() if value_of(here)) for k, row in model.x.items()}
    return np.array(order, dtype=np.int32), devices


class _Builder:
    """What the rows of the program share."""

    def __init__(self, g: Network, limits: Limits, c: Standing, window: Window, value_s: float) -> None:
        from ortools.sat.python import cp_model

        self.g, self.limits, self.c, self.window = g, limits, c, window
        self.D = g.processing.shape[1]
        self.operators = c.order[window.first : window.last + 1].tolist()
        self.inside = {v: k for k, v in enumerate(self.operators)}
        free_before(g, c, window.first)
        self.free = c.free.copy()
        self.since = min(float(self.free[: self.D].min()), min(float(c.start[v]) for v in self.operators))
        self.quantum = max(value_s - self.since, 1e-300) / QUANTA
        self.horizon = QUANTA + 1
        self.proto = cp_model.CpModel()
        self.model = WindowModel(self.proto, self.operators)
        self.makespan = self.proto.new_int_var(0, self.horizon, "makespan")
        self.intervals: dict[int, list[Any]] = {i: [] for i in range(self.D)}
        self.exclusive: dict[int, list[Any]] = {}
        self.end: dict[int, Any] = {}

    def quanta(self, seconds: float) -> int:
        """Whole quanta, at most a little more than the horizon."""
        return int(min(max(0.0, np.ceil(seconds / self.quantum - 1e-6)), 2 * self.horizon))

    def at(self, seconds: float) -> int:
        """Quanta since the window's time begins."""
        return self.quanta(seconds - self.since)

    def transfer(self, u: int, i: int, j: int) -> float:
        g = self.g
        if g.transfer.shape[0]:
            return float(g.transfer[u, i, j])
        return float(g.latency[i, j] + g.size[u] * g.per_byte[i, j])

    def used(self, i: int, j: int) -> list[int]:
        return sorted({int(r) for r in self.g.resources[i, j] if r >= 0})

    def places(self, v: int) -> dict[int, Any]:
        """Device -> literal of where v may be; ``True`` where it is fixed."""
        return self.model.x.get(int(self.limits.unit_of[v])) or {int(self.c.device[v]): True}

    def under(self, constraint: Any, *literals: Any) -> None:
        """Let a constraint hold only when all literals do."""
        real = [z for z in literals if z is not True]
        if real:
            constraint.only_enforce_if(*real)


def build_window(g: Network, limits: Limits, c: Standing, window: Window, value_s: float) -> WindowModel:
    """Make the program of a window of a schedule that stands at ``value_s`` seconds, hinted at what stands."""
    b = _Builder(g, limits, c, window, value_s)
    _units(b)
    _operators(b)
    for u in sorted({int(u) for v in b.operators for u in g.read[g.read_ptr[v] : g.read_ptr[v + 1]]}):
        _tensor(b, u)
    for i in range(b.D):
        if b.intervals[i]:
            b.proto.add_no_overlap(b.intervals[i])
    for row in b.exclusive.values():
        if len(row) > 1:
            b.proto.add_no_overlap(row)
    b.proto.minimize(b.makespan)
    return b.model


def _units(b: _Builder) -> None:
    limits, c = b.limits, b.c
    room = {i: float(limits.capacity[i] - c.resident[i]) for i in range(b.D)}
    loads: dict[int, list[Any]] = {i: [] for i in range(b.D)}
    for k in sorted(b.window.units):
        now = int(c.device[limits.member[limits.member_ptr[k]]])
        choice = limits.choice[limits.choice_ptr[k] : limits.choice_ptr[k + 1]].tolist()
        row = {j: b.proto.new_bool_var(f"x{k}_{j}") for j in choice if j == now or j in b.window.devices}
        b.model.x[k] = row
        b.proto.add_exactly_one(row.values())
        for j, here in row.items():
            b.proto.add_hint(here, j == now)
            if limits.resident[k] > 0:
                loads[j].append(int(np.ceil(limits.resident[k])) * here)
        room[now] += float(limits.resident[k])
    for j, terms in loads.items():
        if terms and np.isfinite(room[j]) and sum(limits.resident[k] for k in b.window.units) > room[j]:
            b.proto.add(sum(terms) <= int(max(0.0, room[j])))


def _operators(b: _Builder) -> None:
    g, c = b.g, b.c
    ahead = _ahead(b)
    for v in b.operators:
        b.model.start[v] = start = b.proto.new_int_var(0, b.horizon, f"s{v}")
        b.end[v] = end = b.proto.new_int_var(0, b.horizon, f"e{v}")
        b.proto.add_hint(start, b.at(float(c.start[v])))
        b.proto.add_hint(end, b.at(float(c.finish[v])))
        for i, here in b.places(v).items():
            extra = float(c.span[v] - g.processing[v, c.device[v]])
            if i != c.device[v]:
                extra = max(extra, float(g.cut[v, i]))
            size = b.quanta(float(g.processing[v, i]) + extra)
            if here is True:
                b.intervals[i].append(b.proto.new_interval_var(start, size, end, f"r{v}"))
            else:
                b.intervals[i].append(b.proto.new_optional_interval_var(start, size, end, here, f"r{v}_{i}"))
            b.under(b.proto.add(start >= b.at(float(b.free[i]))), here)
            rest = max(_tail(b, v, i), ahead[i])
            b.under(b.proto.add(b.makespan >= end + b.quanta(rest)), here)


def _ahead(b: _Builder) -> list[float]:
    """Seconds from the next start behind the window on each device to the end of the schedule."""
    c = b.c
    found = [-1.0] * b.D
    behind = b.window.last + 1
    row = min(-(-behind // c.block), len(c.ahead) - 1)
    for q in range(behind, min(row * c.block, len(c.order))):
        v = int(c.order[q])
        i = int(c.device[v])
        if found[i] < 0.0:
            found[i] = float(c.span[v] + c.tail[v])
    return [max(0.0, float(c.ahead[row, i]) if found[i] < 0.0 else found[i]) for i in range(b.D)]


def _tail(b: _Builder, v: int, i: int) -> float:
    """Seconds that must pass after v ends on i, through its readers behind the window."""
    g, c = b.g, b.c
    longest = 0.0
    for u in range(g.made_ptr[v], g.made_ptr[v + 1]):
        for x in g.reader[g.reader_ptr[u] : g.reader_ptr[u + 1]].tolist():
            if x not in b.inside:
                k = int(c.device[x])
                way = 0.0 if k == i else b.transfer(u, i, k)
                longest = max(longest, way + float(c.span[x] + c.tail[x]))
    return longest


def _tensor(b: _Builder, u: int) -> None:
    """Let the readers of a tensor wait for it; a transfer within the window takes its turn on its resources."""
    g, c = b.g, b.c
    maker = int(g.producer[u])
    readers = [x for x in g.reader[g.reader_ptr[u] : g.reader_ptr[u + 1]].tolist() if x in b.inside]
    made_here = maker in b.inside
    homes: dict[int, Any] = b.places(maker) if made_here else {int(c.device[maker]): True}
    ready = b.end[maker] if made_here else b.at(float(c.finish[maker]))
    for x in readers:
        b.proto.add(b.model.start[x] >= ready)
    for j in sorted({j for x in readers for j in b.places(x)}):
        at_j = [(x, b.places(x)[j]) for x in readers if j in b.places(x)]
        if not made_here and j not in homes and _is_there(b, u, j):
            for x, here in at_j:
                b.under(b.proto.add(b.model.start[x] >= b.at(float(c.arrival[u, j]))), here)
            continue
        sources = [i for i in homes if i != j]
        if not sources:
            continue
        there = b.proto.new_int_var(0, 2 * b.horizon, f"a{u}_{j}")
        for i in sources:
            seconds = b.transfer(u, i, j)
            size, home = b.quanta(seconds), homes[i]
            for x, here in at_j:
                b.under(b.proto.add(b.model.start[x] >= ready + size), home, here)
                b.under(b.proto.add(b.model.start[x] >= there), home, here)
            if seconds > 0.0 and b.used(i, j):
                _queued(b, u, i, j, size, ready, there, home, [here for _, here in at_j])
            else:
                b.under(b.proto.add(there >= ready + size), home)


def _queued(
    b: _Builder, u: int, i: int, j: int, size: int, ready: Any, there: Any, home: Any, readers: list[Any]
) -> None:
    """Put the transfer of u from i to j into the queues of its resources, when it takes place."""
    crosses: Any = True
    if home is not True or all(z is not True for z in readers):
        crosses = b.proto.new_bool_var(f"z{u}_{i}_{j}")
        for here in readers:
            b.proto.add_bool_or(*[z.negated() for z in (home, here) if z is not True], crosses)
    sent = b.proto.new_int_var(0, b.horizon, f"t{u}_{i}_{j}")
    begin = max((b.at(float(b.free[b.D + r])) for r in b.used(i, j)), default=0)
    b.proto.add(sent >= begin)
    b.under(b.proto.add(sent >= ready), crosses)
    b.under(b.proto.add(there >= sent + size), crosses)
    name = f"y{u}_{i}_{j}"
    if crosses is True:
        interval = b.proto.new_fixed_size_interval_var(sent, size, name)
    else:
        interval = b.proto.new_optional_fixed_size_interval_var(sent, size, crosses, name)
    for r in b.used(i, j):
        b.exclusive.setdefault(r, []).append(interval)


def _is_there(b: _Builder, u: int, j: int) -> bool:
    """Whether a tensor made before the window is sent to device j before it, too."""
    c = b.c
    if c.readers_on[u, j] == 0:
        return False
    asked = int(c.asked_by[u, j])
    return bool(c.eager[u]) or (asked >= 0 and int(c.device[asked]) == j and c.position[asked] < b.window.first)
