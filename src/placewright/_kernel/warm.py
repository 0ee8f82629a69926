"""Compile every kernel once, on networks of two operators, so that no budget pays for it."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from placewright._kernel.anneal import Limits, State, anneal, cost_of
from placewright._kernel.list_schedule import etf, heft, mean_upward_rank
from placewright._kernel.load_moves import LoadLimits, LoadNetwork, anneal_loads, load_state, reset_loads, value_of
from placewright._kernel.memory import peak_activations
from placewright._kernel.path import heads, tails
from placewright._kernel.schedule import Network, decode, retime, upward_rank, workspace

__all__ = ["warm_up", "warm_up_loads", "warm_up_makespan"]


Ints = npt.NDArray[np.int32]


def warm_up(objective: str) -> None:
    """Call each kernel that an objective needs; the disk cache saves compiling when it can."""
    {"makespan": warm_up_makespan, "max-load": warm_up_loads}[objective]()


def _ints(*values: int) -> Ints:
    return np.array(values, dtype=np.int32)


def _pair() -> Network:
    square = np.ones((2, 2))
    return Network(
        made_ptr=_ints(0, 1, 1),
        read_ptr=_ints(0, 0, 1),
        read=_ints(0),
        reader_ptr=_ints(0, 1),
        reader=_ints(1),
        producer=_ints(0),
        size=np.ones(1),
        processing=square.copy(),
        latency=square.copy(),
        per_byte=square.copy(),
        transfer=np.zeros((0, 0, 0)),
        cut=square.copy(),
        resources=np.zeros((2, 2, 4), dtype=np.int32),
        n_resources=1,
    )


@cache
def _warm_up_schedules() -> None:
    g, device = _pair(), _ints(0, 1)
    w = workspace(g)
    decode(g, _ints(0, 1), device, False, np.zeros(2), np.inf, w)
    retime(g, device, _ints(0, 2, 1), _ints(-1, 1, -1), w)
    peak_activations(g, device, np.zeros(1, dtype=np.bool_), w)
    upward_rank(g, device)


@cache
def warm_up_makespan() -> None:
    """Call each kernel of the makespan on two operators."""
    _warm_up_schedules()
    g, two, tail = _pair(), np.ones(2), np.zeros(2)
    w = workspace(g)
    order, device, output, units = _ints(0, 1), _ints(0, 1), np.zeros(1, dtype=np.bool_), _ints(0, 1)
    limits = Limits(units, _ints(0, 1, 2), units, _ints(0, 2, 4), _ints(0, 1, 0, 1), two, two, output, True)
    state = State(device.copy(), order.copy(), order.copy(), device.copy(), order.copy(), np.full(2, np.inf))
    heads(g)
    tails(g)
    heft(g, order, units, two, two, w)
    etf(g, mean_upward_rank(g), units, two, two, w)
    cost_of(g, limits, device, order, False, tail, np.inf, w)
    anneal(g, limits, state, 1.0, 0.1, 8, False, tail, w, np.random.default_rng(0))


@cache
def warm_up_loads() -> None:
    """Call each kernel of the max-load on two units and one message between them."""
    _warm_up_schedules()
    row, cube, none = np.ones((1, 2)), np.ones((1, 2, 2)), np.zeros((0, 0, 0))
    pays, channel_of = np.ones(2, dtype=np.bool_), np.full((2, 2, 2), -1, dtype=np.int32)
    links = _ints(0), _ints(0), _ints(0, 1), _ints(1), _ints(0, 1, 1), _ints(0, 0, 1), _ints(0)
    network = LoadNetwork(cube.copy(), *links, row.copy(), row.copy(), none, pays, channel_of, none, 0)
    limits = LoadLimits(_ints(0, 2, 4), _ints(0, 1, 0, 1), _ints(0, 1, 2), _ints(1, 0), np.ones(2), np.full(2, np.inf))
    state = load_state(_ints(0, 1), messages=1, passes=1, devices=2, channels=0)
    reset_loads(network, limits, state)
    value_of(network, limits, state, 1.0)
    anneal_loads(network, limits, state, 1.0, 0.1, 8, 2, 1.0, np.random.default_rng(0))
