"""Branch and bound on the placement of a few operators between two that are fixed: bounds, no schedules."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import inner, kernel
from placewright._kernel.schedule import Network, transfer_time

__all__ = ["SpanScratch", "least_time", "scratch_for", "time_of", "tolls_of"]

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


class SpanScratch(NamedTuple):
    """Arrays that :func:`time_of` works in."""

    ready: Floats
    """(n, D) no schedule starts v on i earlier."""
    done: Floats
    """(n, D) none finishes v's processing there earlier."""
    tail: Floats
    """(n, D) that must pass after the processing, a cut behind v counted."""
    after: Floats
    """(n, D) that must pass after the finish, which that cut is part of."""
    head: Floats
    """(J,) of jobs of one machine, like the next two; J = n + T D."""
    length: Floats
    rest: Floats
    tensor: Ints
    """(T D,) of transfers that are sure, like the next two."""
    target: Ints
    behind: Floats
    load: Ints
    """(R,) how many of them occupy each resource."""


def scratch_for(g: Network) -> SpanScratch:
    """Scratch arrays of the right shapes."""
    n, D = g.processing.shape
    transfers = len(g.producer) * D
    square, row = np.zeros((n, D)), np.zeros(n + transfers)
    whole, load = np.zeros(transfers, dtype=np.int32), np.zeros(g.n_resources, dtype=np.int32)
    return SpanScratch(
        square, square.copy(), square.copy(), square.copy(), row, row.copy(), row.copy(), whole, whole.copy(),
        np.zeros(transfers), load,
    )  # fmt: skip


@inner
def one_machine(head: Floats, length: Floats, rest: Floats, jobs: int, at_least: float) -> float:
    """Least makespan of jobs with heads and tails on one machine that may interrupt them, if above ``at_least``.

    Jackson's preemptive schedule: always the job with the longest tail among those that are there.
    """
    if jobs < 2:
        return at_least
    most, total, longest = 0.0, 0.0, 0.0
    for k in range(jobs):
        most, total, longest = max(most, head[k]), total + length[k], max(longest, rest[k])
    if most + total + longest <= at_least:
        return at_least
    for k in range(1, jobs):  # by head
        h, p, q = head[k], length[k], rest[k]
        m = k - 1
        while m >= 0 and head[m] > h:
            head[m + 1], length[m + 1], rest[m + 1] = head[m], length[m], rest[m]
            m -= 1
        head[m + 1], length[m + 1], rest[m + 1] = h, p, q
    value, now, there, left = at_least, head[0], 0, jobs
    while left > 0:
        while there < jobs and head[there] <= now:
            there += 1
        first = -1
        for k in range(there):
            if length[k] >= 0.0 and (first < 0 or rest[k] > rest[first]):
                first = k
        if first < 0:
            now = head[there]
            continue
        if there < jobs and head[there] < now + length[first]:
            length[first] = max(0.0, length[first] - (head[there] - now))
            now = head[there]
            continue
        now += length[first]
        length[first] = -1.0
        left -= 1
        value = max(value, now + rest[first])
    return value


@kernel
def time_of(g: Network, device: Ints, w: SpanScratch) -> float:
    """Bound the makespan of every schedule that puts v on ``device[v]`` where that is not -1.

    The longest path, on which operators that are free choose their devices each for itself; and on each device, link,
    port and channel the jobs that are sure to be there, with their heads and tails, as on one machine.
    """
    n, D = g.processing.shape
    ready, done, tail, after = w.ready, w.done, w.tail, w.after
    value = 0.0
    for v in range(n):
        for i in range(D):
            done[v, i] = np.inf
            if g.processing[v, i] == np.inf or (device[v] >= 0 and device[v] != i):
                continue
            waits, begun = 0.0, 0.0
            for k in range(g.read_ptr[v], g.read_ptr[v + 1]):
                u = g.read[k]
                x = g.producer[u]
                here, elsewhere = done[x, i], np.inf
                for j in range(D):
                    if j != i and done[x, j] < np.inf:
                        elsewhere = min(elsewhere, done[x, j] + g.cut[x, j] + transfer_time(g, u, j, i))
                waits = max(waits, min(here, elsewhere))
                begun = max(begun, min(here, elsewhere + g.cut[v, i]))
            ready[v, i] = waits
            done[v, i] = begun + g.processing[v, i]
    for v in range(n - 1, -1, -1):
        through = np.inf
        for i in range(D):
            if done[v, i] == np.inf:
                continue
            tail[v, i], after[v, i] = 0.0, 0.0
            for u in range(g.made_ptr[v], g.made_ptr[v + 1]):
                for k in range(g.reader_ptr[u], g.reader_ptr[u + 1]):
                    x = g.reader[k]
                    here, elsewhere = np.inf, np.inf
                    for j in range(D):
                        if done[x, j] == np.inf:
                            continue
                        if j == i:
                            here = g.processing[x, i] + tail[x, i]
                        else:
                            at = transfer_time(g, u, i, j) + g.cut[x, j] + g.processing[x, j] + tail[x, j]
                            elsewhere = min(elsewhere, at)
                    tail[v, i] = max(tail[v, i], min(here, g.cut[v, i] + elsewhere))
                    after[v, i] = max(after[v, i], min(here, elsewhere))
            through = min(through, done[v, i] + tail[v, i])
        value = max(value, through)
    for i in range(D):
        value = _on_device(g, device, i, value, w)
    return _on_resources(g, device, value, w)


