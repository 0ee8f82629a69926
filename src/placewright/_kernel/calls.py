"""Splits into calls of accelerators: their latency, annealing of them, the shortest way over intervals of a path."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import inner, kernel

__all__ = [
    "CallLimits",
    "CallNetwork",
    "CallState",
    "anneal_calls",
    "call_state",
    "reset_calls",
    "shortest_intervals",
    "split_latency",
]

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class CallNetwork(NamedTuple):
    """n operators in topological order, T tensors, A accelerators; place A is the pool of CPUs and RAM."""

    producer: Ints
    """(T,)"""
    reader_ptr: Ints
    reader: Ints
    made_ptr: Ints
    """Tensors of operator v: ``made_ptr[v]..made_ptr[v+1]-1``."""
    read_ptr: Ints
    read: Ints
    seconds: Floats
    """(n, A+1), the pool last; ``inf`` where an operator may not run."""
    enter: Floats
    """(T, A, A+1) what a tensor costs when it enters a call of the accelerator from a place."""
    leave: Floats
    """(T, A, A+1)"""


class CallLimits(NamedTuple):
    """Units, which are placed whole, memory, and the most calls of an accelerator."""

    unit_of: Ints
    member_ptr: Ints
    member: Ints
    runs: npt.NDArray[np.bool_]
    """(units, A+1)"""
    size: Floats
    """(units,)"""
    capacity: Floats
    """(A+1,)"""
    most: int


class CallState(NamedTuple):
    """What annealing changes."""

    place: Ints
    """(n,) accelerator of each operator, A on CPUs."""
    trial: Ints
    best: Ints
    used: Floats
    """(A+1,) bytes."""
    value: Floats
    """(2,) of ``place`` and of ``best``."""
    call: Ints
    """(n,) calls of the split that was judged last."""


def call_state(network: CallNetwork, limits: CallLimits, place: Ints) -> CallState:
    """Return the state at a placement."""
    n, places = network.seconds.shape
    start, calls = place.astype(np.int32), np.zeros(n, dtype=np.int32)
    state = CallState(start, start.copy(), start.copy(), np.zeros(places), np.full(2, np.inf), calls)
    reset_calls(network, limits, state, start.copy())
    state.value[1] = state.value[0]
    return state


def reset_calls(network: CallNetwork, limits: CallLimits, state: CallState, place: Ints) -> None:
    """Go on from another placement; the best one stays."""
    state.place[:], state.trial[:] = place, place
    state.used[:] = 0.0
    np.add.at(state.used, place[limits.member[limits.member_ptr[:-1]]], limits.size)
    state.value[0] = split_latency(network, state.place, limits.most, state.call)


@inner
def _fewest(g: CallNetwork, place: Ints, A: int, call: Ints) -> int:
    """Fewest calls along paths that come back; the most of any accelerator."""
    producer, read_ptr, read = g.producer, g.read_ptr, g.read
    n = len(place)
    here = np.zeros(A + 1, dtype=np.int64)
    for v in range(n):
        here[place[v]] += 1
        call[v] = 0
    level = np.zeros(n, dtype=np.int64)
    most = 0
    for a in range(A):
        if here[a] == 0:
            continue
        for v in range(n):
            mine = place[v] == a
            best = 1 if mine else 0
            for e in range(read_ptr[v], read_ptr[v + 1]):
                u = producer[read[e]]
                x = level[u]
                if mine and place[u] != a and x > 0:
                    x += 1
                if x > best:
                    best = x
            level[v] = best
            if mine:
                call[v] = best - 1
                if best > most:
                    most = best
    return most


@kernel
def split_latency(g: CallNetwork, place: Ints, most: int, call: Ints) -> float:
    """Return the latency of a placement cut into the fewest calls, written to ``call``; ``inf`` above ``most``."""
    producer, reader_ptr, reader, made_ptr = g.producer, g.reader_ptr, g.reader, g.made_ptr
    read_ptr, read, seconds, enter, leave = g.read_ptr, g.read, g.seconds, g.enter, g.leave
    n, A = len(place), seconds.shape[1] - 1
    width = _fewest(g, place, A, call)
    if width > most:
        return np.inf
    width = max(width, 1)
    nodes = n + A * width
    node = np.empty(n, dtype=np.int64)
    first = np.full(A * width, -1, dtype=np.int64)
    after = np.full(n, -1, dtype=np.int64)
    waits = np.zeros(nodes, dtype=np.int64)
    for v in range(n - 1, -1, -1):
        if place[v] == A:
            node[v] = v
        else:
            k = place[v] * width + call[v]
            node[v] = n + k
            after[v] = first[k]
            first[k] = v
    for v in range(n):
        for e in range(read_ptr[v], read_ptr[v + 1]):
            if node[producer[read[e]]] != node[v]:
                waits[node[v]] += 1
    stack, top = np.empty(nodes, dtype=np.int64), 0
    for a in range(A):
        for j in range(1, width):
            if first[a * width + j] >= 0:
                waits[n + a * width + j] += 1
    for x in range(nodes):
        there = node[x] == x if x < n else first[x - n] >= 0
        if there and waits[x] == 0:
            stack[top] = x
            top += 1
    finish, ended = np.zeros(n), np.zeros(A * width)
    entered = np.full(len(producer), -1, dtype=np.int64)
    left, last = n, 0.0
    while top > 0:
        top -= 1
        x = stack[top]
        begin, length = 0.0, 0.0
        v = x
        if x < n:
            for e in range(read_ptr[x], read_ptr[x + 1]):
                begin = max(begin, finish[producer[read[e]]])
            length = seconds[x, A]
        else:
            k = x - n
            a = k // width
            if k % width > 0:
                begin = ended[k - 1]
            v = first[k]
            while v >= 0:
                length += seconds[v, a]
                for e in range(read_ptr[v], read_ptr[v + 1]):
                    t = read[e]
                    u = producer[t]
                    if node[u] != x and entered[t] != k:
                        entered[t] = k
                        length += enter[t, a, place[u]]
                        begin = max(begin, finish[u])
                for t in range(made_ptr[v], made_ptr[v + 1]):
                    out = 0.0
                    for e in range(reader_ptr[t], reader_ptr[t + 1]):
                        r = reader[e]
                        if node[r] != x:
                            out = max(out, leave[t, a, place[r]])
                    length += out
                v = after[v]
            ended[k] = begin + length
            v = first[k]
            if k % width < width - 1 and first[k + 1] >= 0:
                waits[x + 1] -= 1
                if waits[x + 1] == 0:
                    stack[top] = x + 1
                    top += 1
        end = begin + length
        last = max(last, end)
        while v >= 0:
            finish[v] = end
            left -= 1
            for t in range(made_ptr[v], made_ptr[v + 1]):
                for e in range(reader_ptr[t], reader_ptr[t + 1]):
                    y = node[reader[e]]
                    if y != x:
                        waits[y] -= 1
                        if waits[y] == 0:
                            stack[top] = y
                            top += 1
            v = after[v]
    return last if left == 0 else np.inf


@inner
def _region(
    g: CallNetwork,
    limits: CallLimits,
    place: Ints,
    v: int,
    most: int,
    mode: int,
    mark: Longs,
    stamp: int,
    queue: Longs,
    units: Longs,
) -> int:
    """Units of one place grown from v: both ways (0), forwards (1), backwards (2), along the order (3); how many."""
    producer, reader_ptr, reader, made_ptr = g.producer, g.reader_ptr, g.reader, g.made_ptr
    read_ptr, read = g.read_ptr, g.read
    unit_of, member_ptr, member = limits.unit_of, limits.member_ptr, limits.member
    n, here, count = len(place), place[v], 0
    if mode == 3:
        for x in range(v, n):
            if count >= most:
                break
            z = unit_of[x]
            if place[x] == here and mark[z] != stamp:
                mark[z] = stamp
                units[count] = z
                count += 1
        return count
    queue[0] = v
    head, tail, room = 0, 1, len(queue)
    while head < tail and count < most:
        z = unit_of[queue[head]]
        head += 1
        if mark[z] == stamp:
            continue
        mark[z] = stamp
        units[count] = z
        count += 1
        for i in range(member_ptr[z], member_ptr[z + 1]):
            y = member[i]
            if mode != 2:
                for t in range(made_ptr[y], made_ptr[y + 1]):
                    for e in range(reader_ptr[t], reader_ptr[t + 1]):
                        r = reader[e]
                        if place[r] == here and mark[unit_of[r]] != stamp and tail < room:
                            queue[tail] = r
                            tail += 1
            for e in range(read_ptr[y], read_ptr[y + 1]):
                u = producer[read[e]]
                source = read_ptr[u] == read_ptr[u + 1]  # a constant goes with its reader
                if (mode != 1 or source) and place[u] == here and mark[unit_of[u]] != stamp and tail < room:
                    queue[tail] = u
                    tail += 1
    return count


@inner
def _goal(g: CallNetwork, place: Ints, v: int, A: int, rng: np.random.Generator) -> int:
    """Return a place to move to: mostly a neighbour's."""
    if rng.random() < 0.8:
        a = g.read_ptr[v + 1] - g.read_ptr[v]
        b = g.made_ptr[v + 1] - g.made_ptr[v]
        if a + b > 0:
            x = int(rng.random() * (a + b))
            if x < a:
                d = place[g.producer[g.read[g.read_ptr[v] + x]]]
            else:
                t = g.made_ptr[v] + x - a
                c = g.reader_ptr[t + 1] - g.reader_ptr[t]
                d = place[g.reader[g.reader_ptr[t] + int(rng.random() * c)]]
            if d != place[v] or rng.random() >= 0.5:
                return int(d)
    return int(rng.random() * (A + 1))


