"""Loads of the devices under moves of units: what annealing on the max-load is made of."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import inner, kernel
from placewright._kernel.device_load import device_load

__all__ = ["LoadLimits", "LoadNetwork", "LoadState", "anneal_loads", "load_state", "reset_loads", "value_of"]

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

MEMORY_PENALTY = 10.0
"""Weight of the bytes over a device's capacity, relative to that capacity."""


class LoadNetwork(NamedTuple):
    """What the loads follow from; shapes and meanings as in ``placewright.loads.Loads``."""

    compute: Floats
    producer: Ints
    phase: Ints
    reader_ptr: Ints
    reader: Ints
    made_ptr: Ints
    read_ptr: Ints
    read: Ints
    send: Floats
    receive: Floats
    pair: Floats
    pays: npt.NDArray[np.bool_]
    channel_of: Ints
    channel_s: Floats
    overlap: int
    busy_share: float
    """Both as for ``device_load``."""


class LoadLimits(NamedTuple):
    """Where units may go, who their neighbours are, and what devices hold."""

    choice_ptr: Ints
    choice: Ints
    near_ptr: Ints
    near: Ints
    resident: Floats
    capacity: Floats


class LoadState(NamedTuple):
    """Where the search stands: changed in place."""

    device: Ints
    """(U,) current placement of the units."""
    readers: Ints
    """(M, D) readers of each message on each device."""
    compute: Floats
    enters: Floats
    leaves: Floats
    """(P, D) parts of the loads."""
    channel: Floats
    """(P, C)"""
    held: Floats
    """(D,) bytes."""
    best: Ints
    """(U,) best placement within memory."""
    value: Floats
    """(2,) current energy, best value."""
    moved: Ints
    """(U,) work space: units of one move."""
    source: Ints
    """(U,) work space: where they came from."""
    mark: Ints
    """(U,) work space."""


def load_state(device: Ints, *, messages: int, passes: int, devices: int, channels: int) -> LoadState:
    """Make a state of a placement; :func:`reset_loads` computes the rest of it."""

    def part(width: int) -> Floats:
        return np.zeros((passes, width))

    def work() -> Ints:
        return np.zeros(max(2, len(device)), dtype=np.int32)

    return LoadState(
        device.copy(),
        np.zeros((messages, devices), dtype=np.int32),
        part(devices),
        part(devices),
        part(devices),
        part(channels),
        np.zeros(devices),
        device.copy(),
        np.full(2, np.inf),
        work(),
        work(),
        work(),
    )


@inner
def _weigh(g: LoadNetwork, s: LoadState, m: int, sign: float) -> None:
    """Add (1) or take away (-1) what a message costs."""
    home, p, D = s.device[g.producer[m]], g.phase[m], s.readers.shape[1]
    worst = -1.0
    for i in range(D):
        if i == home or s.readers[m, i] == 0:
            continue
        if len(g.pair):
            seconds = g.pair[m, home, i]
            if g.pays[i]:
                s.enters[p, i] += sign * seconds
        else:
            s.enters[p, i] += sign * g.receive[m, i]
            seconds = g.send[m, home]
        worst = max(worst, seconds)
        if len(g.channel_s):
            for x in range(2):
                c = g.channel_of[home, i, x]
                if c >= 0:
                    s.channel[p, c] += sign * g.channel_s[m, home, i]
    if worst > 0.0 and g.pays[home]:
        s.leaves[p, home] += sign * worst


@inner
def _move(g: LoadNetwork, limits: LoadLimits, s: LoadState, k: int, target: int) -> None:
    """Take a unit to another device."""
    source = s.device[k]
    for m in range(g.made_ptr[k], g.made_ptr[k + 1]):
        _weigh(g, s, m, -1.0)
    for x in range(g.read_ptr[k], g.read_ptr[k + 1]):
        _weigh(g, s, g.read[x], -1.0)
        s.readers[g.read[x], source] -= 1
        s.readers[g.read[x], target] += 1
    s.device[k] = target
    for m in range(g.made_ptr[k], g.made_ptr[k + 1]):
        _weigh(g, s, m, 1.0)
    for x in range(g.read_ptr[k], g.read_ptr[k + 1]):
        _weigh(g, s, g.read[x], 1.0)
    for p in range(len(s.compute)):
        s.compute[p, source] -= g.compute[p, k, source]
        s.compute[p, target] += g.compute[p, k, target]
    s.held[source] -= limits.resident[k]
    s.held[target] += limits.resident[k]


