"""A max-load problem as plain arrays over units (colocation classes, or single operators)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from placewright.graph import OperatorGraph
from placewright.objective import MaxLoad
from placewright.problem import Problem
from placewright.ragged import ragged

__all__ = ["MOST_PAIR_TIMES", "Loads", "loads_of", "objective_of", "order_blocks", "order_edges"]

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

MOST_PAIR_TIMES = 30_000_000
"""Tensors times pairs of devices up to which a table of transfer times is made where links differ by pair."""


@dataclass(frozen=True, eq=False)
class Loads:
    """The arrays of one max-load problem: U units, D devices, M messages, P passes.

    A *message* is what units send each other: all tensors of one unit and one pass that the same other units read,
    together, since they are sent to a device all or none. Tensors that no other unit reads are left out.

    Attributes
    ----------
    unit_of : (n,) int32
        Unit of each operator.
    member_ptr, member : (U+1,), (n,) int32
        Operators of unit k are ``member[member_ptr[k]:member_ptr[k+1]]``, ascending.
    compute_s : (P, U, D) float64
        Processing times in seconds; ``inf`` in every pass where the unit may not run. P is 2 (forward, backward) when
        the passes count apart, else 1.
    allowed : (U, D) bool
    resident : (U,) float64
        Bytes held as long as the plan runs.
    weights : (U,) float64
        Bytes of weights: what replicas synchronise.
    capacity : (D,) float64
        Bytes; ``inf`` without a limit.
    memory_may_bind : bool
        False when everything together would fit every device.
    pays : (D,) bool
        Whether transfers are part of the device's load: all but devices of kind ``cpu``.
    producer, phase : (M,) int32
        Unit that sends the message, ascending; and the pass that it belongs to, below P.
    reader_ptr, reader : (M+1,), (.) int32
        Units that read message u are ``reader[reader_ptr[u]:reader_ptr[u+1]]``: ascending, without its producer.
    made_ptr : (U+1,) int32
        Messages that unit k sends are ``made_ptr[k]..made_ptr[k+1]-1``.
    read_ptr, read : (U+1,), (.) int32
        Messages that unit k reads are ``read[read_ptr[k]:read_ptr[k+1]]``, ascending.
    send_s, receive_s : (M, D) float64
        What a message costs device i when it leaves, or enters: 0 where the device does not pay, and the least over the
        other end where links differ by pair, so that loads computed with them are lower bounds.
    separable : bool
        Whether ``send_s`` and ``receive_s`` are exact: no link differs by its other end.
    pair_s : (M, D, D) float64 or (0, 0, 0)
        c[u, i, j] where not separable, and where the table is not too large (:data:`MOST_PAIR_TIMES`). A message that
        leaves i costs i the largest of its transfer times to the devices that read it.
    channel_of : (D, D, 2) int32
        Channels that a transfer from row to column loads, -1: none. A message loads them once a device it goes to.
    channel_s : (M, D, D) float64 or (0, 0, 0)
        Transfer times as the channels see them, also to and from devices that don't pay; empty without channels.
    n_channels : int
    order_tail, order_head : (E,) int32
        Edges between units that contiguity is about, each once.
    block_of : (U,) int32
        Strongly connected components of those edges, numbered in a topological order: under contiguity the units of a
        block share a device.
    device_class : (D,) int32
        Devices of one class can be exchanged in any placement without changing its value.
    sync_s_per_byte : (D,) float64
        Reciprocal bandwidth of a synchronisation between device i and the others of its class.
    has_backward : bool
    """

    unit_of: Ints
    member_ptr: Ints
    member: Ints
    compute_s: Floats
    allowed: Bools
    resident: Floats
    weights: Floats
    capacity: Floats
    memory_may_bind: bool
    pays: Bools
    producer: Ints
    phase: Ints
    reader_ptr: Ints
    reader: Ints
    made_ptr: Ints
    read_ptr: Ints
    read: Ints
    send_s: Floats
    receive_s: Floats
    separable: bool
    pair_s: Floats
    channel_of: Ints
    channel_s: Floats
    n_channels: int
    order_tail: Ints
    order_head: Ints
    block_of: Ints
    device_class: Ints
    sync_s_per_byte: Floats
    has_backward: bool

    @property
    def n_units(self) -> int:
        """U."""
        return len(self.resident)

    def members(self, unit: int) -> Ints:
        """Operators of a unit."""
        return self.member[self.member_ptr[unit] : self.member_ptr[unit + 1]]

    def devices_of(self, unit_device: npt.ArrayLike) -> Ints:
        """(n,) device of each operator from (U,) devices of the units."""
        return np.asarray(unit_device, dtype=np.int32)[self.unit_of]


_made: WeakKeyDictionary[Problem, Loads] = WeakKeyDictionary()


def loads_of(problem: Problem) -> Loads:
    """Return the arrays of a max-load problem, made once."""
    if problem not in _made:
        _made[problem] = _make(problem)
    return _made[problem]


def objective_of(problem: Problem) -> MaxLoad:
    """Return the objective of a problem that is known to be max-load."""
    if not isinstance(problem.objective, MaxLoad):
        raise TypeError(f"the objective is {problem.objective.name}, not max-load")
    return problem.objective


def order_edges(graph: OperatorGraph) -> list[tuple[int, int]]:
    """Edges between units that contiguity is about, ascending, each once.

    They are the edges between forward operators of different units. A unit without a forward operator has none; as in
    the published program it gets an artificial one, and its edges in the backward pass are taken the other way round.
    """
    unit_of, backward = graph.unit_of, [v.backward for v in graph.operators]
    has_forward = [False] * (max(unit_of, default=-1) + 1)
    for v, unit in enumerate(unit_of):
        has_forward[unit] |= not backward[v]
    edges = set()
    for t in graph.tensors:
        a = unit_of[t.producer]
        for v in t.readers:
            b = unit_of[v]
            if a == b or backward[t.producer] != backward[v]:
                continue
            if not backward[v]:
                edges.add((a, b))
            elif not (has_forward[a] and has_forward[b]):
                edges.add((b, a))
    return sorted(edges)


def order_blocks(graph: OperatorGraph) -> Ints:
    """(U,) block of each unit: see ``block_of`` of :class:`Loads`."""
    return _blocks(max(graph.unit_of, default=-1) + 1, order_edges(graph))


def _make(problem: Problem) -> Loads:
    objective, graph, cluster = objective_of(problem), problem.graph, problem.cluster
    D = len(cluster)
    unit_of = np.array(graph.unit_of, dtype=np.int32)
    n_units = int(unit_of.max()) + 1
    member = np.argsort(unit_of, kind="stable").astype(np.int32)
    member_ptr = np.searchsorted(unit_of[member], np.arange(n_units + 1)).astype(np.int32)
    backward = np.array([v.backward for v in graph.operators], dtype=np.bool_)
    passes = 2 if objective.training == "separate" else 1
    pass_of = (backward & (passes == 2)).astype(np.int32)
    allowed = problem.allowed[member[member_ptr[:-1]]].copy()
    compute = np.zeros((passes, n_units, D))
    np.add.at(compute, (pass_of, unit_of), np.where(problem.allowed, problem.times.processing_s, 0.0))
    compute[:, ~allowed] = np.inf
    pays = np.array([d.kind != "cpu" for d in cluster.devices], dtype=np.bool_)
    ends = _Ends(problem, pays)
    tensors, rows = _messages(problem, unit_of, pass_of, merge=ends.separable)
    producer = np.array([r[0] for r in rows], dtype=np.int32)
    reader_ptr, reader = ragged([r[2] for r in rows])
    read_by: list[list[int]] = [[] for _ in range(n_units)]
    for u, row in enumerate(rows):
        for k in row[2]:
            read_by[k].append(u)
    read_ptr, read = ragged(read_by)
    send, receive, pair, channel = ends.tables(tensors)
    edges = order_edges(graph)
    tail, head = (np.array([e[k] for e in edges], dtype=np.int32) for k in (0, 1))
    weight = np.array([v.weight_bytes for v in graph.operators], dtype=np.float64)
    resident = np.bincount(unit_of, weights=problem.resident_bytes.astype(np.float64), minlength=n_units)
    classes = _device_classes(problem, compute, pays, send, receive, ends)
    return Loads(
        unit_of,
        member_ptr,
        member,
        compute,
        allowed,
        resident.astype(np.float64),
        np.bincount(unit_of, weights=weight, minlength=n_units).astype(np.float64),
        cluster.capacity_bytes,
        bool((cluster.capacity_bytes < resident.sum()).any()),
        pays,
        producer,
        np.array([r[1] for r in rows], dtype=np.int32),
        reader_ptr,
        reader,
        np.searchsorted(producer, np.arange(n_units + 1)).astype(np.int32),
        read_ptr,
        read,
        send,
        receive,
        ends.separable,
        pair,
        cluster.channels_of,
        channel,
        len(cluster.channels),
        tail,
        head,
        _blocks(n_units, edges),
        classes,
        _sync_s_per_byte(problem, objective, classes),
        bool(backward.any()),
    )


def _messages(
    problem: Problem, unit_of: Ints, pass_of: Ints, *, merge: bool
) -> tuple[list[list[int]], list[tuple[int, int, tuple[int, ...]]]]:
    """Tensors of each message, and (unit, pass, readers) of each; both sorted by unit."""
    found: dict[tuple[int, int, tuple[int, ...], int], list[int]] = {}
    for u, t in enumerate(problem.graph.tensors):
        unit = int(unit_of[t.producer])
        readers = tuple(sorted({int(unit_of[v]) for v in t.readers} - {unit}))
        if readers:
            key = unit, int(pass_of[t.producer]), readers, 0 if merge else u
            found.setdefault(key, []).append(u)
    keys = sorted(found)
    return [found[k] for k in keys], [k[:3] for k in keys]


class _Ends:
    """Transfer times by their two ends."""

    def __init__(self, problem: Problem, pays: Bools) -> None:
        self.problem, self.pays = problem, pays
        D = len(pays)
        self.apart = ~np.eye(D, dtype=bool)
        cluster, table = problem.cluster, problem.transfer_table
        sizes = np.array([t.size_bytes for t in problem.graph.tensors], dtype=np.float64)
        self.sizes = sizes
        if table is None:
            send = self._same(cluster.latency_s) & self._same(cluster.seconds_per_byte)
            receive = self._same(cluster.latency_s.T) & self._same(cluster.seconds_per_byte.T)
        else:
            send = self._same(table)
            receive = self._same(table.transpose(0, 2, 1))
        self.separable = bool((send | ~pays).all() and (receive | ~pays).all())

    def _same(self, table: Floats) -> Bools:
        """(D,) whether all times from a row's device to others are finite and equal."""
        low = np.where(self.apart, table, np.inf).min(axis=-1)
        high = np.where(self.apart, table, -np.inf).max(axis=-1)
        same = (low == high) | (high == -np.inf)
        if same.ndim == 2:
            same = same.all(axis=0)
        return np.asarray(
            same & np.isfinite(np.where(self.apart, table, 0.0)).reshape(-1, *table.shape[-2:]).all((0, 2))
        )

    def of(self, tensor: int) -> Floats:
        """(D, D) transfer times of a tensor."""
        if self.problem.transfer_table is not None:
            return np.where(self.apart, self.problem.transfer_table[tensor], 0.0)
        cluster = self.problem.cluster
        return np.asarray(cluster.latency_s + self.sizes[tensor] * cluster.seconds_per_byte)

    def tables(self, messages: Sequence[Sequence[int]]) -> tuple[Floats, Floats, Floats, Floats]:
        """Make ``send_s``, ``receive_s``, ``pair_s`` and ``channel_s`` of the messages."""
        D, M = len(self.pays), len(messages)
        send, receive = np.zeros((M, D)), np.zeros((M, D))
        small = M * D * D <= MOST_PAIR_TIMES
        pair = np.zeros((M, D, D) if small and not self.separable else (0, 0, 0))
        channel = np.zeros((M, D, D) if small and self.problem.cluster.channels else (0, 0, 0))
        if D == 1:
            return send, receive, pair, channel
        for u, tensors in enumerate(messages):
            times = sum((self.of(t) for t in tensors), np.zeros((D, D)))
            send[u] = np.where(self.apart, times, np.inf).min(axis=1)
            receive[u] = np.where(self.apart, times, np.inf).min(axis=0)
            if len(pair):
                pair[u] = times
            if len(channel):
                channel[u] = times
        send[:, ~self.pays], receive[:, ~self.pays] = 0.0, 0.0
        return send, receive, pair, channel


