"""Simulated annealing over placements and orders, each candidate scheduled in full."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import inner, kernel
from placewright._kernel.memory import peak_activations
from placewright._kernel.schedule import Network, Workspace, decode

__all__ = ["Limits", "State", "anneal", "cost_of"]

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

MEMORY_PENALTY = 10.0
"""Weight of the bytes over a device's capacity, relative to that capacity, in the cost of a placement."""

LARGEST_BLOCK = 12
"""Most units that one move takes to another device together."""


class Limits(NamedTuple):
    """What a placement must respect, as arrays (shapes as in ``placewright.arrays.Arrays``)."""

    unit_of: Ints
    member_ptr: Ints
    member: Ints
    choice_ptr: Ints
    """(U+1,) devices that unit k may use are choice[choice_ptr[k]:choice_ptr[k+1]]."""
    choice: Ints
    resident: Floats
    capacity: Floats
    output: npt.NDArray[np.bool_]
    memory_may_bind: bool


class State(NamedTuple):
    """Where the search stands: changed in place."""

    device: Ints
    """(n,) current placement."""
    order: Ints
    """(n,) current topological order."""
    position: Ints
    """(n,) its inverse."""
    best_device: Ints
    best_order: Ints
    value: Floats
    """(2,) current cost, best feasible makespan."""


@inner
def _excess(g: Network, limits: Limits, device: Ints, w: Workspace) -> float:
    """Bytes above capacity, relative to it, summed over devices; 0: the placement fits."""
    used = peak_activations(g, device, limits.output, w)
    for k in range(len(limits.resident)):
        used[device[limits.member[limits.member_ptr[k]]]] += limits.resident[k]
    excess = 0.0
    for i in range(len(used)):
        if used[i] > limits.capacity[i]:
            excess += (used[i] - limits.capacity[i]) / max(1.0, limits.capacity[i])
    return excess


@kernel
def cost_of(
    g: Network, limits: Limits, device: Ints, order: Ints, by_reader: bool, tail: Floats, limit: float, w: Workspace
) -> tuple[float, bool]:
    """Makespan, raised by a penalty where memory is exceeded, and whether the placement fits."""
    makespan = decode(g, order, device, by_reader, tail, limit, w)
    if not limits.memory_may_bind or not np.isfinite(makespan):
        return makespan, True
    excess = _excess(g, limits, device, w)
    return makespan * (1.0 + MEMORY_PENALTY * excess), excess == 0.0


@inner
def _window(g: Network, v: int, position: Ints) -> tuple[int, int]:
    """First and last position that v may take in the order while the others keep theirs."""
    low, high = 0, len(position) - 1
    for k in range(g.read_ptr[v], g.read_ptr[v + 1]):
        p = position[g.producer[g.read[k]]]
        if p + 1 > low:
            low = p + 1
    for k in range(g.reader_ptr[g.made_ptr[v]], g.reader_ptr[g.made_ptr[v + 1]]):
        p = position[g.reader[k]]
        if p - 1 < high:
            high = p - 1
    return low, high


@inner
def _shift(order: Ints, position: Ints, source: int, target: int) -> None:
    """Take the operator at ``source`` out of the order and put it at ``target``."""
    v = order[source]
    step = 1 if target > source else -1
    for k in range(source, target, step):
        order[k] = order[k + step]
        position[order[k]] = k
    order[target] = v
    position[v] = target


@inner
def _neighbour(g: Network, v: int, rng: np.random.Generator) -> int:
    """Pick a random operator that v reads from or is read by; v itself when there is none."""
    reads = g.read_ptr[v + 1] - g.read_ptr[v]
    first, last = g.reader_ptr[g.made_ptr[v]], g.reader_ptr[g.made_ptr[v + 1]]
    total = reads + last - first
    if total == 0:
        return v
    k = int(rng.random() * total)
    return int(g.producer[g.read[g.read_ptr[v] + k]] if k < reads else g.reader[first + k - reads])


@inner
def _may_use(limits: Limits, unit: int, i: int) -> bool:
    k, last = int(limits.choice_ptr[unit]), int(limits.choice_ptr[unit + 1])
    while k < last and limits.choice[k] != i:
        k += 1
    return k < last


@inner
def _move_unit(limits: Limits, device: Ints, unit: int, i: int) -> None:
    for k in range(limits.member_ptr[unit], limits.member_ptr[unit + 1]):
        device[limits.member[k]] = i


@kernel
def anneal(
    g: Network,
    limits: Limits,
    state: State,
    hot: float,
    cold: float,
    iterations: int,
    by_reader: bool,
    tail: Floats,
    w: Workspace,
    rng: np.random.Generator,
) -> None:
    """Run ``iterations`` moves while the temperature falls geometrically from ``hot`` to ``cold`` (seconds).

    Moves: one unit to a random device; one unit to a neighbour's device; a connected block of units that share a
    device to another one; one operator elsewhere in the order. ``state`` is updated in place.
    """
    n = len(state.order)
    units = np.empty(LARGEST_BLOCK, dtype=np.int64)
    cooling = (cold / hot) ** (1.0 / max(1, iterations)) if hot > 0.0 else 1.0
    temperature = hot
    for _ in range(iterations):
        temperature *= cooling
        v = int(rng.random() * n)
        kind = rng.random()
        count = 0
        source = target = 0
        before = state.device[v]
        if kind < 0.30:
            low, high = _window(g, v, state.position)
            if high <= low:
                continue
            source = state.position[v]
            target = low + int(rng.random() * (high - low + 1))
            if target == source:
                continue
            _shift(state.order, state.position, source, target)
        else:
            unit = limits.unit_of[v]
            first, last = limits.choice_ptr[unit], limits.choice_ptr[unit + 1]
            if last - first < 2:
                continue
            to = limits.choice[first + int(rng.random() * (last - first))]
            if kind < 0.55:
                to = state.device[_neighbour(g, v, rng)]
            if to == before or not _may_use(limits, unit, to):
                continue
            wanted = 1
            if kind > 0.75:
                wanted = 2 + int(rng.random() * (LARGEST_BLOCK - 1))
            units[0] = unit
            count = 1
            _move_unit(limits, state.device, unit, to)
            at = v
            for _step in range(2 * wanted):
                if count >= wanted:
                    break
                x = _neighbour(g, at, rng)
                if state.device[x] == before and _may_use(limits, limits.unit_of[x], to):
                    units[count] = limits.unit_of[x]
                    count += 1
                    _move_unit(limits, state.device, limits.unit_of[x], to)
                if state.device[x] == to:
                    at = x
        threshold = state.value[0] - temperature * np.log(1.0 - rng.random())
        cost, fits = cost_of(g, limits, state.device, state.order, by_reader, tail, threshold, w)
        if cost <= threshold:
            state.value[0] = cost
            if fits and cost < state.value[1]:
                state.value[1] = cost
                state.best_device[:] = state.device
                state.best_order[:] = state.order
        elif count == 0:
            _shift(state.order, state.position, target, source)
        else:
            for k in range(count):
                _move_unit(limits, state.device, units[k], before)
