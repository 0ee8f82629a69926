"""The network as a line of blocks: what a stage between two positions holds, computes and sends, on any device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from placewright.loads import order_blocks
from placewright.problem import Problem
from placewright.symmetry import symmetry_of

__all__ = ["Line", "line_of", "span_of"]

Ints: TypeAlias = npt.NDArray[np.int32]
Floats: TypeAlias = npt.NDArray[np.float64]


class Crossings(NamedTuple):
    """Pairs of a position and a tensor that crosses it."""

    at: Ints
    tensor: Ints


@dataclass(frozen=True, eq=False)
class Line:
    """Blocks in topological order, and the N = B + 1 positions between them: a stage is what lies between two.

    Attributes
    ----------
    problem : Problem
    block_of : (n,) int32
        Block of each operator.
    device_class : (D,) int32
        Orbit of each device.
    compute : (C, N) float64
        Seconds on each class of all blocks before a position, without those that may not run.
    banned : (C, N) int32
        How many of them may not run.
    resident, weights : (N,) float64
        Bytes before a position.
    forth, back : Crossings
        Tensors that cross a position, from a block before it to one behind it, or the other way round.
    """

    problem: Problem
    block_of: Ints
    device_class: Ints
    compute: Floats
    banned: Ints
    resident: Floats
    weights: Floats
    forth: Crossings
    back: Crossings

    def __len__(self) -> int:
        return len(self.resident)

    def border_s(self, one: int, other: int) -> Floats:
        """(N,) seconds of all that crosses each position when ``one`` has what is before it and ``other`` the rest."""
        if (one, other) not in self._borders:
            self._borders[one, other] = self._border_s(one, other)
        return self._borders[one, other]

    @cached_property
    def _borders(self) -> dict[tuple[int, int], Floats]:
        return {}

    def _border_s(self, one: int, other: int) -> Floats:
        table, cluster = self.problem.transfer_table, self.problem.cluster
        if table is not None:
            return self._sums(self.forth, table[:, one, other]) + self._sums(self.back, table[:, other, one])
        total = np.zeros(len(self))
        for (number, size), (i, j) in zip(self._crossing, ((one, other), (other, one)), strict=True):
            there = number > 0
            total[there] += number[there] * cluster.latency_s[i, j] + size[there] * cluster.seconds_per_byte[i, j]
        return total

    @cached_property
    def _crossing(self) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
        """Number and bytes of the tensors that cross each position forth, and back."""
        size = np.array([t.size_bytes for t in self.problem.graph.tensors], dtype=np.float64)
        forth, back = ((self._sums(way, np.ones(len(size))), self._sums(way, size)) for way in (self.forth, self.back))
        return forth, back

    def _sums(self, way: Crossings, each: Floats) -> Floats:
        """(N,) sums over the tensors that cross each position."""
        return np.bincount(way.at, weights=each[way.tensor], minlength=len(self)).astype(np.float64)

    def placed(self, cuts: npt.ArrayLike, devices: npt.ArrayLike) -> Ints:
        """(n,) device of each operator when the stages between the cuts are on the devices, in turn."""
        stage = np.searchsorted(np.asarray(cuts)[1:], self.block_of, side="right")
        return np.asarray(devices, dtype=np.int32)[stage]


class Span(NamedTuple):
    """Blocks: of each operator, of each tensor's producer, and of its first and last reader (its own if none)."""

    block_of: Ints
    home: Ints
    first: Ints
    last: Ints

    @property
    def crossings(self) -> int:
        """Positions that tensors cross, summed over tensors."""
        ways = (self.last - self.home, self.home - self.first)
        return int(sum(np.maximum(0, way).astype(np.int64).sum() for way in ways))


def span_of(problem: Problem) -> Span:
    """Find where tensors begin and end."""
    graph = problem.graph
    block_of = order_blocks(graph)[np.array(graph.unit_of, dtype=np.int32)]
    home = block_of[[t.producer for t in graph.tensors]]
    ends = [block_of[list(t.readers or (t.producer,))] for t in graph.tensors]
    first, last = (np.array([int(end(blocks)) for blocks in ends], dtype=np.int32) for end in (np.min, np.max))
    return Span(block_of, home, first, last)


def _crossings(begin: Ints, end: Ints) -> Crossings:
    """Pairs of a tensor and a position it crosses, after block ``begin`` up to block ``end`` of it."""
    length = np.maximum(0, end - begin)
    tensor = np.repeat(np.arange(len(length), dtype=np.int32), length)
    within = np.arange(len(tensor)) - np.repeat(np.cumsum(length) - length, length)
    return Crossings((begin[tensor] + 1 + within).astype(np.int32), tensor)


def line_of(problem: Problem) -> Line:
    """Put the blocks of a problem in their order."""
    graph, orbit = problem.graph, symmetry_of(problem).orbit
    first = np.unique(orbit, return_index=True)[1]
    block_of, home, earliest, latest = span_of(problem)
    B = int(block_of.max()) + 1
    allowed = problem.allowed[:, first]
    compute, banned = np.zeros((len(first), B + 1)), np.zeros((len(first), B + 1), dtype=np.int32)
    for c, i in enumerate(first.tolist()):
        seconds = np.where(allowed[:, c], problem.times.processing_s[:, i], 0.0)
        compute[c, 1:] = np.cumsum(np.bincount(block_of, weights=seconds, minlength=B))
        banned[c, 1:] = np.cumsum(np.bincount(block_of[~allowed[:, c]], minlength=B))
    sums = np.zeros((2, B + 1))
    weights = np.array([v.weight_bytes for v in graph.operators], dtype=np.float64)
    for row, each in zip(sums, (problem.resident_bytes.astype(np.float64), weights), strict=True):
        row[1:] = np.cumsum(np.bincount(block_of, weights=each, minlength=B))
    forth, back = _crossings(home, latest), _crossings(earliest, home)
    return Line(problem, block_of, orbit, compute, banned, sums[0], sums[1], forth, back)