def _blocks(n_units: int, edges: Sequence[tuple[int, int]]) -> Ints:
    """Strongly connected components, numbered in a topological order, the lowest unit first where there is a choice."""
    import rustworkx

    graph: rustworkx.PyDiGraph[int, None] = rustworkx.PyDiGraph(multigraph=False)
    graph.add_nodes_from(range(n_units))
    graph.add_edges_from_no_data(list(edges))
    component = np.zeros(n_units, dtype=np.int32)
    components = rustworkx.strongly_connected_components(graph)
    for k, units in enumerate(components):
        component[list(units)] = k
    quotient: rustworkx.PyDiGraph[int, None] = rustworkx.PyDiGraph(multigraph=False)
    quotient.add_nodes_from([min(units) for units in components])
    ends = {(int(component[a]), int(component[b])) for a, b in edges}
    quotient.add_edges_from_no_data(sorted((a, b) for a, b in ends if a != b))
    order = rustworkx.lexicographical_topological_sort(quotient, lambda unit: f"{unit:012d}")
    position = {unit: k for k, unit in enumerate(order)}
    number = np.array([position[min(units)] for units in components], dtype=np.int32)
    return np.asarray(number[component], dtype=np.int32)


def _device_classes(problem: Problem, compute: Floats, pays: Bools, send: Floats, receive: Floats, ends: _Ends) -> Ints:
    """Give devices that can be exchanged the same number."""
    D, capacity = len(pays), problem.cluster.capacity_bytes
    classes = np.full(D, -1, dtype=np.int32)
    first: list[int] = []
    for j in range(D):
        for k, i in enumerate(first):
            alike = (
                pays[i] == pays[j]
                and capacity[i] == capacity[j]
                and np.array_equal(compute[:, :, i], compute[:, :, j])
                and np.array_equal(send[:, i], send[:, j])
                and np.array_equal(receive[:, i], receive[:, j])
                and _exchangeable(problem, ends, i, j)
            )
            if alike:
                classes[j] = k
                break
        if classes[j] < 0:
            classes[j] = len(first)
            first.append(j)
    return classes


