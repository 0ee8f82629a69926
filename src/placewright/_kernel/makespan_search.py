"""Simulated annealing over placements and orders of operators; a move is timed only where it reaches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placewright._kernel.anneal import Limits
from placewright._kernel.changes import begin, put_unit, shift, turn
from placewright._kernel.compiling import inner, kernel, uncounted_inner
from placewright._kernel.schedule import Network
from placewright._kernel.standing import Standing, retime, revert
from placewright._kernel.standing_kept import commit

__all__ = ["KINDS", "Search", "activations_on", "kept_cost", "search_schedules", "search_state"]

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

KINDS = ("order", "unit", "neighbour", "block", "run", "swap", "exchange", "sending")
"""Names of the moves, in the order of their weights."""

LARGEST_BLOCK = 12
"""Most units of one connected block."""

CRITICAL = 0.7
"""How often an operator on a critical way is looked for."""


class Search(NamedTuple):
    """What a search keeps beside the schedule: changed in place."""

    value: Floats
    """(3,) current makespan, best feasible one, current excess of memory."""
    best_device: Ints
    best_order: Ints
    best_eager: npt.NDArray[np.bool_]
    activations: Floats
    """(D,) peaks of live tensors when they were last computed; inf: never."""
    unit: npt.NDArray[np.int64]
    """(U,) scratch: units that the move takes elsewhere."""
    came_from: Ints
    """(U,) scratch: where they were."""
    touched: npt.NDArray[np.int64]
    """(U + 1,) scratch: the last move that took the unit, and the last move."""
    events: Floats
    """(3, T) scratch: births, deaths and bytes of tensors."""
    tried: Floats
    """(kinds,) moves of each kind that were timed."""
    gained: Floats
    """(kinds,) of them those that made the current makespan fall."""


def search_state(g: Network, c: Standing, n_units: int) -> Search:
    """Make the arrays for a search from a standing schedule."""
    D, T = g.processing.shape[1], len(g.producer)
    return Search(
        np.full(3, np.inf),
        c.device.copy(),
        c.order.copy(),
        c.eager.copy(),
        np.full(D, np.inf),
        np.zeros(n_units, dtype=np.int64),
        np.zeros(n_units, dtype=np.int32),
        np.full(n_units + 1, -1, dtype=np.int64),
        np.zeros((3, max(1, T))),
        np.zeros(len(KINDS)),
        np.zeros(len(KINDS)),
    )


@kernel
def activations_on(g: Network, c: Standing, output: npt.NDArray[np.bool_], i: int, events: Floats) -> float:
    """Peak of the live tensors on device i, as :func:`placewright._kernel.memory.peak_activations` has it."""
    producer, reader_ptr, reader, size = g.producer, g.reader_ptr, g.reader, g.size
    device, start, finish, sent, arrival, readers_on = c.device, c.start, c.finish, c.sent, c.arrival, c.readers_on
    births, deaths, bytes_ = events[0], events[1], events[2]
    D = len(c.ended)
    m = 0
    for u in range(len(producer)):
        if size[u] == 0.0:
            continue
        v = producer[u]
        home = device[v]
        if home != i and readers_on[u, i] == 0:
            continue
        since = start[v]
        until = finish[v]
        if home != i:
            since = sent[u, i]
            until = since
        elif output[u]:
            until = np.inf
        elif c.away_out[v] > 0:
            for j in range(D):
                if j != home and readers_on[u, j] > 0:
                    until = max(until, arrival[u, j])
        if readers_on[u, i] > 0:
            for k in range(reader_ptr[u], reader_ptr[u + 1]):
                if device[reader[k]] == i:
                    until = max(until, finish[reader[k]])
        if until > since:
            births[m], deaths[m], bytes_[m] = since, until, size[u]
            m += 1
    by_birth = np.argsort(births[:m])
    by_death = np.argsort(deaths[:m])
    live = peak = 0.0
    d = 0
    for b in range(m):
        a = by_birth[b]
        while d < m and deaths[by_death[d]] <= births[a]:
            live -= bytes_[by_death[d]]
            d += 1
        live += bytes_[a]
        peak = max(peak, live)
    return peak


@uncounted_inner
def _excess(limits: Limits, c: Standing, s: Search) -> float:
    """Bytes above capacity, relative to it, summed over devices, by the peaks last computed."""
    excess = 0.0
    for i in range(len(c.ended)):
        known = s.activations[i]
        used = c.resident[i] + (min(known, c.present[i]) if known < np.inf else 0.0)
        if used > limits.capacity[i]:
            excess += (used - limits.capacity[i]) / max(1.0, limits.capacity[i])
    return excess


@inner
def _look_at_memory(g: Network, limits: Limits, c: Standing, s: Search) -> float:
    """Compute the peaks where they may matter, and return the excess."""
    for i in range(len(c.ended)):
        if c.resident[i] + c.present[i] > limits.capacity[i] >= c.resident[i]:
            s.activations[i] = activations_on(g, c, limits.output, i, s.events)
    return _excess(limits, c, s)


@kernel
def kept_cost(g: Network, limits: Limits, c: Standing, s: Search) -> None:
    """Take note of the schedule that stands, and keep it where it is the best feasible one."""
    makespan = c.ended.max()
    excess = _look_at_memory(g, limits, c, s) if limits.memory_may_bind else 0.0
    s.value[0], s.value[2] = makespan, excess
    if excess == 0.0 and makespan < s.value[1]:
        s.value[1] = makespan
        s.best_device[:], s.best_order[:], s.best_eager[:] = c.device, c.order, c.eager


@uncounted_inner
def _window(g: Network, v: int, position: Ints) -> tuple[int, int]:
    """First and last position that v may take in the order while the others keep theirs."""
    low, high = 0, len(position) - 1
    for k in range(g.read_ptr[v], g.read_ptr[v + 1]):
        low = max(low, position[g.producer[g.read[k]]] + 1)
    for k in range(g.reader_ptr[g.made_ptr[v]], g.reader_ptr[g.made_ptr[v + 1]]):
        high = min(high, position[g.reader[k]] - 1)
    return low, high


@uncounted_inner
def _neighbour(g: Network, v: int, rng: np.random.Generator) -> int:
    """Pick a random operator that v reads from or is read by; v itself when there is none."""
    reads = g.read_ptr[v + 1] - g.read_ptr[v]
    first, last = g.reader_ptr[g.made_ptr[v]], g.reader_ptr[g.made_ptr[v + 1]]
    total = reads + last - first
    if total == 0:
        return v
    k = int(rng.random() * total)
    return int(g.producer[g.read[g.read_ptr[v] + k]] if k < reads else g.reader[first + k - reads])


@uncounted_inner
def _take(g: Network, limits: Limits, c: Standing, s: Search, unit: int, j: int, count: int) -> int:
    """Let a unit run on j where it may and was not taken yet; returns how many units the move took so far."""
    if s.touched[unit] == s.touched[-1]:
        return count
    i = c.device[limits.member[limits.member_ptr[unit]]]
    if i == j:
        return count
    for k in range(limits.choice_ptr[unit], limits.choice_ptr[unit + 1]):
        if limits.choice[k] == j:
            s.touched[unit] = s.touched[-1]
            s.unit[count], s.came_from[count] = unit, i
            put_unit(g, c, limits.member_ptr, limits.member, limits.resident, unit, j)
            return count + 1
    return count


@uncounted_inner
def _take_run(
    g: Network, limits: Limits, c: Standing, s: Search, first: int, last: int, i: int, j: int, both: bool, count: int
) -> int:
    """Units on i at the positions from first to last go to j, and the other way round too if asked."""
    for q in range(first, last + 1):
        v = c.order[q]
        if c.device[v] == i:
            count = _take(g, limits, c, s, limits.unit_of[v], j, count)
        elif both and c.device[v] == j:
            count = _take(g, limits, c, s, limits.unit_of[v], i, count)
    return count


@uncounted_inner
def _give_back(
    g: Network, limits: Limits, c: Standing, s: Search, i: int, j: int, rng: np.random.Generator, count: int
) -> int:
    """Take units from j to i from somewhere in the order on, until j has room again."""
    n = len(c.order)
    q = int(rng.random() * n)
    for _ in range(8):  # where the two devices meet already, if that is found
        v = c.order[q]
        if c.device[v] == j and c.device[_neighbour(g, v, rng)] == i:
            break
        q = int(rng.random() * n)
    step = 1 if rng.random() < 0.5 else -1
    for _ in range(n):
        if c.resident[j] <= limits.capacity[j]:
            break
        v = c.order[q]
        if c.device[v] == j and limits.resident[limits.unit_of[v]] > 0.0:
            count = _take(g, limits, c, s, limits.unit_of[v], i, count)
        elif c.device[v] == j and count > 0 and s.touched[limits.unit_of[c.order[(q - step) % n]]] == s.touched[-1]:
            count = _take(g, limits, c, s, limits.unit_of[v], i, count)  # what lies between goes along
        q = (q + step) % n
    return count


@uncounted_inner
def _some_operator(c: Standing, critical: Ints, rng: np.random.Generator) -> int:
    """Pick an operator, most of the time one on a critical way: one that was, if it still is, or what chance finds."""
    n = len(c.order)
    v = int(rng.random() * n)
    if rng.random() < CRITICAL:
        latest = c.ended.max() * (1.0 - 1e-9)
        for attempt in range(8):
            if attempt < 4:
                v = int(critical[int(rng.random() * len(critical))])
            if c.finish[v] + c.tail[v] >= latest:
                break
            v = int(rng.random() * n)
    return v


@uncounted_inner
def _propose(
    g: Network,
    limits: Limits,
    c: Standing,
    s: Search,
    kind: int,
    critical: Ints,
    shifted: Ints,
    rng: np.random.Generator,
) -> int:
    """Change the standing schedule by one move of a kind; returns how many units it took elsewhere.

    ``shifted`` receives source and target of a shift and a tensor that was turned; -1: none.
    """
    n = len(c.order)
    shifted[:] = -1
    v = _some_operator(c, critical, rng)
    i = c.device[v]
    unit = limits.unit_of[v]
    if kind == 0:
        low, high = _window(g, v, c.position)
        if high <= low:
            return 0
        source = c.position[v]
        target = low + int(rng.random() * (high - low + 1))
        if rng.random() < 0.7:  # past the next operator of the same device
            step = 1 if rng.random() < 0.5 else -1
            target = source + step
            while low <= target <= high and c.device[c.order[target]] != i:
                target += step
            target = min(max(target, low), high)
        if target != source:
            shift(c, source, target)
            shifted[0], shifted[1] = source, target
        return 0
    if kind == 7:
        total = g.made_ptr[v + 1] - g.made_ptr[v]
        if total > 0 and c.away_out[v] > 0 and g.n_resources > 0:
            shifted[2] = g.made_ptr[v] + int(rng.random() * total)
            turn(g, c, shifted[2])
        return 0
    choices = limits.choice_ptr[unit + 1] - limits.choice_ptr[unit]
    if choices < 2:
        return 0
    j = limits.choice[limits.choice_ptr[unit] + int(rng.random() * choices)]
    if kind == 1:
        return _take(g, limits, c, s, unit, j, 0)
    if kind != 5 or rng.random() < 0.5:
        x = _neighbour(g, v, rng)
        if c.device[x] == i and kind >= 4:
            x = _neighbour(g, x, rng)
        if c.device[x] != i:
            j = c.device[x]
        elif kind == 2:
            return 0
    if i == j:
        return 0
    if kind == 2:
        return _take(g, limits, c, s, unit, j, 0)
    if kind == 3:
        wanted = 2 + int(rng.random() * (LARGEST_BLOCK - 1))
        count = _take(g, limits, c, s, unit, j, 0)
        for _step in range(2 * wanted):
            if count >= wanted or count == 0:
                break
            x = _neighbour(g, v, rng)
            if c.device[x] == i:
                count = _take(g, limits, c, s, limits.unit_of[x], j, count)
            if c.device[x] == j:
                v = x
        return count
    length = int(2.0 ** (rng.random() * np.log2(n)))
    first = c.position[v] - (length if rng.random() < 0.5 else 0)
    last = min(first + length, n - 1)
    first = max(first, 0)
    count = _take_run(g, limits, c, s, first, last, i, j, kind == 5, 0)
    if kind == 6 and count > 0:
        count = _give_back(g, limits, c, s, i, j, rng, count)
    return count


@kernel
def search_schedules(
    g: Network,
    limits: Limits,
    c: Standing,
    s: Search,
    weights: Floats,
    critical: Ints,
    low_tail: Floats,
    bound: float,
    hot: float,
    cold: float,
    iterations: int,
    rng: np.random.Generator,
) -> None:
    """Run ``iterations`` moves while the temperature falls geometrically from ``hot`` to ``cold`` (seconds).

    With ``hot`` = 0 only what is better is taken: moves that change nothing are found out sooner than they are made.
    Memory is a hard limit: no move raises what a schedule has too much, and one that lowers it is always taken.

    Parameters
    ----------
    weights : (kinds,)
        How often each of ``KINDS`` is proposed, relative to the others.
    critical : (m,)
        Operators that are on a critical way, or were.
    low_tail : (n,)
        Seconds that must pass after v finishes, whatever is decided.
    bound : float
        No makespan is below it.
    """
    sums = np.cumsum(weights)
    below = 1.0 - 1e-9
    shifted = np.full(3, -1, dtype=np.int32)
    cooling = (cold / hot) ** (1.0 / max(1, iterations)) if hot > 0.0 else 1.0
    temperature = hot
    accepted = 0
    for _ in range(iterations):
        temperature *= cooling
        kind = int(np.searchsorted(sums, rng.random() * sums[-1], side="right"))
        begin(c)
        s.touched[-1] += 1
        threshold = s.value[0] - temperature * np.log(1.0 - rng.random()) if hot > 0.0 else below * s.value[0]
        count = _propose(g, limits, c, s, kind, critical, shifted, rng)
        if c.reach[1] < 0:
            continue
        s.tried[kind] += 1.0
        excess = _excess(limits, c, s) if limits.memory_may_bind else 0.0
        if excess < s.value[2]:
            threshold = np.inf
        timed = excess <= s.value[2] and bound <= threshold
        makespan = retime(g, c, threshold, low_tail) if timed else np.inf
        kept = timed and makespan <= threshold and (makespan < np.inf or threshold == np.inf)
        if kept and limits.memory_may_bind and excess == 0.0 and makespan < s.value[1]:
            excess = _look_at_memory(g, limits, c, s)
            kept = excess <= s.value[2]
        if kept:
            commit(g, c)
            if makespan < s.value[0]:
                s.gained[kind] += 1.0
            s.value[0], s.value[2] = makespan, excess
            accepted += 1
            if excess == 0.0 and makespan < s.value[1]:
                s.value[1] = makespan
                s.best_device[:], s.best_order[:], s.best_eager[:] = c.device, c.order, c.eager
            elif limits.memory_may_bind and accepted % 256 == 0:
                s.value[2] = _look_at_memory(g, limits, c, s)
            continue
        if timed:
            revert(c)
        if shifted[0] >= 0:
            shift(c, shifted[1], shifted[0])
        if shifted[2] >= 0:
            turn(g, c, shifted[2])
        for k in range(count - 1, -1, -1):
            put_unit(g, c, limits.member_ptr, limits.member, limits.resident, s.unit[k], s.came_from[k])