@inner
def _on_device(g: Network, device: Ints, i: int, value: float, w: SpanScratch) -> float:
    jobs = 0
    for v in range(len(device)):
        if device[v] != i:
            continue
        length = g.processing[v, i]
        for k in range(g.read_ptr[v], g.read_ptr[v + 1]):
            x = device[g.producer[g.read[k]]]
            if x >= 0 and x != i:
                length += g.cut[v, i]
                break
        for k in range(g.reader_ptr[g.made_ptr[v]], g.reader_ptr[g.made_ptr[v + 1]]):
            x = device[g.reader[k]]
            if x >= 0 and x != i:
                length += g.cut[v, i]
                break
        w.head[jobs], w.length[jobs], w.rest[jobs] = w.ready[v, i], length, w.after[v, i]
        jobs += 1
    return one_machine(w.head, w.length, w.rest, jobs, value)


@inner
def _on_resources(g: Network, device: Ints, value: float, w: SpanScratch) -> float:
    """Put the transfers that are sure on the resources that carry two or more of them."""
    D = g.processing.shape[1]
    crossing = 0
    w.load[:] = 0
    for u in range(len(g.producer)):
        v = g.producer[u]
        i = device[v]
        if i < 0:
            continue
        for j in range(D):
            rest = -1.0
            if j != i:
                for k in range(g.reader_ptr[u], g.reader_ptr[u + 1]):
                    x = g.reader[k]
                    if device[x] == j:
                        rest = max(rest, g.cut[x, j] + g.processing[x, j] + w.tail[x, j])
            if rest < 0.0:
                continue
            w.tensor[crossing], w.target[crossing], w.behind[crossing] = u, j, rest
            crossing += 1
            for k in range(4):
                if g.resources[i, j, k] >= 0:
                    w.load[g.resources[i, j, k]] += 1
    for r in range(g.n_resources):
        if w.load[r] < 2:
            continue
        jobs = 0
        for k in range(crossing):
            u, j = w.tensor[k], w.target[k]
            v = g.producer[u]
            i = device[v]
            for m in range(4):
                if g.resources[i, j, m] == r:
                    w.head[jobs], w.length[jobs] = w.done[v, i] + g.cut[v, i], transfer_time(g, u, i, j)
                    w.rest[jobs] = w.behind[k]
                    jobs += 1
                    break
        value = one_machine(w.head, w.length, w.rest, jobs, value)
    return value


@inner
def tolls_of(g: Network, device: Ints, toll: Floats) -> float:
    """Sum up toll x time of the transfers that are sure."""
    total = 0.0
    for u in range(len(g.producer)):
        i = device[g.producer[u]]
        if i < 0:
            continue
        for k in range(g.reader_ptr[u], g.reader_ptr[u + 1]):
            j = device[g.reader[k]]
            first = j >= 0 and j != i and toll[i, j] > 0.0
            for m in range(g.reader_ptr[u], k):
                first = first and device[g.reader[m]] != j
            if first:
                total += toll[i, j] * transfer_time(g, u, i, j)
    return total


