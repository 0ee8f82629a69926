"""A max-load problem as the arrays of the kernels that move single units."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright._kernel.device_load import OVERLAPS
from placewright._kernel.load_moves import LoadLimits, LoadNetwork
from placewright.loads import Loads, objective_of
from placewright.objective import busy_share_of
from placewright.problem import Problem
from placewright.ragged import ragged

__all__ = ["load_network"]


def load_network(problem: Problem, loads: Loads, may: npt.NDArray[np.bool_]) -> tuple[LoadNetwork, LoadLimits]:
    """Make the arrays; ``may`` (U, D) says which devices a unit is to be moved to."""
    choice_ptr, choice = ragged([np.flatnonzero(row).tolist() for row in may])
    near: list[set[int]] = [set() for _ in range(loads.n_units)]
    for m, home in enumerate(loads.producer.tolist()):
        for other in loads.reader[loads.reader_ptr[m] : loads.reader_ptr[m + 1]].tolist():
            near[home].add(other)
            near[other].add(home)
    near_ptr, neighbours = ragged([sorted(row) for row in near])
    # Where there is no way, a time that no plan within reach has: sums stay finite, and the move is undone.
    work = np.where(np.isfinite(loads.compute_s), loads.compute_s, 0.0)
    never = 1e3 * float(work.max(axis=(0, 2), initial=0.0).sum() or 1.0)
    send, receive, pair, channel = (
        np.where(np.isfinite(t), t, never) for t in (loads.send_s, loads.receive_s, loads.pair_s, loads.channel_s)
    )
    objective = objective_of(problem)
    network = LoadNetwork(
        loads.compute_s,
        loads.producer,
        loads.phase,
        loads.reader_ptr,
        loads.reader,
        loads.made_ptr,
        loads.read_ptr,
        loads.read,
        send,
        receive,
        pair,
        loads.pays,
        loads.channel_of,
        channel,
        OVERLAPS.index(objective.overlap),
        busy_share_of(objective),
    )
    return network, LoadLimits(choice_ptr, choice, near_ptr, neighbours, loads.resident, loads.capacity)
