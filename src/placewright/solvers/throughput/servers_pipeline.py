"""One pipeline on given devices: its best cuts, and the mixture of cuts that evens out its loads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from placewright._kernel.pipelines import best_cuts, divided_time, priced_cuts
from placewright.highs import new_highs
from placewright.objective import busy_share_of
from placewright.one_copy import throughput_of
from placewright.solvers.throughput.servers_line import Line

__all__ = ["Alike", "Pipeline"]

Alike: TypeAlias = tuple[tuple[int, ...], tuple[tuple[float, ...], ...], int]

Ints: TypeAlias = npt.NDArray[np.int32]
Floats: TypeAlias = npt.NDArray[np.float64]

ROUNDS = 60
"""Of prices, at most."""

CLOSE = 2e-4
"""Relative distance from the best mixture at which one is good enough."""

REACH = 24
"""Blocks by which a mixture may move a cut either way."""

LEAST_SHARE = 1e-4
"""Of a pipeline's samples: cuts with less are left out."""


class Pipeline:
    """Devices in the order in which samples pass them; stages are what positions of the line part.

    Parameters
    ----------
    line : Line
    devices : sequence of int
    together : int
        Pipelines alike that share its servers, and so their channels.
    """

    def __init__(self, line: Line, devices: Sequence[int], together: int = 1) -> None:
        self.line, self.devices, self.together = line, tuple(devices), together
        cluster, S, N = line.problem.cluster, len(devices), len(line)
        classes = line.device_class[list(devices)]
        self.compute, self.banned = line.compute[classes], line.banned[classes]
        self.capacity = cluster.capacity_bytes[list(devices)]
        self.border = np.zeros((S + 1, N))
        for s in range(1, S):
            self.border[s] = line.border_s(devices[s - 1], devices[s])
        self.pays = np.array([cluster.devices[i].kind != "cpu" for i in devices])
        free = ~self.pays[:, None] & np.isfinite(self.border[:-1]), ~self.pays[:, None] & np.isfinite(self.border[1:])
        self.left, self.right = np.where(free[0], 0.0, self.border[:-1]), np.where(free[1], 0.0, self.border[1:])
        self.alike: Alike = (tuple(classes.tolist()), tuple(self._neighbours()), together)
        """Equal for pipelines that make the same."""
        self.busy_share = busy_share_of(throughput_of(line.problem))
        self.overlaps = self.busy_share < 1.0
        used = [cluster.channels_of[devices[s - 1], devices[s]] for s in range(1, S)]
        self.channels = sorted({int(c) for pair in used for c in pair if c >= 0})
        self.crosses = np.zeros((len(self.channels), S + 1))
        """How often each channel is used between two stages."""
        for s, pair in enumerate(used, 1):
            for c in sorted({int(c) for c in pair if c >= 0}):
                self.crosses[self.channels.index(c), s] = 1.0

    def _neighbours(self) -> Iterator[tuple[float, ...]]:
        """Tell links apart: by their figures and channels, or by devices where a table gives the times."""
        cluster, pairs = self.line.problem.cluster, list(pairwise(self.devices))
        if self.line.problem.transfer_table is not None:
            yield from pairs
            return
        number: dict[int, int] = {-1: -1}
        for i, j in [way for pair in pairs for way in (pair, pair[::-1])]:
            channels = [number.setdefault(c, len(number)) for c in cluster.channels_of[i, j].tolist()]
            yield (float(cluster.latency_s[i, j]), float(cluster.seconds_per_byte[i, j]), *channels)

    def cut(self, sync: Floats) -> tuple[float, Ints]:
        """Return the samples a second with the best cuts, and these; 0 where the network does not fit.

        ``sync`` (N,): share of a device's time that the weights before a position take.
        """
        cuts = np.zeros(len(self.devices) + 1, dtype=np.int32)
        resident = self.line.resident
        ways = self.overlaps, self.busy_share
        load = best_cuts(self.compute, self.left, self.right, self.banned, resident, self.capacity, sync, *ways, cuts)
        busiest = max(load, float(self._channel_s(cuts).max(initial=0.0)))
        return (1.0 / busiest if 0.0 < busiest < np.inf else 0.0), cuts

    def estimate(self, sync: Floats) -> float:
        """Return about how many samples a second a mixture of cuts may make, with the cheapest borders."""
        inner = self.border[:, 1:-1].min(axis=1, initial=np.inf)
        inner[~np.isfinite(inner)] = 0.0
        sent = (inner[:-1] + inner[1:]) * self.pays
        memory = self.line.resident, self.capacity
        time = divided_time(self.compute, sent, self.banned, *memory, sync, self.busy_share)
        return 1.0 / time if 0.0 < time < np.inf else 0.0

    def _channel_s(self, cuts: Ints) -> Floats:
        crossing = np.array([self.border[s, cuts[s]] for s in range(len(cuts))])
        return np.asarray(np.where(self.crosses > 0.0, crossing, 0.0).sum(axis=1)) * self.together

    def mixed(self, cuts: Ints, sync: Floats) -> list[tuple[Ints, float]]:
        """Mix cuts near the given ones, all within what devices may hold: each with its samples a second.

        maximise sum_k r_k such that for every device and channel sum_k r_k load(k) is at most what synchronisation
        leaves: column generation, where the best column for prices is a shortest path over positions.
        """
        low, high = self._windows(cuts)
        rooms = 1.0 - (sync[high] - sync[low])
        if (rooms <= 0.0).any():
            return []
        S, chosen = len(self.devices), [cuts.copy()]
        room = np.concatenate([np.tile(rooms, 2 if self.overlaps else 1), np.ones(len(self.channels))])
        program = _Shares(room, float(self._rows(cuts).max()))
        while True:
            program.add(self._rows(chosen[-1]))
            rates, prices = program.solved()
            busy = prices[:S]
            sent = self.busy_share * busy + (prices[S : 2 * S] if self.overlaps else 0.0)
            channel = (prices[len(prices) - len(self.channels) :] @ self.crosses) * self.together
            begins = _priced(sent, self.left) + _priced(channel[:-1], self.border[:-1])
            ends = _priced(sent, self.right)
            best = np.zeros(S + 1, dtype=np.int32)
            least = priced_cuts(self.compute, busy, begins, ends, low, high, best)
            if least >= 1.0 - CLOSE or len(chosen) >= ROUNDS:
                break
            chosen.append(best)
        whole = float(rates.sum())
        return [(k, rate) for k, rate in zip(chosen, rates.tolist(), strict=True) if rate > LEAST_SHARE * whole]

    def _windows(self, cuts: Ints) -> tuple[Ints, Ints]:
        """Find what each device may hold: its stage, and blocks on either side in turn while they fit."""
        low, high, resident = cuts[:-1].copy(), cuts[1:].copy(), self.line.resident
        for s in range(len(low)):
            if low[s] == high[s]:
                continue
            for step in range(2 * REACH):
                a, b = low[s] - (step % 2 == 0 and s > 0), high[s] + (step % 2 == 1 and s < len(low) - 1)
                if a < 0 or b >= len(resident) or resident[b] - resident[a] > self.capacity[s]:
                    continue
                if self.banned[s, b] == self.banned[s, a]:
                    low[s], high[s] = a, b
        return low, high

    def _rows(self, cuts: Ints) -> Floats:
        """Seconds a sample that each device is busy, that links carry beside it where they do, and of each channel."""
        at = np.arange(len(self.devices))
        busy = self.compute[at, cuts[1:]] - self.compute[at, cuts[:-1]]
        sent = self.left[at, cuts[:-1]] + self.right[at, cuts[1:]]
        return np.concatenate(
            [busy + self.busy_share * sent, *([sent] if self.overlaps else []), self._channel_s(cuts)]
        )


