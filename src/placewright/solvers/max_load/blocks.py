"""What contiguous stages are made of: blocks of units, classes of alike devices, and what a stage costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from placewright._kernel.device_load import OVERLAPS
from placewright._kernel.segment import Stages
from placewright.evaluate import plan_for
from placewright.loads import Loads, loads_of, objective_of
from placewright.objective import busy_share_of
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.ragged import ragged

__all__ = ["Blocks", "Stage", "blocks_of", "bounds_hold", "exactly_modelled", "in_order", "plan_of_stages"]

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

Stage = tuple[Sequence[int], int, int]
"""Blocks, class of devices, and how many of them run copies."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """A contiguous max-load problem over B blocks and C classes of devices.

    Units that a cycle of order edges ties together are one block, and so is a block with a neighbour that it joins at
    no loss (:func:`_joined`): some optimal plan keeps them together, so the optimum is that of the problem.

    Attributes
    ----------
    block_of : (U,) int32
        Block of each unit, in a topological order.
    edges : tuple of (int, int)
        Order edges between blocks, ascending.
    devices : tuple of tuple of int
        Devices of each class, ascending.
    stages : Stages
        What the kernels read.
    total_s : (B, C) float64
        Processing times of both passes, ``inf`` where banned.
    forgetful : bool
        Whether memory of some units was left out to join more: the optimum is then a lower bound only.
    """

    block_of: Ints
    edges: tuple[tuple[int, int], ...]
    devices: tuple[tuple[int, ...], ...]
    stages: Stages
    total_s: Floats
    forgetful: bool = False

    @property
    def n_blocks(self) -> int:
        """B."""
        return len(self.total_s)


def exactly_modelled(problem: Problem) -> bool:
    """Whether the cost of a stage is what the judge says: no link differs by its other end, no channel is shared."""
    a = loads_of(problem)
    return a.separable and not a.n_channels


def bounds_hold(problem: Problem) -> bool:
    """Whether no plan of the problem is below the best chain of stages: contiguity binds every device.

    Where stages cost more than modelled (:func:`exactly_modelled`), the modelled chain is still a lower bound.
    """
    objective, a = objective_of(problem), loads_of(problem)
    return objective.contiguity == "contiguous" and (objective.contiguous_cpus or bool(a.pays.all()))


def blocks_of(problem: Problem, *, forget: bool = False) -> Blocks:
    """Make the blocks of a problem; with ``forget``, leaves join their neighbours whatever they hold in memory."""
    a, objective = loads_of(problem), objective_of(problem)
    classes = int(a.device_class.max()) + 1
    devices = tuple(tuple(np.flatnonzero(a.device_class == c).tolist()) for c in range(classes))
    first = [members[0] for members in devices]
    syncs = objective.replicate and a.has_backward
    block_of, held = _joined(a, first, busy_share=busy_share_of(objective), syncs=syncs, forget=forget)
    B = int(block_of.max()) + 1
    passes = a.compute_s.shape[0] if a.has_backward else 1  # without backward operators both objectives are the same
    allowed = np.ones((B, classes), dtype=np.bool_)
    np.logical_and.at(allowed, block_of, a.allowed[:, first])
    compute = np.zeros((B, passes, classes))
    np.add.at(compute, block_of, np.where(a.allowed, a.compute_s[:passes], 0.0)[:, :, first].transpose(1, 0, 2))
    total = np.where(allowed, compute.sum(axis=1), np.inf)
    edges = {(int(block_of[x]), int(block_of[y])) for x, y in zip(a.order_tail, a.order_head, strict=True)}
    rows = _messages(a, block_of, first)
    reader_ptr, reader = ragged([list(key[2]) for key in rows])
    touching: list[list[tuple[int, int]]] = [[] for _ in range(B)]
    for u, (home, _, readers) in enumerate(rows):
        touching[home].append((u, 1))
        for b in readers:
            touching[b].append((u, 0))
    touch_ptr, touch = ragged([[2 * u + made for u, made in row] for row in touching])
    M = len(rows)
    counts = np.array([len(members) for members in devices], dtype=np.int64)
    stages = Stages(
        compute=compute,
        banned=(~allowed).astype(np.int32),
        resident=np.bincount(block_of, weights=held, minlength=B).astype(np.float64),
        weights=np.bincount(block_of, weights=a.weights, minlength=B).astype(np.float64),
        capacity=a.capacity[first].astype(np.float64),
        count=counts,
        stride=np.concatenate([[1], np.cumprod(counts + 1)]).astype(np.int64),
        most_copies=counts.copy() if objective.replicate else np.ones(classes, dtype=np.int64),
        sync_s_per_byte=a.sync_s_per_byte[first] / objective.sync_period if syncs else np.zeros(classes),
        overlap=OVERLAPS.index(objective.overlap),
        busy_share=busy_share_of(objective),
        home=np.array([key[0] for key in rows], dtype=np.int32),
        phase=np.array([key[1] for key in rows], dtype=np.int32),
        readers=np.diff(reader_ptr).astype(np.int32),
        reader_ptr=reader_ptr,
        reader=reader,
        touch_ptr=touch_ptr,
        touch=touch,
        send=np.array([both[0] for both in rows.values()]).reshape(M, classes),
        receive=np.array([both[1] for both in rows.values()]).reshape(M, classes),
    )
    ends = tuple(sorted((x, y) for x, y in edges if x != y))
    return Blocks(block_of, ends, devices, stages, total, not np.array_equal(held, a.resident))


def in_order(blocks: Blocks, order: Ints, reach: int) -> Blocks:
    """Give blocks the numbers of their places in an order, each to come after the one ``reach`` places before it.

    The chains of stages that are left are those near to the order: all of them for a reach of B, one for a reach of 1.
    """
    s, place = blocks.stages, np.empty(blocks.n_blocks, dtype=np.int32)
    place[order] = np.arange(blocks.n_blocks, dtype=np.int32)
    ends = {(int(place[x]), int(place[y])) for x, y in blocks.edges}
    ends |= {(k, k + reach) for k in range(blocks.n_blocks - reach)}
    touch_ptr, touch = ragged([s.touch[s.touch_ptr[b] : s.touch_ptr[b + 1]].tolist() for b in order])
    stages = s._replace(
        compute=s.compute[order],
        banned=s.banned[order],
        resident=s.resident[order],
        weights=s.weights[order],
        home=place[s.home],
        reader=place[s.reader],
        touch_ptr=touch_ptr,
        touch=touch,
    )
    return Blocks(
        place[blocks.block_of], tuple(sorted(ends)), blocks.devices, stages, blocks.total_s[order], blocks.forgetful
    )


def plan_of_stages(problem: Problem, blocks: Blocks, stages: Sequence[Stage], provenance: Provenance) -> Plan | None:
    """Give each stage the next free devices of its class, and let the judge evaluate the plan."""
    free = [list(members) for members in blocks.devices]
    device = np.zeros(blocks.n_blocks, dtype=np.int32)
    replicas = []
    for members, c, copies in stages:
        taken, free[c] = free[c][:copies], free[c][copies:]
        device[list(members)] = taken[0]
        if copies > 1:
            replicas.append(tuple(taken))
    found = loads_of(problem).devices_of(device[blocks.block_of])
    return plan_for(problem, found, replicas=replicas, provenance=provenance)


def _messages(
    a: Loads, block_of: Ints, first: Sequence[int]
) -> dict[tuple[int, int, tuple[int, ...]], tuple[Floats, Floats]]:
    """(block, pass, readers) -> (send, receive) by class: what blocks send each other, all or none of it together."""
    found: dict[tuple[int, int, tuple[int, ...]], tuple[Floats, Floats]] = {}
    for u, unit in enumerate(a.producer.tolist()):
        home = int(block_of[unit])
        readers = tuple(sorted(set(block_of[a.reader[a.reader_ptr[u] : a.reader_ptr[u + 1]]].tolist()) - {home}))
        send, receive = a.send_s[u, first], a.receive_s[u, first]
        if readers and (send.any() or receive.any()):
            key = home, int(a.phase[u]), readers
            before = found.get(key)
            found[key] = (send, receive) if before is None else (before[0] + send, before[1] + receive)
    return dict(sorted(found.items()))


def _joined(a: Loads, first: Sequence[int], *, busy_share: float, syncs: bool, forget: bool) -> tuple[Ints, Floats]:
    """Block of each unit, and the memory that counts: order edges' blocks, and leaves joined to their only neighbours.

    A leaf is a block all of whose order edges and messages have the same other block, w, except that others may read
    what w sends it; w need be allowed nowhere else than the leaf is. Moved to w's device, the leaf takes its processing
    time there, and saves what it sends to w, and what w sends to nobody else; of a transfer's time the busy share
    counts, as it is what makes room for computing (links only carry less). Where that is no loss in either pass, on
    every device that w may use, and the leaf holds nothing in memory that could matter, no plan loses by the move: the
    device that it leaves only gains, and no order edge starts to go back. With ``forget``, memory that could matter is
    set to 0 first.
    """
    held = a.resident.copy()
    block = a.block_of.astype(np.int64)
    members: dict[int, list[int]] = defaultdict(list)
    for unit, b in enumerate(block.tolist()):
        members[b].append(unit)
    one_of = [members[b][0] for b in range(len(members))]
    sends: list[dict[int, None]] = [{} for _ in range(len(members))]
    reads: list[dict[int, None]] = [{} for _ in range(len(members))]
    near: list[dict[int, None]] = [{} for _ in range(len(members))]
    parties: list[tuple[int, list[int]]] = []
    for u, unit in enumerate(a.producer.tolist()):
        parties.append((unit, a.reader[a.reader_ptr[u] : a.reader_ptr[u + 1]].tolist()))
        sends[int(block[unit])][u] = None
        for k in parties[u][1]:
            reads[int(block[k])][u] = None
    for x, y in zip(block[a.order_tail].tolist(), block[a.order_head].tolist(), strict=True):
        near[x][y] = near[y][x] = None

    def neighbour(b: int) -> int:
        """Return the only other block that the leaf ``b`` deals with; -1 when it deals with none, -2 with several."""
        others = {int(block[one_of[x]]) for x in near[b]} | {int(block[k]) for u in sends[b] for k in parties[u][1]}
        others |= {int(block[parties[u][0]]) for u in reads[b]}
        others.discard(b)
        return -1 if not others else others.pop() if len(others) == 1 else -2

    compute = np.where(a.allowed, a.compute_s, 0.0)[:, :, first]
    allowed = a.allowed[:, first]

    def joins(b: int, w: int) -> bool:
        inside, target = members[b], members[w]
        where = allowed[target].all(axis=0)
        if not allowed[inside][:, where].all():
            return False
        if (a.memory_may_bind and not forget and held[inside].any()) or (syncs and a.weights[inside].any()):
            return False
        costs = compute[:, inside].sum(axis=1)[:, where]
        if not costs.any():
            return True
        if not busy_share:  # transfers make no room for computing
            return False
        saved = np.zeros_like(costs)
        for u in sends[b]:
            if any(block[k] == w for k in parties[u][1]):
                saved[a.phase[u]] += a.receive_s[u, first][where]
        for u in reads[b]:
            if block[parties[u][0]] == w and all(block[k] in (b, w) for k in parties[u][1]):
                saved[a.phase[u]] += a.send_s[u, first][where]
        return bool(np.all(costs <= busy_share * saved))

    todo, largest = sorted(members, reverse=True), max(members, key=lambda b: (len(members[b]), -b))
    while todo:
        b = todo.pop()
        w = neighbour(b) if b in members else -2
        if w == -1 and len(members) > 1:
            largest = largest if largest in members and largest != b else next(x for x in members if x != b)
            w = largest
        if w < 0 or not joins(b, w):
            continue
        if a.memory_may_bind:
            held[members[b]] = 0.0
        block[members[b]] = w
        members[w] += members.pop(b)
        for table in (sends, reads):
            table[w].update(table[b])
        near[w].update(near[b])
        todo.append(w)
    return _renumbered(block, a), held


def _renumbered(block: npt.NDArray[np.int64], a: Loads) -> Ints:
    """Blocks numbered in a topological order, near to that of the first numbers."""
    import rustworkx

    names = np.unique(block)
    number = {int(b): k for k, b in enumerate(names)}
    graph: rustworkx.PyDiGraph[int, None] = rustworkx.PyDiGraph(multigraph=False)
    graph.add_nodes_from(range(len(names)))
    ends = {(number[x], number[y]) for x, y in zip(block[a.order_tail], block[a.order_head], strict=True)}
    graph.add_edges_from_no_data(sorted((x, y) for x, y in ends if x != y))
    position = np.zeros(len(names), dtype=np.int32)
    for k, x in enumerate(rustworkx.lexicographical_topological_sort(graph, lambda x: f"{x:012d}")):
        position[x] = k
    return np.asarray(position[np.searchsorted(names, block)], dtype=np.int32)