def _exchangeable(problem: Problem, ends: _Ends, i: int, j: int) -> bool:
    """Whether exchanging two devices leaves every transfer time, and every channel, as it was."""
    D = len(ends.pays)
    swap = np.arange(D)
    swap[[i, j]] = j, i
    channels = problem.cluster.channels_of
    if not np.array_equal(channels[np.ix_(swap, swap)], channels):
        return False
    cluster, table = problem.cluster, problem.transfer_table
    matrices = [cluster.latency_s, cluster.seconds_per_byte]
    if table is not None:
        table = np.where(ends.apart, table, 0.0)
        if not np.array_equal(table[:, swap][:, :, swap], table):
            return False
        # The links then matter for what they cost replicas alone.
        objective = objective_of(problem)
        synced = objective.replicate and any(v.backward for v in problem.graph.operators)
        matrices = matrices[1:] if synced and objective.sync_bandwidth_bytes_per_s is None else []
    return all(np.array_equal(m[np.ix_(swap, swap)], m) for m in matrices)


def _sync_s_per_byte(problem: Problem, objective: MaxLoad, classes: Ints) -> Floats:
    """Seconds a byte between devices of a class; 0 where there is but one."""
    D = len(classes)
    if objective.sync_bandwidth_bytes_per_s is not None:
        return np.full(D, 1.0 / objective.sync_bandwidth_bytes_per_s)
    table = problem.cluster.seconds_per_byte
    found = np.zeros(D)
    for i in range(D):
        alike = [j for j in range(D) if j != i and classes[j] == classes[i]]
        found[i] = max((float(table[i, j]) for j in alike), default=0.0)
    return found
