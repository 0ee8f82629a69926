"""Turning an order of operators into a schedule: the inner loop of every makespan solver.

Nothing here knows a class of placewright's other than the two tuples of arrays below.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import kernel

__all__ = ["Network", "Workspace", "decode", "retime", "upward_rank", "workspace"]

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


class Network(NamedTuple):
    """A placement problem as arrays: n operators, T tensors sorted by producer, E reads, D devices, R resources.

    Operators are numbered topologically.
    """

    made_ptr: Ints
    """(n+1,) tensors made by v are made_ptr[v] .. made_ptr[v+1]-1."""
    read_ptr: Ints
    """(n+1,) tensors read by v are read[read_ptr[v]:read_ptr[v+1]]."""
    read: Ints
    """(E,)"""
    reader_ptr: Ints
    """(T+1,) readers of u are reader[reader_ptr[u]:reader_ptr[u+1]]."""
    reader: Ints
    """(E,)"""
    producer: Ints
    """(T,)"""
    size: Floats
    """(T,) bytes."""
    processing: Floats
    """(n, D) seconds; inf where not allowed."""
    latency: Floats
    """(D, D) seconds; inf where unreachable."""
    per_byte: Floats
    """(D, D) seconds per byte."""
    transfer: Floats
    """(T, D, D) seconds, or (0, 0, 0) when latency and per_byte hold."""
    cut: Floats
    """(n, D) seconds that v on i loses at each side of a cut."""
    resources: Ints
    """(D, D, 4) indices of what a transfer occupies exclusively, -1: nothing."""
    n_resources: int


class Workspace(NamedTuple):
    """Scratch arrays, and the schedule that the last call left in them."""

    start: Floats
    """(n,)"""
    finish: Floats
    """(n,)"""
    sent: Floats
    """(T, D) start of the transfer of u to device j; valid where arrival is not -1."""
    arrival: Floats
    """(T, D) its finish; -1: u is not sent to j."""
    device_free: Floats
    """(D,)"""
    resource_free: Floats
    """(R,)"""


def workspace(g: Network) -> Workspace:
    """Scratch arrays of the right shapes."""
    n, D = g.processing.shape
    T = len(g.producer)
    return Workspace(
        np.zeros(n),
        np.zeros(n),
        np.zeros((T, D)),
        np.full((T, D), -1.0),
        np.zeros(D),
        np.zeros(max(1, g.n_resources)),
    )


@kernel(inline="always")
def transfer_time(g: Network, u: int, i: int, j: int) -> float:
    """c[u, i, j] in seconds."""
    if g.transfer.shape[0] > 0:
        return float(g.transfer[u, i, j])
    return float(g.latency[i, j] + g.size[u] * g.per_byte[i, j])


@kernel(inline="always")
def send(g: Network, u: int, i: int, j: int, ready: float, w: Workspace) -> None:
    """Put the transfer of u from i to j behind the others on its resources; one that takes no time waits for none."""
    s = ready
    c = transfer_time(g, u, i, j)
    if c > 0.0:
        for k in range(4):
            r = g.resources[i, j, k]
            if r >= 0 and w.resource_free[r] > s:
                s = w.resource_free[r]
    e = s + c
    if c > 0.0:
        for k in range(4):
            r = g.resources[i, j, k]
            if r >= 0:
                w.resource_free[r] = e
    w.sent[u, j] = s
    w.arrival[u, j] = e


@kernel(inline="always")
def duration(g: Network, v: int, device: Ints) -> float:
    """p[v, i] plus the overhead of a cut before v and of one behind it, where tensors cross."""
    i = device[v]
    overhead = 0.0
    for k in range(g.read_ptr[v], g.read_ptr[v + 1]):
        if device[g.producer[g.read[k]]] != i:
            overhead = g.cut[v, i]
            break
    for k in range(g.reader_ptr[g.made_ptr[v]], g.reader_ptr[g.made_ptr[v + 1]]):
        if device[g.reader[k]] != i:
            overhead += g.cut[v, i]
            break
    return float(g.processing[v, i] + overhead)


@kernel
def decode(g: Network, order: Ints, device: Ints, by_reader: bool, tail: Floats, limit: float, w: Workspace) -> float:
    """Makespan of the semi-active schedule in which every device takes its operators in the given order.

    Parameters
    ----------
    order : (n,) topological permutation
    device : (n,)
    by_reader : bool
        When a transfer joins the queue of its resources: with its first reader, or (False) when it is made.
    tail : (n,)
        Seconds that must pass after v finishes, whatever is decided; used only to stop early.
    limit : float
        Return ``inf`` as soon as the makespan can't be at or below it; the workspace is then unfinished.
    w : Workspace
        Left holding the schedule.
    """
    # Local names and hand-made inlining: reading arrays out of the tuples inside the loops is three times as slow.
    made_ptr, read_ptr, read, reader_ptr, reader = g.made_ptr, g.read_ptr, g.read, g.reader_ptr, g.reader
    producer, processing, cut, resources = g.producer, g.processing, g.cut, g.resources
    size, latency, per_byte, transfer = g.size, g.latency, g.per_byte, g.transfer
    start, finish, sent, arrival = w.start, w.finish, w.sent, w.arrival
    device_free, resource_free = w.device_free, w.resource_free
    tables = transfer.shape[0] > 0
    D = processing.shape[1]
    device_free[:] = 0.0
    resource_free[:] = 0.0
    makespan = 0.0
    for position in range(len(order)):
        v = order[position]
        i = device[v]
        ready = device_free[i]
        overhead = 0.0
        for k in range(read_ptr[v], read_ptr[v + 1]):
            u = read[k]
            at = finish[producer[u]]
            j = device[producer[u]]
            if j != i:
                overhead = cut[v, i]
                if arrival[u, i] < 0.0:
                    c = transfer[u, j, i] if tables else latency[j, i] + size[u] * per_byte[j, i]
                    if c > 0.0:
                        for m in range(4):
                            r = resources[j, i, m]
                            if r >= 0:
                                at = max(at, resource_free[r])
                        for m in range(4):
                            r = resources[j, i, m]
                            if r >= 0:
                                resource_free[r] = at + c
                    sent[u, i] = at
                    arrival[u, i] = at + c
                at = arrival[u, i]
            ready = max(ready, at)
        first, last = made_ptr[v], made_ptr[v + 1]
        for k in range(reader_ptr[first], reader_ptr[last]):
            if device[reader[k]] != i:
                overhead += cut[v, i]
                break
        end = ready + (processing[v, i] + overhead)
        if end + tail[v] > limit:
            return np.inf
        start[v] = ready
        finish[v] = end
        device_free[i] = end
        makespan = max(makespan, end)
        for u in range(first, last):
            for j in range(D):
                arrival[u, j] = -1.0
            if by_reader:
                continue
            for k in range(reader_ptr[u], reader_ptr[u + 1]):
                j = device[reader[k]]
                if j != i and arrival[u, j] < 0.0:
                    at = end
                    c = transfer[u, i, j] if tables else latency[i, j] + size[u] * per_byte[i, j]
                    if c > 0.0:
                        for m in range(4):
                            r = resources[i, j, m]
                            if r >= 0:
                                at = max(at, resource_free[r])
                        for m in range(4):
                            r = resources[i, j, m]
                            if r >= 0:
                                resource_free[r] = at + c
                    sent[u, j] = at
                    arrival[u, j] = at + c
    return makespan


@kernel
def retime(g: Network, device: Ints, actions: Ints, targets: Ints, w: Workspace) -> float:
    """Makespan of the semi-active schedule in which every device and resource takes its actions in the given order.

    Parameters
    ----------
    device : (n,)
    actions : (m,)
        v for an operator, n + u for a transfer of tensor u; each after what it depends on.
    targets : (m,)
        The transfer's target device; ignored for operators.
    """
    n = g.processing.shape[0]
    w.device_free[:] = 0.0
    w.resource_free[:] = 0.0
    w.arrival[:] = -1.0
    makespan = 0.0
    for a in range(len(actions)):
        if actions[a] >= n:
            u = actions[a] - n
            v = g.producer[u]
            send(g, u, device[v], targets[a], w.finish[v], w)
            continue
        v = actions[a]
        i = device[v]
        ready = w.device_free[i]
        for k in range(g.read_ptr[v], g.read_ptr[v + 1]):
            u = g.read[k]
            made_on = device[g.producer[u]]
            at = w.finish[g.producer[u]] if made_on == i else w.arrival[u, i]
            if at > ready:
                ready = at
        end = ready + duration(g, v, device)
        w.start[v] = ready
        w.finish[v] = end
        w.device_free[i] = end
        if end > makespan:
            makespan = end
    return makespan


@kernel
def upward_rank(g: Network, device: Ints) -> Floats:
    """(n,) seconds from the start of v to the end of the longest path below it under a placement."""
    n = g.processing.shape[0]
    rank = np.zeros(n)
    for v in range(n - 1, -1, -1):
        i = device[v]
        below = 0.0
        for u in range(g.made_ptr[v], g.made_ptr[v + 1]):
            for k in range(g.reader_ptr[u], g.reader_ptr[u + 1]):
                x = g.reader[k]
                j = device[x]
                path = rank[x] if i == j else rank[x] + transfer_time(g, u, i, j)
                if path > below:
                    below = path
        rank[v] = below + duration(g, v, device)
    return rank


def compiled() -> Any:
    """Whether the loops are compiled (False under ``NUMBA_DISABLE_JIT=1``)."""
    return hasattr(decode, "signatures")
