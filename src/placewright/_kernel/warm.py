"""Compile every kernel once, on a network of two operators, so that no budget pays for it."""

from __future__ import annotations

from functools import cache

import numpy as np

from placewright._kernel.anneal import Limits, State, anneal, cost_of
from placewright._kernel.list_schedule import etf, heft, mean_upward_rank
from placewright._kernel.memory import peak_activations
from placewright._kernel.path import heads, tails
from placewright._kernel.schedule import Network, decode, retime, upward_rank, workspace

__all__ = ["warm_up"]


@cache
def warm_up() -> None:
    """Call each kernel with the types that it is used with; the disk cache saves compiling when it can."""

    def ints(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        return np.array(values, dtype=np.int32)

    two, square = np.ones(2), np.ones((2, 2))
    g = Network(
        made_ptr=ints(0, 1, 1),
        read_ptr=ints(0, 0, 1),
        read=ints(0),
        reader_ptr=ints(0, 1),
        reader=ints(1),
        producer=ints(0),
        size=np.ones(1),
        processing=square.copy(),
        latency=square.copy(),
        per_byte=square.copy(),
        transfer=np.zeros((0, 0, 0)),
        cut=square.copy(),
        resources=np.zeros((2, 2, 4), dtype=np.int32),
        n_resources=1,
    )
    w = workspace(g)
    order, device, tail, output = ints(0, 1), ints(0, 1), np.zeros(2), np.zeros(1, dtype=np.bool_)
    units = ints(0, 1)
    limits = Limits(units, ints(0, 1, 2), units, ints(0, 2, 4), ints(0, 1, 0, 1), two, two, output, True)
    state = State(device.copy(), order.copy(), order.copy(), device.copy(), order.copy(), np.full(2, np.inf))
    decode(g, order, device, False, tail, np.inf, w)
    retime(g, device, ints(0, 2, 1), ints(-1, 1, -1), w)
    peak_activations(g, device, output, w)
    upward_rank(g, device)
    heads(g)
    tails(g)
    heft(g, order, units, two, two, w)
    etf(g, mean_upward_rank(g), units, two, two, w)
    cost_of(g, limits, device, order, False, tail, np.inf, w)
    anneal(g, limits, state, 1.0, 0.1, 8, False, tail, w, np.random.default_rng(0))