@kernel
def least_time(
    g: Network,
    unit_ptr: Ints,
    member: Ints,
    price: Floats,
    toll: Floats,
    scale: float,
    alike: Ints,
    enough: float,
    limit: int,
    w: SpanScratch,
) -> tuple[float, int, Ints]:
    """Bound the least of ``scale`` x makespan + prices + tolls over all placements, best first.

    Parameters
    ----------
    unit_ptr, member : (U+1,), (n,)
        Operators that share a device, in the order in which units are decided.
    price : (U, D)
        What unit k pays on device i; inf where it may not run.
    toll : (D, D)
        What a second of transfer from row to column pays; (0, 0): nothing.
    alike : (D,)
        Class of each device: those of one class can be swapped in this network, and have equal prices and tolls.
    enough : float
        Stop when the bound is there.
    limit : int
        Most nodes.

    Returns
    -------
    value : float
        No placement is below it; ``inf`` when there is none.
    nodes : int
        How many were made; negative when the value is that of a placement, so that no better bound is to be had here.
    device : (n,)
        The placement that the search went for; -1 where it is open.
    """
    n, D = g.processing.shape
    U = len(unit_ptr) - 1
    device = np.full(n, -1, dtype=np.int32)
    cheapest = np.zeros(U + 1)
    for k in range(U - 1, -1, -1):
        cheapest[k] = cheapest[k + 1] + price[k].min()
    if cheapest[0] == np.inf:
        return np.inf, 0, device
    key, paid, depth = np.zeros(limit + D), np.zeros(limit + D), np.zeros(limit + D, dtype=np.int32)
    chosen = np.full((limit + D, U), -1, dtype=np.int8)
    heap = np.zeros(limit + D, dtype=np.int32)
    made, size = 1, 1
    key[0] = scale * time_of(g, device, w) + cheapest[0]
    used = np.zeros(D, dtype=np.bool_)
    while size > 0:
        node = heap[0]
        if depth[node] == U or key[node] >= enough or made >= limit:
            break
        size -= 1
        heap[0] = heap[size]
        _sink(heap, size, key, depth)
        k = depth[node]
        device[:] = -1
        used[:] = False
        for m in range(k):
            used[chosen[node, m]] = True
            for x in range(unit_ptr[m], unit_ptr[m + 1]):
                device[member[x]] = chosen[node, m]
        for m in range(k, U):  # what has no choice distinguishes its device as well
            only, count = -1, 0
            for i in range(D):
                if price[m, i] < np.inf:
                    only, count = i, count + 1
            if count == 1:
                used[only] = True
        for i in range(D):
            if price[k, i] == np.inf:
                continue
            twin = False
            for j in range(i):
                if alike[j] == alike[i] and not used[i] and not used[j] and price[k, j] < np.inf:
                    twin = True
            if twin:
                continue
            for x in range(unit_ptr[k], unit_ptr[k + 1]):
                device[member[x]] = i
            cost = paid[node] + price[k, i]
            value = scale * time_of(g, device, w) + cost + cheapest[k + 1]
            if toll.shape[0] > 0:
                value += tolls_of(g, device, toll)
            if value == np.inf:
                continue
            chosen[made, :k] = chosen[node, :k]
            chosen[made, k] = i
            key[made], paid[made], depth[made] = max(value, key[node]), cost, k + 1
            heap[size] = made
            made, size = made + 1, size + 1
            _rise(heap, size - 1, key, depth)
    device[:] = -1
    if size == 0:
        return np.inf, made, device
    node = heap[0]
    for m in range(depth[node]):
        for x in range(unit_ptr[m], unit_ptr[m + 1]):
            device[member[x]] = chosen[node, m]
    return key[node], -made if depth[node] == U else made, device


@kernel(inline="always")
def _before(a: int, b: int, key: Floats, depth: Ints) -> bool:
    """Whether node a is to be taken before node b: lower, then deeper, then older."""
    if key[a] != key[b]:
        return bool(key[a] < key[b])
    if depth[a] != depth[b]:
        return bool(depth[a] > depth[b])
    return a < b


@inner
def _rise(heap: Ints, k: int, key: Floats, depth: Ints) -> None:
    while k > 0 and _before(heap[k], heap[(k - 1) // 2], key, depth):
        heap[k], heap[(k - 1) // 2] = heap[(k - 1) // 2], heap[k]
        k = (k - 1) // 2


@inner
def _sink(heap: Ints, size: int, key: Floats, depth: Ints) -> None:
    k = 0
    while 2 * k + 1 < size:
        child = 2 * k + 1
        if child + 1 < size and _before(heap[child + 1], heap[child], key, depth):
            child += 1
        if not _before(heap[child], heap[k], key, depth):
            return
        heap[k], heap[child] = heap[child], heap[k]
        k = child
