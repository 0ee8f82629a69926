"""A schedule that is kept up: taking a change, which brings the ways to the end up to date, and making all anew."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import kernel, uncounted
from placewright._kernel.schedule import Network
from placewright._kernel.standing import Standing, retime

__all__ = ["commit", "rebuild"]

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


@uncounted
def commit(g: Network, c: Standing) -> None:
    """Keep the times of a trial, and bring the ways to the end up to date, as far back as they changed."""
    made_ptr, read_ptr, read, reader_ptr, reader = g.made_ptr, g.read_ptr, g.read, g.reader_ptr, g.reader
    producer, resources = g.producer, g.resources
    size, latency, per_byte, transfer = g.size, g.latency, g.per_byte, g.transfer
    device, order, position, eager, span, tail = c.device, c.order, c.position, c.eager, c.span, c.tail
    asked_by, behind, away_in = c.asked_by, c.behind, c.away_in
    free, ahead, kept, seen, found, most = c.free, c.ahead, c.kept, c.seen, c.found, c.most
    tables = transfer.shape[0] > 0
    n, D = g.processing.shape
    block = c.block
    first, end = c.trial[0], c.trial[1]
    last, low = c.reach[1], min(c.reach[0], c.reach[2])
    for k in range(first // block + 1, c.trial[3] + 1):
        c.holds[k] = 1 - c.holds[k]
    k = end // block if end < n else len(ahead) - 1
    for z in range(len(free)):
        if ahead[k, z] < 0.0:  # not used again: free from here on
            if z < D:
                c.ended[z] = free[z]
            for m in range(k, len(ahead)):
                c.marks[c.holds[m], m, z] = free[z]
    k = (last + block) // block
    top = min(k * block, n)
    if top == n:
        k = len(ahead) - 1
    for z in range(len(free)):
        free[z] = ahead[k, z]
    for q in range(top - 1, -1, -1):
        v = order[q]
        i = device[v]
        way = max(free[i], 0.0)
        for u in range(made_ptr[v + 1] - 1, made_ptr[v] - 1, -1):
            seen[D] += 1
            count = 0
            for k in range(reader_ptr[u], reader_ptr[u + 1]):
                x = reader[k]
                j = device[x]
                if j == i:
                    way = max(way, span[x] + tail[x])
                elif seen[j] != seen[D]:
                    seen[j] = seen[D]
                    found[count] = j
                    most[j] = span[x] + tail[x]
                    count += 1
                else:
                    most[j] = max(most[j], span[x] + tail[x])
            for k in range(count - 1, -1, -1):
                j = found[k]
                if eager[u]:
                    e = transfer[u, i, j] if tables else latency[i, j] + size[u] * per_byte[i, j]
                    rest = most[j]
                    if e > 0.0:
                        for m in range(4):
                            r = resources[i, j, m]
                            if r >= 0:
                                rest = max(rest, free[D + r])
                        for m in range(4):
                            r = resources[i, j, m]
                            if r >= 0:
                                free[D + r] = e + rest
                    behind[u, j] = e + rest
                way = max(way, behind[u, j])
        here = span[v] + way
        before = tail[v] + (kept[2, v] if first <= q < end else span[v])
        tail[v] = way
        free[i] = here
        if here != before or c.moved[v] == c.reach[3]:
            # Whose tail depends on this one? A reader that is not the furthest one, before and after, matters to none.
            greater = max(here, before)
            for k in range(read_ptr[v], read_ptr[v + 1]):
                u = read[k]
                x = producer[u]
                j = device[x]
                if j == i:
                    if greater >= tail[x]:
                        low = min(low, position[x])
                    continue
                e = transfer[u, j, i] if tables else latency[j, i] + size[u] * per_byte[j, i]
                if e + greater >= behind[u, i]:
                    low = min(low, position[x] if eager[u] else position[asked_by[u, i]])
        if away_in[v] > 0:
            for k in range(read_ptr[v + 1] - 1, read_ptr[v] - 1, -1):
                u = read[k]
                x = producer[u]
                j = device[x]
                if j == i or eager[u] or asked_by[u, i] != v:
                    continue
                e = transfer[u, j, i] if tables else latency[j, i] + size[u] * per_byte[j, i]
                rest = 0.0
                for m in range(reader_ptr[u], reader_ptr[u + 1]):
                    if device[reader[m]] == i:
                        rest = max(rest, span[reader[m]] + tail[reader[m]])
                if e > 0.0:
                    for m in range(4):
                        r = resources[j, i, m]
                        if r >= 0:
                            rest = max(rest, free[D + r])
                    for m in range(4):
                        r = resources[j, i, m]
                        if r >= 0:
                            free[D + r] = e + rest
                if (behind[u, i] != e + rest or c.moved[v] == c.reach[3]) and max(behind[u, i], e + rest) >= tail[x]:
                    low = min(low, position[x])
                behind[u, i] = e + rest
        if q % block == 0:
            k = q // block
            if q <= low:
                same = True
                for z in range(len(free)):
                    if free[z] != ahead[k, z]:
                        same = False
                        break
                if same:
                    return
            for z in range(len(free)):
                ahead[k, z] = free[z]


@kernel
def rebuild(g: Network, c: Standing, unit_of: Ints, resident: Floats) -> float:
    """Time everything afresh from device, order and ``eager``; returns the makespan."""
    n, D = g.processing.shape
    c.readers_on[:] = 0
    c.away_in[:] = 0
    c.away_out[:] = 0
    c.present[:] = 0.0
    c.resident[:] = 0.0
    c.asked_by[:] = -1
    done = np.zeros(len(resident), dtype=np.bool_)
    for v in range(n):
        c.position[c.order[v]] = v
        if not done[unit_of[v]]:
            done[unit_of[v]] = True
            c.resident[c.device[v]] += resident[unit_of[v]]
    for u in range(len(g.producer)):
        x = g.producer[u]
        home = c.device[x]
        for k in range(g.reader_ptr[u], g.reader_ptr[u + 1]):
            y = g.reader[k]
            j = c.device[y]
            c.readers_on[u, j] += 1
            if j != home:
                c.away_in[y] += 1
                c.away_out[x] += 1
        for j in range(D):
            if j == home or c.readers_on[u, j] > 0:
                c.present[j] += g.size[u]
    c.reach[0], c.reach[1], c.reach[2] = 0, n - 1, 0
    value = retime(g, c, np.inf, c.tail)
    commit(g, c)
    return value