@kernel
def anneal_calls(
    g: CallNetwork,
    limits: CallLimits,
    state: CallState,
    hot: float,
    cold: float,
    moves: int,
    rng: np.random.Generator,
) -> None:
    """Move units and regions of them to other places while the temperature falls from ``hot`` to ``cold``."""
    member_ptr, member, runs, size, capacity = (
        limits.member_ptr,
        limits.member,
        limits.runs,
        limits.size,
        limits.capacity,
    )
    place, trial, best, used, value, call = state.place, state.trial, state.best, state.used, state.value, state.call
    n, A = len(place), g.seconds.shape[1] - 1
    mark = np.full(len(size), -1, dtype=np.int64)
    queue, units = np.empty(4 * n + 16, dtype=np.int64), np.empty(len(size), dtype=np.int64)
    for k in range(moves):
        temperature = hot * (cold / hot) ** (k / moves)
        v = int(rng.random() * n)
        d = _goal(g, place, v, A, rng)
        kind = rng.random()
        most = 1
        if kind > 0.35:
            most = int(np.exp(rng.random() * np.log(n + 1.0)))
        here = place[v]
        if d == here:
            continue
        mode = int(rng.random() * 3) if kind < 0.8 else 3
        count = _region(g, limits, place, v, most, mode, mark, k, queue, units)
        added, possible = 0.0, True
        for i in range(count):
            possible = possible and runs[units[i], d]
            added += size[units[i]]
        if not possible or used[d] + added > capacity[d]:
            continue
        for i in range(count):
            z = units[i]
            for e in range(member_ptr[z], member_ptr[z + 1]):
                trial[member[e]] = d
        new = split_latency(g, trial, limits.most, call)
        if new <= value[0] or rng.random() < np.exp((value[0] - new) / temperature):
            value[0] = new
            for i in range(count):
                z = units[i]
                used[place[member[member_ptr[z]]]] -= size[z]
                used[d] += size[z]
                for e in range(member_ptr[z], member_ptr[z + 1]):
                    place[member[e]] = d
            if new < value[1]:
                value[1] = new
                best[:] = place
        else:
            for i in range(count):
                z = units[i]
                for e in range(member_ptr[z], member_ptr[z + 1]):
                    trial[member[e]] = place[member[e]]


@kernel
def shortest_intervals(
    alone: Floats, length: Floats, earliest: Floats, need: Ints, most: int, f: Floats, back: Ints
) -> None:
    """Least finish of m steps, each alone, or intervals of them, which may need ``most`` together.

    ``length[i, j]`` is what interval i..j takes, ``earliest[i, j]`` when it ends at the earliest, ``need[i, j]`` what
    it needs. Written to ``f`` (m+1, most+1), by what is there at most, and to ``back``: the interval's first step, -1
    for a step alone.
    """
    m = len(alone)
    f[0, :] = 0.0
    for t in range(1, m + 1):
        for k in range(most + 1):
            best, first = f[t - 1, k] + alone[t - 1], -1
            for i in range(t):
                before = k - need[i, t - 1]
                if before < 0:
                    continue
                x = f[i, before] + length[i, t - 1]
                if x < best:
                    x = max(x, earliest[i, t - 1])
                    if x < best:
                        best, first = x, i
            f[t, k] = best
            back[t, k] = first
