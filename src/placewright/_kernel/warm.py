"""Compile every kernel once, on networks of two operators, so that no budget pays for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from placewright._kernel.anneal import Limits, State, anneal, cost_of
from placewright._kernel.calls import CallLimits, CallNetwork, anneal_calls, call_state, shortest_intervals
from placewright._kernel.changes import begin, put_unit, reorder
from placewright._kernel.clusters import depth_first_order, place_clusters, sequential_partition
from placewright._kernel.configuration import (
    NONE,
    Incidence,
    Labels,
    build_states,
    completion,
    dual,
    greedy_order,
    real_sets,
    spans,
    upper_labels,
    width_score,
)
from placewright._kernel.diagram import Diagram, Room, backward, forward
from placewright._kernel.diagram_merge import merge
from placewright._kernel.divided import multiplicative_weights, priced_sum
from placewright._kernel.energy import least_energy
from placewright._kernel.genetic import Population, appraise, breed, scatter
from placewright._kernel.ideal_dp import Lattice, boundaries, expand, may_lie, new_labels, states_above
from placewright._kernel.ideals import enumerate_ideals, first_ideal, sums
from placewright._kernel.list_schedule import etf, heft, mean_upward_rank
from placewright._kernel.list_search import mean_transfer, weighted_rank
from placewright._kernel.load_descent import descend
from placewright._kernel.load_front import cells, front
from placewright._kernel.load_front import merge as merge_vectors
from placewright._kernel.load_moves import LoadLimits, LoadNetwork, anneal_loads, load_state, reset_loads, value_of
from placewright._kernel.load_vectors import LoadSteps, cheapest, cost_to_go, extend, new_vectors
from placewright._kernel.makespan_search import KINDS, kept_cost, search_schedules, search_state
from placewright._kernel.memory import peak_activations
from placewright._kernel.module_columns import placements_within, unbeaten
from placewright._kernel.order_moves import Order, random_order, search
from placewright._kernel.pair_labels import FAR, loads_of_vertices, pair_states, share_out, stage_end, with_bits
from placewright._kernel.path import heads, tails
from placewright._kernel.priced_moves import PricedNetwork, descend_priced
from placewright._kernel.schedule import Network, decode, retime, upward_rank, workspace
from placewright._kernel.sct import small_communication_times
from placewright._kernel.segment import Stages, cut, multipliers, table
from placewright._kernel.simulate import simulate
from placewright._kernel.span_refute import refute
from placewright._kernel.span_search import least_time, scratch_for
from placewright._kernel.standing import free_before, revert, standing
from placewright._kernel.standing import retime as time_again
from placewright._kernel.standing_kept import commit, rebuild
from placewright._kernel.warm_servers import warm_up_servers

__all__ = ["AHEAD", "PARTS", "warm_up"]


Ints = npt.NDArray[np.int32]


def warm_up(objective: str, first: int = 0) -> None:
    """Call each kernel that an objective needs; what is on disk is read. ``first`` is the part to begin with."""
    parts = PARTS[objective]
    for part in (*parts[first:], *parts[:first]):
        part()


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


def _limits() -> Limits:
    two, units, output = np.ones(2), _ints(0, 1), np.zeros(1, dtype=np.bool_)
    return Limits(units, _ints(0, 1, 2), units, _ints(0, 2, 4), _ints(0, 1, 0, 1), two, two, output, True)


@cache
def _warm_up_bounds() -> None:
    """Call each kernel of the bounds that come first."""
    g = _pair()
    heads(g)
    tails(g)
    _warm_up_divided()
    least_energy(g, scratch_for(g))
    least_time(
        g, _ints(0, 1, 2), _ints(0, 1), np.ones((2, 2)), np.ones((2, 2)), 1.0, _ints(0, 1), np.inf, 8, scratch_for(g)
    )


@cache
def _warm_up_divided() -> None:
    """Call each kernel of loads that are divided."""
    two = np.ones(2)
    priced_sum(np.ones((2, 2)), two, two, multiplicative_weights(np.ones((2, 2)), two, two, 2), two)


@cache
def _warm_up_lists() -> None:
    """Call each kernel of the list schedulers."""
    g, two, units = _pair(), np.ones(2), _ints(0, 1)
    w = workspace(g)
    heft(g, units, units, two, two, w)
    etf(g, mean_upward_rank(g), units, two, two, w)
    cuts = sequential_partition(g, depth_first_order(g, two), two, two, 1.0, 1.0, 2)
    place_clusters(g, units, cuts, units, two, two, w)
    small_communication_times(g, units, units, two, two, w)
    weighted_rank(g, two, mean_transfer(g), 1.0)


@cache
def _warm_up_spans() -> None:
    """Call each kernel of modules and of bounds by spans."""
    g, order, device = _pair(), _ints(0, 1), _ints(0, 1)
    placements_within(g, _ints(0, 1, 2), order, 1, np.ones((2, 2)), device, 9.0, 4, 9, scratch_for(g))
    unbeaten(np.ones((2, 3)), 2)
    own, stack = g._replace(processing=g.processing.copy()), np.full((6, 2), 3, dtype=np.int32)
    refute(own, g.processing, _ints(0, 1, 2), order, device, 0.5, stack, 1, 8, 2, scratch_for(g))


@cache
def _warm_up_populations() -> None:
    """Call each kernel of the annealing, the genetic algorithm and placeto."""
    g, limits, tail = _pair(), _limits(), np.zeros(2)
    w = workspace(g)
    order, device = _ints(0, 1), _ints(0, 1)
    state = State(device.copy(), order.copy(), order.copy(), device.copy(), order.copy(), np.full(2, np.inf))
    cost_of(g, limits, device, order, False, tail, np.inf, w)
    anneal(g, limits, state, 1.0, 0.1, 8, False, tail, w, np.random.default_rng(0))
    rows, stale = np.zeros((2, 2), dtype=np.int32), np.ones(2, dtype=np.bool_)
    pair = Population(rows, np.array([[0, 1], [0, 1]], dtype=np.int32), np.ones(2), stale)
    scatter(g, limits, pair, 1, np.random.default_rng(0))
    appraise(g, limits, pair, 0, 2, False, tail, w, device, order, np.full(1, np.inf))
    breed(g, limits, pair, pair, 1.5, 1.0, 1.0, np.random.default_rng(0))
    simulate(g, limits, rows, w, np.zeros(2), stale)


@cache
def _warm_up_moves() -> None:
    """Call the search by moves for none at all: the greatest of the kernels, while a solve still prepares for it."""
    g, limits, sent = _pair(), _limits(), np.zeros(1, dtype=np.bool_)
    c = standing(g, _ints(0, 1), _ints(0, 1), sent)
    weights, low_tail, rng = np.ones(len(KINDS)), np.ones(2), np.random.default_rng(0)
    search_schedules(g, limits, c, search_state(g, c, 2), weights, _ints(0, 1), low_tail, 0.0, 1.0, 0.1, 0, rng)


@cache
def _warm_up_search() -> None:
    """Call each kernel of the annealing whose moves are timed where they reach."""
    g, limits = _pair(), _limits()
    two, sent = np.ones(2), np.zeros(1, dtype=np.bool_)
    c = standing(g, _ints(0, 1), _ints(0, 1), sent)
    rebuild(g, c, limits.unit_of, limits.resident)
    s = search_state(g, c, 2)
    kept_cost(g, limits, c, s)
    search_schedules(g, limits, c, s, np.ones(len(KINDS)), _ints(0, 1), two, 0.0, 1.0, 0.1, 8, np.random.default_rng(0))
    free_before(g, c, 1)
    begin(c)
    put_unit(g, c, limits.member_ptr, limits.member, limits.resident, 0, 1 - int(c.device[0]))
    reorder(c, 0, c.order.copy())
    time_again(g, c, np.inf, two)
    revert(c)
    time_again(g, c, np.inf, two)
    commit(g, c)


@cache
def _warm_up_diagram() -> None:
    """Call each kernel of decision diagrams on one operator: two ideals, nothing between them."""
    none, one, two = _ints(), _ints(0), _ints(0, 0, 0)
    flag, row, wide = np.ones(1, dtype=np.bool_), np.ones((1, 1), dtype=np.int32), np.ones((2, 1), dtype=np.int32)
    longs = np.ones((2, 1), dtype=np.int64)
    g = Diagram(
        row, np.zeros((0, 1, 1), dtype=np.int32), row, row, _ints(0, 0), none, _ints(0, 0), none, two, none,
        _ints(0, 0, 1), one, one, _ints(0, 1, 1), one, _ints(1), _ints(0, 1, 1), one, flag, _ints(0, 0), none, none,
        one, none, _ints(0, 0, 1), one, flag, _ints(0, 0), none, none, none, wide, wide, longs[:1].copy(), longs, longs,
        np.full((1, 1, 4), -1, dtype=np.int32), 0,
    )  # fmt: skip
    rows, count, at = np.zeros((8, 2), dtype=np.int32), np.zeros(8, dtype=np.int32), np.zeros(8, dtype=np.int64)
    room = Room(rows, rows.copy(), count, at, count.copy(), count.copy(), row.copy(), row.copy(), row.copy(), none)
    ptr, state, real = np.array([[0, 1], [0, 1]], dtype=np.int64), np.zeros((1, 2), dtype=np.int32), flag.copy()
    forward(g, 1, ptr, state, count[:1].copy(), ptr, state, 9, room)
    made = backward(g, 0, ptr, state, count[:1].copy(), ptr, state, 9, room)
    rest = at[:1].copy(), state.copy(), state.copy(), count[:1].copy(), real.copy()
    merge(room, made, 1, 0, 0, 0, 1, False, real, *rest)


@cache
def _warm_up_loads() -> None:
    """Call each kernel that moves units of the max-load: two, and one message between them."""
    row, cube, none = np.ones((1, 2)), np.ones((1, 2, 2)), np.zeros((0, 0, 0))
    pays, channel_of = np.ones(2, dtype=np.bool_), np.full((2, 2, 2), -1, dtype=np.int32)
    links = _ints(0), _ints(0), _ints(0, 1), _ints(1), _ints(0, 1, 1), _ints(0, 0, 1), _ints(0)
    network = LoadNetwork(cube.copy(), *links, row.copy(), row.copy(), none, pays, channel_of, none, 0, 1.0)
    limits = LoadLimits(_ints(0, 2, 4), _ints(0, 1, 0, 1), _ints(0, 1, 2), _ints(1, 0), np.ones(2), np.full(2, np.inf))
    state = load_state(_ints(0, 1), messages=1, passes=1, devices=2, channels=0)
    reset_loads(network, limits, state)
    value_of(network, limits, state, 1.0)
    anneal_loads(network, limits, state, 1.0, 0.1, 8, 2, 1.0, np.random.default_rng(0))
    descend(network, limits, state, 1e-8, 1)


@cache
def _warm_up_stages() -> None:
    """Call each kernel of the contiguous max-load: two blocks, one after the other, on one class of two devices."""
    column, two, none = np.ones((2, 1)), np.array([2], dtype=np.int64), np.zeros(1)
    stages = Stages(
        column.reshape(2, 1, 1), np.zeros((2, 1), dtype=np.int32), np.ones(2), np.ones(2), np.array([np.inf]), two,
        np.array([1, 3], dtype=np.int64), two, none, 0, 1.0, _ints(0), _ints(0), _ints(1), _ints(0, 1), _ints(1),
        _ints(0, 1, 2), _ints(1, 0), np.ones((1, 1)), np.ones((1, 1)),
    )  # fmt: skip
    graph, rng = Order(_ints(0, 0, 1), _ints(0), _ints(0, 1, 1), _ints(1)), np.random.default_rng(0)
    labels, order, value = table(stages, column, 1, 8), random_order(graph, 1, rng), np.full(2, 9.0)
    value[:] = cut(stages, labels, order, np.inf)[0]
    search(stages, labels, graph, order, order.copy(), np.zeros(3, dtype=np.int32), value, 1.0, 0.1, 8, rng)
    ideals = first_ideal(graph.before_ptr, 3)
    for known in (1, 2):  # all three: what is not known yet is no ideal
        enumerate_ideals(*graph, ideals, known - 1, known, 9)
    alive, cut_ptr = np.zeros((3, 1), dtype=np.uint64), np.zeros(4, dtype=np.int64)
    weight = multipliers(column, stages.banned, two, 2)[0] * column[:, 0]
    may_lie(ideals.parent, ideals.last, weight, False, 9.0, alive, 1, True)
    boundaries(stages, ideals.bits, 0, 3, False, cut_ptr, _ints(), _ints())
    work = sums(ideals.parent, ideals.last, weight)
    lattice = Lattice(
        ideals.bits, work.reshape(3, 1, 1).copy(), np.zeros((3, 1), dtype=np.int32), work, work, alive,
        states_above(stages.stride, stages.count), work.reshape(1, 3).copy(), _ints(0, 1, 2).reshape(1, 3), cut_ptr,
        np.zeros(int(cut_ptr[3]), dtype=np.int32), np.zeros(int(cut_ptr[3]), dtype=np.int32),
    )  # fmt: skip
    expand(stages, lattice, new_labels(3, 64), np.array([9.0]), 0, 9)


@cache
def _warm_up_copies() -> None:
    """Call each kernel of priced copies."""
    pair = np.ones((1, 2, 2))
    messages = _ints(0), _ints(0, 1, 1), _ints(0, 1), _ints(1), _ints(0, 0, 1), _ints(0)
    edges = _ints(0), _ints(1), _ints(0, 1, 2), _ints(0, 0)
    descend_priced(PricedNetwork(np.ones((2, 2)), pair, pair.copy(), *messages, *edges), _ints(0, 1), 1)


@cache
def _warm_up_calls() -> None:
    """Call each kernel of the offload latency on two operators, an accelerator and the CPUs."""
    links, square, cube = (
        (_ints(0), _ints(0, 1), _ints(1), _ints(0, 1, 1), _ints(0, 0, 1), _ints(0)),
        np.ones((2, 2)),
        np.ones((1, 1, 2)),
    )
    network, runs = CallNetwork(*links, square.copy(), cube, cube), np.ones((2, 2), dtype=np.bool_)
    limits = CallLimits(_ints(0, 1), _ints(0, 1, 2), _ints(0, 1), runs, np.ones(2), np.full(2, np.inf), 2)
    anneal_calls(network, limits, call_state(network, limits, _ints(0, 1)), 1.0, 0.1, 8, np.random.default_rng(0))
    none = np.zeros((2, 2), dtype=np.int32)
    shortest_intervals(np.ones(2), square, square, none, 0, np.zeros((3, 1)), np.zeros((3, 1), dtype=np.int32))


@cache
def _warm_up_sets() -> None:
    """Call each kernel of the max-load without order: two units and one tensor between them, on one kind of device."""
    g, rng, one = Incidence(_ints(0, 1, 2), _ints(0, 0), _ints(0, 2), _ints(0, 1)), np.random.default_rng(0), np.ones(1)
    order, first, last, slot = greedy_order(g, 0, rng), _ints(0), _ints(0), _ints(0)
    width_score(g, order)
    outside, profit, best = np.zeros(1, dtype=np.bool_), np.ones(2), np.zeros((1, 8))
    spans(g.edge_ptr, g.edge, _ints(2), order, first, last, slot, outside, _ints(0))
    span = first, last, slot, outside
    ptr, follow, added = build_states(g.edge_ptr, g.edge, order, *span, np.ones((1, 2)), np.ones((1, 1)), _ints(1), 99)
    completion(ptr, follow, added[0], profit, 0.5, best[0])
    dual(ptr, follow, added[0], profit, 9.0, 0.0, best[0])
    limit = ptr, follow, added[0], profit, 9.0, 0.0, one, best
    buckets, full = np.full(3, 4, dtype=np.int64), np.full((2, 8), 1 << 40, dtype=np.int64)
    labels = Labels(np.zeros((2, 64)), np.full((2, 64), NONE), np.zeros((2, 64), dtype=np.int64), full, full * 0 - 1)
    labels.gain[0, 0], labels.low[0, 0], labels.high[0, 0] = 0.0, 0, 0
    upper_labels(*limit, buckets, labels, 0, 1)
    real_sets(*limit, buckets, labels, np.full(64, -1, dtype=np.int32), 1, 1, 99)
    device, square = _ints(0, 1), np.ones((2, 2))
    loads_of_vertices(g, square, np.ones((2, 1)), device)
    stage_end(g, order, 0, profit, one, profit, 9.0, 9.0)
    shared = pair_states(g, order, square, np.ones((2, 1)), 99)
    labels = labels._replace(gain=np.full((2, 64), FAR), low=full.copy(), high=full * 0 - 1)
    found = np.zeros(64, dtype=np.int64)
    with_bits(device, order, found, int(share_out(*shared, 9.0, 4, labels, found)[1][0]), 0, 1)


@cache
def _warm_up_vectors() -> None:
    """Call each kernel of the vectors of loads: two groups and one message between them, on two alike devices."""
    cube, flags = np.ones((1, 2, 2)), np.ones(2, dtype=np.bool_)
    steps = LoadSteps(
        1, 1, 1.0, 0, 0, np.ones((2, 1, 2)), np.ones(2), np.full(2, np.inf), _ints(0, 1), _ints(0, 0, 1, 1), _ints(0),
        _ints(0, 0, 2), _ints(0, 1), _ints(0, 0, 1), _ints(0), _ints(0, 1), _ints(1), _ints(0), cube, cube.copy(),
        np.zeros((0, 2, 2)), np.full((2, 2, 2), -1, dtype=np.int32), _ints(0, 0, 1), _ints(0), flags, flags.copy(),
        _ints(0, 0),
    )  # fmt: skip
    price, at, table = np.full(2, 0.5), np.array([0, 1, 3, 4], dtype=np.int64), np.zeros(4)
    cost_to_go(steps, price, at, table, 0, 2)
    cheapest(steps, price, at, table, np.zeros(2, dtype=np.int32))
    old, new, long = new_vectors(1, 2, 3, 4, 1), new_vectors(2, 2, 3, 4, 1), np.zeros(2, dtype=np.int64)
    parent, choice, score = np.zeros(2, dtype=np.int32), np.zeros(2, dtype=np.int8), np.zeros(2)
    both = price.reshape(1, 2), at, table.reshape(1, 4)
    extend(steps, 0, old, *both, 9.0, new, parent, choice, long.copy(), long, score)
    order, kept = np.arange(2), np.ones(2, dtype=np.bool_)
    front(new, long, order, 8)
    cells(new, np.ones(3), long)
    merge_vectors(new, long, long.copy(), order, True, kept)


_MAX_LOAD = (_warm_up_divided, _warm_up_schedules, _warm_up_stages, _warm_up_loads, _warm_up_sets, _warm_up_vectors)

PARTS: Mapping[str, tuple[Callable[[], None], ...]] = MappingProxyType(
    {
        "makespan": (
            _warm_up_bounds,
            _warm_up_schedules,
            _warm_up_lists,
            _warm_up_moves,
            _warm_up_spans,
            _warm_up_search,
            _warm_up_diagram,
            _warm_up_populations,
        ),
        "max-load": _MAX_LOAD,
        "throughput": (*_MAX_LOAD, _warm_up_copies, warm_up_servers),
        "offload": (_warm_up_schedules, _warm_up_calls),
    }
)
"""What an objective needs, by and by: a solve begins with the first part."""

AHEAD: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {"makespan": (2, 4, 3), "max-load": (2, 4, 5), "throughput": (2, 6, 5), "offload": (1,)}
)
"""With which part processes begin that compile ahead of a solve, which comes to it later."""
