"""Changes of a standing schedule: an operator on another device, in another place, a tensor sent at another time.

Each keeps the counts of :class:`Standing` and widens ``reach``; none of them times anything.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import uncounted, uncounted_inner
from placewright._kernel.schedule import Network
from placewright._kernel.standing import Standing

__all__ = ["begin", "put", "put_unit", "reorder", "shift", "turn"]

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


@uncounted
def begin(c: Standing) -> None:
    """Forget what earlier changes reached."""
    c.reach[0], c.reach[1], c.reach[2] = len(c.order), -1, len(c.order)
    c.reach[3] += 1


@uncounted_inner
def _leads(reader_ptr: Ints, reader: Ints, device: Ints, u: int, i: int, v: int) -> bool:
    """Whether v stands before every other reader of u on device i: its place says when u is sent there."""
    for k in range(reader_ptr[u], reader_ptr[u + 1]):
        if reader[k] == v:
            return True
        if device[reader[k]] == i:
            return False
    return True


@uncounted_inner
def put(g: Network, c: Standing, v: int, j: int) -> None:
    """Let v run on device j."""
    made_ptr, read_ptr, read, reader_ptr, reader = g.made_ptr, g.read_ptr, g.read, g.reader_ptr, g.reader
    producer, cut, size = g.producer, g.cut, g.size
    device, position, eager, readers_on, asked_by = c.device, c.position, c.eager, c.readers_on, c.asked_by
    away_in, away_out, present = c.away_in, c.away_out, c.present
    i = device[v]
    if i == j:
        return
    first = last = position[v]
    first, last = min(first, c.reach[0]), max(last, c.reach[1])
    low = c.reach[2]
    way = c.span[v] + c.tail[v]
    for k in range(read_ptr[v], read_ptr[v + 1]):
        u = read[k]
        x = producer[u]
        h = device[x]
        y = asked_by[u, i]
        readers_on[u, i] -= 1
        readers_on[u, j] += 1
        gone = readers_on[u, i] == 0
        new = readers_on[u, j] == 1
        was = away_out[x] > 0
        if h == i:
            away_in[v] += 1
            away_out[x] += 1
            if way >= c.tail[x]:
                low = min(low, position[x])
        else:
            if gone:
                present[i] -= size[u]
            if c.behind[u, i] >= c.tail[x]:
                low = min(low, position[x])
            if eager[u]:
                low = min(low, position[x])
                if gone or _leads(reader_ptr, reader, device, u, i, v):
                    first = min(first, position[x])
            elif y >= 0 and device[y] == i and y != v:
                low = min(low, position[y])
            elif not gone:  # the next reader there asks for it
                next_reader = len(position)
                for m in range(reader_ptr[u], reader_ptr[u + 1]):
                    if device[reader[m]] == i and reader[m] != v:
                        next_reader = min(next_reader, position[reader[m]])
                last = max(last, next_reader)
        if h == j:
            away_in[v] -= 1
            away_out[x] -= 1
        else:
            if new:
                present[j] += size[u]
                if eager[u]:
                    first = min(first, position[x])
            elif eager[u]:
                if _leads(reader_ptr, reader, device, u, j, v):
                    first = min(first, position[x])
            else:
                y = asked_by[u, j]
                if y >= 0 and device[y] == j:
                    last = max(last, position[y])
        if was != (away_out[x] > 0) and cut[x, h] > 0.0:
            first = min(first, position[x])
    for u in range(made_ptr[v], made_ptr[v + 1]):
        if readers_on[u, i] == 0:
            present[i] -= size[u]
        if readers_on[u, j] == 0:
            present[j] += size[u]
        for k in range(reader_ptr[u], reader_ptr[u + 1]):
            x = reader[k]
            last = max(last, position[x])
            if device[x] == i:
                away_out[v] += 1
                away_in[x] += 1
            elif device[x] == j:
                away_out[v] -= 1
                away_in[x] -= 1
    device[v] = j
    c.moved[v] = c.reach[3]
    c.reach[0], c.reach[1], c.reach[2] = first, last, low


@uncounted
def put_unit(g: Network, c: Standing, member_ptr: Ints, member: Ints, resident: Floats, unit: int, j: int) -> None:
    """Let all operators of a unit run on device j."""
    i = c.device[member[member_ptr[unit]]]
    if i == j:
        return
    c.resident[i] -= resident[unit]
    c.resident[j] += resident[unit]
    for k in range(member_ptr[unit], member_ptr[unit + 1]):
        put(g, c, member[k], j)


@uncounted
def shift(c: Standing, source: int, target: int) -> None:
    """Take the operator at position ``source`` out of the order and put it at ``target``."""
    order, position = c.order, c.position
    v = order[source]
    step = 1 if target > source else -1
    for k in range(source, target, step):
        order[k] = order[k + step]
        position[order[k]] = k
    order[target] = v
    position[v] = target
    c.reach[0] = min(c.reach[0], min(source, target))
    c.reach[1] = max(c.reach[1], max(source, target))


@uncounted
def reorder(c: Standing, first: int, operators: Ints) -> None:
    """Put operators at the positions from ``first`` on, where the same ones stand in another order."""
    for k in range(len(operators)):
        c.order[first + k] = operators[k]
        c.position[operators[k]] = first + k
    c.reach[0] = min(c.reach[0], first)
    c.reach[1] = max(c.reach[1], first + len(operators) - 1)


@uncounted
def turn(g: Network, c: Standing, u: int) -> None:
    """Send tensor u when it is made where it was sent when asked for, or the other way round."""
    c.eager[u] = not c.eager[u]
    c.reach[0] = min(c.reach[0], c.position[g.producer[u]])
    for k in range(g.reader_ptr[u], g.reader_ptr[u + 1]):
        c.reach[1] = max(c.reach[1], c.position[g.reader[k]])
