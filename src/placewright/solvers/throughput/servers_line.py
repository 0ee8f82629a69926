"""The network as a line of blocks: what a stage between two positions holds, computes and sends, on any device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from placewright.loads import order_blocks
from placewright.problem import Problem
from placewright.symmetry import symmetry_of

__all__ = ["Line", "line_of"]

Ints: TypeAlias = npt.NDArray[np.int32]
Floats: TypeAlias = npt.NDArray[np.float64]


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
    forth, back : (N, T) bool
        Tensors that cross a position, from a block before it to one behind it, or the other way round.
    """

    problem: Problem
    block_of: Ints
    device_class: Ints
    compute: Floats
    banned: Ints
    resident: Floats
    weights: Floats
    forth: npt.NDArray[np.bool_]
    back: npt.NDArray[np.bool_]

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
            return _crossing_s(self.forth, table[:, one, other]) + _crossing_s(self.back, table[:, other, one])
        total = np.zeros(len(self))
        for (number, size), (i, j) in zip(self._crossing, ((one, other), (other, one)), strict=True):
            there = number > 0
            total[there] += number[there] * cluster.latency_s[i, j] + size[there] * cluster.seconds_per_byte[i, j]
        return total

    @cached_property
    def _crossing(self) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
        """Number and bytes of the tensors that cross each position forth, and back."""
        size = np.array([t.size_bytes for t in self.problem.graph.tensors], dtype=np.float64)
        forth, back = ((way.sum(axis=1).astype(np.float64), way @ size) for way in (self.forth, self.back))
        return forth, back

    def placed(self, cuts: npt.ArrayLike, devices: npt.ArrayLike) -> Ints:
        """(n,) device of each operator when the stages between the cuts are on the devices, in turn."""
        stage = np.searchsorted(np.asarray(cuts)[1:], self.block_of, side="right")
        return np.asarray(devices, dtype=np.int32)[stage]


def _crossing_s(crosses: npt.NDArray[np.bool_], seconds: Floats) -> Floats:
    """(N,) seconds of the tensors that cross each position; ``inf`` where one of them has no way."""
    there = np.isfinite(seconds)
    return np.where(crosses[:, ~there].any(axis=1), np.inf, crosses[:, there] @ seconds[there])


def line_of(problem: Problem) -> Line:
    """Put the blocks of a problem in their order."""
    graph, orbit = problem.graph, symmetry_of(problem).orbit
    first = np.unique(orbit, return_index=True)[1]
    block_of = order_blocks(graph)[np.array(graph.unit_of, dtype=np.int32)]
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
    forth, back = (np.zeros((B + 1, len(graph.tensors)), dtype=np.bool_) for _ in range(2))
    for u, t in enumerate(graph.tensors):
        home, reads = block_of[t.producer], block_of[list(t.readers)]
        if len(reads):
            forth[home + 1 : int(reads.max()) + 1, u] = True
            back[int(reads.min()) + 1 : home + 1, u] = True
    return Line(problem, block_of, orbit, compute, banned, sums[0], sums[1], forth, back)
