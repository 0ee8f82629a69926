"""Groups of operators that a learned policy places together."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from placewright.arrays import Arrays, arrays_of
from placewright.problem import Problem

__all__ = ["Groups", "groups_of"]


@dataclass(frozen=True, eq=False)
class Groups:
    """G groups of operators, numbered by their first operators.

    Attributes
    ----------
    of : (n,) int32
        Group of each operator; the members of a colocation unit share it.
    allowed : (G, D) bool
        Devices that all members may use: at least one.
    seconds : (G, D) float64
        Sum of the processing times of the members; of devices that are not allowed the group's longest.
    sent_bytes : (G,) float64
        Sum of the tensors that members make and other groups read.
    reads : (G, G) bool
        ``reads[y, x]``: a member of y reads a tensor of x.
    above : (G, G) bool
        ``above[y, x]``: y depends on x, through others too.
    """

    of: npt.NDArray[np.int32]
    allowed: npt.NDArray[np.bool_]
    seconds: npt.NDArray[np.float64]
    sent_bytes: npt.NDArray[np.float64]
    reads: npt.NDArray[np.bool_]
    above: npt.NDArray[np.bool_]


def groups_of(problem: Problem, most: int, device_of: npt.NDArray[np.int32]) -> Groups:
    """Merge neighbours until at most ``most`` groups are left, where devices and memory let them be merged.

    The unit or group of the least mean processing time joins the neighbour with which it exchanges most bytes, again
    and again: first only those that ``device_of``, a placement to start from, has on the same device; then any; then
    those without a neighbour that could take them are joined to the next in topological order. Merged groups have a
    device that all members may use and that holds the weights of all. O(n log n) merges of small sets.

    Examples
    --------
    A chain of four: ``b`` is the shortest and joins ``c``, to which it sends more; then ``a`` joins both.

    >>> from placewright import Cluster, Device, Operator, OperatorGraph, Tensor
    >>> tensors = [Tensor("x", 0, (1,), 4), Tensor("y", 1, (2,), 8), Tensor("z", 2, (3,), 1)]
    >>> graph = OperatorGraph([Operator(v) for v in "abcd"], tensors)
    >>> problem = Problem(graph, Cluster([Device("gpu")]), [[2.0], [1.0], [3.0], [9.0]])
    >>> groups = groups_of(problem, 2, np.zeros(4, dtype=np.int32))
    >>> groups.of.tolist(), groups.seconds.tolist(), groups.sent_bytes.tolist()
    ([0, 0, 0, 1], [[6.0], [9.0]], [1.0, 0.0])
    """
    a = arrays_of(problem)
    leader = _merged(a, _unit_seconds(a), most, device_of[a.member[a.member_ptr[:-1]]])
    first = np.full(len(leader), len(a.unit_of), dtype=np.int64)
    np.minimum.at(first, leader[a.unit_of], np.arange(len(a.unit_of)))
    number = np.zeros(len(leader), dtype=np.int32)
    leaders = np.unique(leader)
    leaders = leaders[np.argsort(first[leaders], kind="stable")]
    number[leaders] = np.arange(len(leaders))
    of = number[leader[a.unit_of]].astype(np.int32)
    return _described(a, of, len(leaders))


def _unit_seconds(a: Arrays) -> npt.NDArray[np.float64]:
    """(U,) mean processing time of each unit over the devices that it may use."""
    seconds = np.zeros(a.allowed.shape)
    np.add.at(seconds, a.unit_of, np.where(a.allowed[a.unit_of], a.network.processing, 0.0))
    return np.asarray(seconds.sum(axis=1) / a.allowed.sum(axis=1), dtype=np.float64)


def _merged(
    a: Arrays, seconds: npt.NDArray[np.float64], most: int, device_of: npt.NDArray[np.int32]
) -> npt.NDArray[np.int64]:
    """(U,) the unit that leads each unit's group; ``device_of`` is (U,)."""
    g, U = a.network, len(seconds)
    between: list[dict[int, float]] = [{} for _ in range(U)]
    for u, x in enumerate(a.unit_of[g.producer].tolist()):
        readers = a.unit_of[g.reader[g.reader_ptr[u] : g.reader_ptr[u + 1]]]
        for y in np.unique(readers[readers != x]).tolist():
            between[x][y] = between[x].get(y, 0.0) + float(g.size[u])
            between[y][x] = between[x][y]
    leader, allowed = np.arange(U), a.allowed.copy()
    time, held = seconds.tolist(), a.resident.tolist()
    count = U

    def may_join(x: int, y: int) -> bool:
        return bool((allowed[x] & allowed[y] & (held[x] + held[y] <= a.capacity)).any())

    def join(x: int, y: int) -> None:
        """Let y lead x's group, too."""
        for z, size in between[x].items():
            del between[z][x]
            if z != y:
                between[y][z] = between[z][y] = between[y].get(z, 0.0) + size
        between[x] = {}
        leader[x] = y
        allowed[y] &= allowed[x]
        time[y] += time[x]
        held[y] += held[x]

    for anywhere in (False, True):
        queue = [(time[x], x) for x in np.flatnonzero(leader == np.arange(U)).tolist()]
        heapq.heapify(queue)
        while queue and count > most:
            t, x = heapq.heappop(queue)
            if leader[x] != x or t != time[x]:
                continue
            near = [(-size, y) for y, size in between[x].items() if anywhere or device_of[y] == device_of[x]]
            fitting = [(size, y) for size, y in near if may_join(x, y)]
            if fitting:
                y = min(fitting)[1]
                join(x, y)
                count -= 1
                heapq.heappush(queue, (time[y], y))
    run, last, length = -(-count // most), -1, 0
    for x in np.flatnonzero(leader == np.arange(U)).tolist() if run > 1 else []:
        if last >= 0 and length < run and may_join(x, last):
            join(x, last)
            length += 1
        else:
            last, length = x, 1
    while (leader[leader] != leader).any():
        leader = leader[leader]
    return leader


def _described(a: Arrays, of: npt.NDArray[np.int32], count: int) -> Groups:
    g = a.network
    allowed = np.ones((count, g.processing.shape[1]), dtype=np.bool_)
    np.logical_and.at(allowed, of, a.allowed[a.unit_of])
    seconds = np.zeros(allowed.shape)
    np.add.at(seconds, of, np.where(np.isfinite(g.processing), g.processing, 0.0))
    seconds = np.where(allowed, seconds, np.where(allowed, seconds, 0.0).max(axis=1, keepdims=True))
    reads = np.zeros((count, count), dtype=np.bool_)
    tensor_of = np.repeat(np.arange(len(g.producer)), np.diff(g.reader_ptr))
    source, target = of[g.producer[tensor_of]], of[g.reader]
    crossing = source != target
    reads[target[crossing], source[crossing]] = True
    sent = np.zeros(count)
    leaving = np.unique(tensor_of[crossing])
    np.add.at(sent, of[g.producer[leaving]], g.size[leaving])
    above = reads.copy()
    while True:
        further = above | (above.astype(np.float32) @ above.astype(np.float32) > 0.0)
        if (further == above).all():
            break
        above = further
    np.fill_diagonal(above, False)
    return Groups(of, allowed, seconds, sent, reads, above)