@kernel
def reset_loads(g: LoadNetwork, limits: LoadLimits, s: LoadState) -> None:
    """Compute everything in the state from its placement."""
    s.readers[:] = 0
    s.compute[:], s.enters[:], s.leaves[:], s.channel[:], s.held[:] = 0.0, 0.0, 0.0, 0.0, 0.0
    for m in range(len(g.producer)):
        for x in range(g.reader_ptr[m], g.reader_ptr[m + 1]):
            s.readers[m, s.device[g.reader[x]]] += 1
    for m in range(len(g.producer)):
        _weigh(g, s, m, 1.0)
    for k in range(len(s.device)):
        i = s.device[k]
        s.held[i] += limits.resident[k]
        for p in range(len(s.compute)):
            s.compute[p, i] += g.compute[p, k, i]


@kernel
def value_of(g: LoadNetwork, limits: LoadLimits, s: LoadState, scale: float) -> tuple[float, float, float]:
    """Value in seconds, energy (a high norm of the loads, which every device has a part in), bytes over, relative."""
    value, energy = 0.0, 0.0
    for p in range(len(s.compute)):
        top, norm = 0.0, 0.0
        for i in range(s.compute.shape[1] + s.channel.shape[1]):
            if i < s.compute.shape[1]:
                load = device_load(g.overlap, g.busy_share, s.compute[p, i], s.enters[p, i], s.leaves[p, i])
            else:
                load = s.channel[p, i - s.compute.shape[1]]
            top = max(top, load)
            t = load / scale
            t4 = t * t * t * t
            norm += t4 * t4 * t4
        value += top
        energy += scale * norm ** (1.0 / 12.0)
    excess = 0.0
    for i in range(len(s.held)):
        if s.held[i] > limits.capacity[i] * (1.0 + 1e-12):
            excess += (s.held[i] - limits.capacity[i]) / max(1.0, limits.capacity[i])
    return value, energy + scale * MEMORY_PENALTY * excess, excess


@inner
def _region(limits: LoadLimits, s: LoadState, k: int, size: int) -> int:
    """Gather up to ``size`` units of one device that hang together around unit k; return how many."""
    home, n, at = s.device[k], 1, 0
    s.moved[0], s.mark[k] = k, 1
    while at < n and n < size:
        for x in range(limits.near_ptr[s.moved[at]], limits.near_ptr[s.moved[at] + 1]):
            j = limits.near[x]
            if s.mark[j] == 0 and s.device[j] == home and n < size:
                s.mark[j] = 1
                s.moved[n] = j
                n += 1
        at += 1
    for x in range(n):
        s.mark[s.moved[x]] = 0
    return n


@kernel
def anneal_loads(
    g: LoadNetwork,
    limits: LoadLimits,
    s: LoadState,
    hot: float,
    cold: float,
    moves: int,
    largest: int,
    scale: float,
    rng: np.random.Generator,
) -> None:
    """Try ``moves`` moves while the temperature (in seconds) falls from ``hot`` to ``cold``.

    A move takes one unit, or a region of up to ``largest`` units of one device that hang together, to the device of a
    neighbour (or to any), or exchanges two units. ``scale`` is a load about which the norm is well-behaved.
    """
    U = len(s.device)
    _, current, _ = value_of(g, limits, s, scale)
    for step in range(moves):
        temperature = hot * (cold / hot) ** (step / moves)
        k = rng.integers(0, U)
        kind = rng.random()
        n = 1
        s.moved[0] = k
        if kind < 0.12:  # exchange with a unit elsewhere
            j = rng.integers(0, U)
            if s.device[j] == s.device[k]:
                continue
            s.moved[1] = j
            n = 2
            target = s.device[j]
        else:
            target = -1
            if rng.random() < 0.85:
                degree = limits.near_ptr[k + 1] - limits.near_ptr[k]
                if degree > 0:
                    target = s.device[limits.near[limits.near_ptr[k] + rng.integers(0, degree)]]
            if target < 0 or target == s.device[k]:
                # Inside a device only some moves are worth trying.
                if target >= 0 and rng.random() < 0.5:
                    continue
                target = limits.choice[
                    limits.choice_ptr[k] + rng.integers(0, limits.choice_ptr[k + 1] - limits.choice_ptr[k])
                ]
            if target == s.device[k]:
                continue
            if kind < 0.5 and largest > 1:
                size = 1 + int(largest ** rng.random())
                n = _region(limits, s, int(k), size)
        legal = True
        for x in range(n):
            u = s.moved[x]
            s.source[x] = s.device[u]
            goes = target if x == 0 or kind >= 0.12 else s.device[k]
            if not np.isfinite(g.compute[0, u, goes]):
                legal = False
        if not legal:
            continue
        back = s.device[k]
        for x in range(n):
            _move(g, limits, s, s.moved[x], back if kind < 0.12 and x == 1 else target)
        value, energy, excess = value_of(g, limits, s, scale)
        if energy <= current or rng.random() < np.exp((current - energy) / temperature):
            current = energy
            if excess == 0.0 and value < s.value[1]:
                s.value[1] = value
                s.best[:] = s.device
        else:
            for x in range(n - 1, -1, -1):
                _move(g, limits, s, s.moved[x], s.source[x])
    s.value[0] = current