def _priced(prices: Floats, seconds: Floats) -> Floats:
    """(S, N) seconds at the prices (S,); ``inf`` where nothing can cross, at a price of 0 too."""
    there = np.isfinite(seconds)
    return np.where(there, prices[:, None] * np.where(there, seconds, 0.0), np.inf)


class _Shares:
    """Most samples a second of columns that share rows of limited room: a linear program that grows."""

    def __init__(self, room: Floats, scale: float) -> None:
        import highspy

        self.solver: Any = new_highs()
        self.scale, self.endless = scale, float(highspy.kHighsInf)
        self.rows = np.arange(len(room), dtype=np.int32)
        for limit in room.tolist():
            self.solver.addRow(-self.endless, limit, 0, np.array([], dtype=np.int32), np.array([]))

    def add(self, column: Floats) -> None:
        """Add what a sample takes of each row."""
        self.solver.addCol(-1.0, 0.0, self.endless, len(self.rows), self.rows, column / self.scale)

    def solved(self) -> tuple[Floats, Floats]:
        """Return the samples a second of each column, and the price of each row."""
        self.solver.run()
        solution = self.solver.getSolution()
        rates = np.maximum(0.0, np.array(solution.col_value)) / self.scale
        return rates, np.maximum(0.0, -np.array(solution.row_dual)) / self.scale
