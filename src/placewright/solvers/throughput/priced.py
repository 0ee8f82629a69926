"""What units and messages cost at prices of the loads: the arrays of the kernel that lowers it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright._kernel.priced_moves import PricedNetwork
from placewright.bounds.throughput.cut_program import pair_times
from placewright.loads import loads_of
from placewright.objective import load_rows
from placewright.one_copy import one_copy, throughput_of
from placewright.problem import Problem
from placewright.ragged import ragged

__all__ = ["Priced"]

Floats = npt.NDArray[np.float64]


class Priced:
    """A throughput problem whose loads can be priced."""

    def __init__(self, problem: Problem) -> None:
        a = self.loads = loads_of(one_copy(problem))
        objective = throughput_of(problem)
        self.rows = np.array(load_rows(objective))
        self.times = pair_times(problem)
        U = a.n_units
        strict = objective.contiguity == "contiguous" and objective.contiguous_cpus
        none = np.zeros(0, dtype=np.int32)
        self.tail, self.head = (a.order_tail, a.order_head) if strict else (none, none)
        edges: list[list[int]] = [[] for _ in range(U)]
        for e, (tail, head) in enumerate(zip(self.tail.tolist(), self.head.tolist(), strict=True)):
            edges[tail].append(e)
            edges[head].append(e)
        self.edge_ptr, self.edge = ragged(edges)

    def at(self, prices: Floats) -> PricedNetwork:
        """Price a second of each part of the loads: devices by row of a load, then channels."""
        a, D = self.loads, len(self.loads.pays)
        compute, enter, leave = self.rows.T @ prices[: len(self.rows) * D].reshape(-1, D)
        enter, leave = enter * a.pays, leave * a.pays
        per_pair = np.broadcast_to(enter[None, :], (D, D)).copy()
        channel = prices[len(prices) - a.n_channels :] if a.n_channels else np.zeros(1)
        for c in (0, 1) if a.n_channels else ():
            on = a.channel_of[:, :, c]
            per_pair += np.where(on >= 0, channel[np.maximum(on, 0)], 0.0)
        far = np.where(np.isfinite(self.times), self.times, 1e300)
        work = np.where(a.allowed, a.compute_s[0], 0.0)
        return PricedNetwork(
            np.where(a.allowed, work * compute, np.inf),
            np.where(np.isfinite(self.times), far * per_pair, 1e300),
            np.where(np.isfinite(self.times), far * leave[:, None], 0.0),
            a.producer,
            a.made_ptr,
            a.reader_ptr,
            a.reader,
            a.read_ptr,
            a.read,
            self.tail,
            self.head,
            self.edge_ptr,
            self.edge,
        )
