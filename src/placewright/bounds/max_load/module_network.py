"""A max-load problem as a chain of modules: the order in which its groups are placed, and arrays for the kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from placewright._kernel.load_vectors import LoadSteps
from placewright.bounds.max_load.module_order import narrow_order, reach
from placewright.loads import MOST_PAIR_TIMES, Loads, loads_of, objective_of
from placewright.objective import busy_share_of, load_rows
from placewright.problem import Problem
from placewright.ragged import ragged

__all__ = ["ModuleNetwork", "module_network", "why_no_modules"]

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

MOST_DEVICES = 12
"""Devices up to which states, which name the device of each group of a frontier, are counted."""

MOST_STATES = 4_000_000
"""States of all frontiers together."""


@dataclass(frozen=True, eq=False)
class ModuleNetwork:
    """What the kernels read, and the way back.

    Groups are units (colocation classes, or single operators); under contiguity and convexity blocks of units, which
    share a device. A *module* lies between two steps after which the frontier has one group at most.

    Attributes
    ----------
    step_of : (U,) int32
        Step that places each unit.
    steps : LoadSteps
    at : (G+1,) int64
        Where each step's states begin in a table.
    cuts : (.) int64
        Steps after which the frontier is one group, or none: where modules end.
    """

    step_of: Ints
    steps: LoadSteps
    at: Longs
    cuts: Longs

    @property
    def entries(self) -> int:
        """Numbers in a vector of loads."""
        return self.prices + int(self.steps.compute.shape[1])

    @property
    def prices(self) -> int:
        """Numbers in a vector of loads that add up along the chain: all but the peaks of closed devices."""
        s = self.steps
        passes, D = s.compute.shape[1:]
        return int(passes * (D * s.parts + s.channels) + s.memory * D)


def why_no_modules(problem: Problem) -> str | None:
    """Tell why a problem isn't made a chain of modules; ``None`` when it is."""
    a, D = loads_of(problem), len(problem.cluster)
    if objective_of(problem).replicate:
        return "its vectors know no replicas; ideal-dp is exact for contiguous plans with replicas"
    if D > MOST_DEVICES:
        return f"its states name devices, of which there are {D}; it takes up to {MOST_DEVICES}"
    if not len(a.producer):
        return None
    known = (a.separable or len(a.pair_s)) and (not a.n_channels or len(a.channel_s))
    if not known or len(a.producer) * D * D > MOST_PAIR_TIMES:
        return f"{len(a.producer)} tensors times {D} x {D} devices are above {MOST_PAIR_TIMES} transfer times"
    network = module_network(problem)
    if int(network.at[-1]) > MOST_STATES:
        return (
            f"its frontiers would have {int(network.at[-1])} states, above {MOST_STATES}: there are too few operators "
            "that every path passes; duplicate what every layer reads"
        )
    return None


_made: WeakKeyDictionary[Problem, ModuleNetwork] = WeakKeyDictionary()


def module_network(problem: Problem) -> ModuleNetwork:
    """Return the chain of a problem, made once."""
    if problem not in _made:
        _made[problem] = _make(problem)
    return _made[problem]


def _make(problem: Problem) -> ModuleNetwork:
    a, objective = loads_of(problem), objective_of(problem)
    D = len(a.pays)
    mode = ("any", "contiguous", "convex").index(objective.contiguity)
    group = a.block_of if mode else np.arange(a.n_units, dtype=np.int32)
    G = int(group.max()) + 1
    edges = sorted(
        {
            (x, y)
            for x, y in zip(group[a.order_tail].tolist(), group[a.order_head].tolist(), strict=True)
            if x != y and mode
        }
    )
    leave, enter = _costs(problem, a)
    rows, ends = [], []
    for u, home in enumerate(group[a.producer].tolist()):
        readers = sorted(set(group[a.reader[a.reader_ptr[u] : a.reader_ptr[u + 1]]].tolist()) - {home})
        free = not leave[u].any() and not enter[u].any() and not (a.n_channels and a.channel_s[u].any())
        if readers and (mode or not free):
            rows.append((u, home, readers))
            ends.append([home, *readers])
    order = narrow_order(G, ends, edges, D)
    step = np.empty(G, dtype=np.int32)
    step[order] = np.arange(G, dtype=np.int32)
    last = [max(int(step[x]) for x in row) for row in ends]
    by_last = sorted(range(len(rows)), key=lambda m: (last[m], m))
    slot, occupied, free_slots = _slots(G, step, ends, last)
    passes, parts = a.compute_s.shape[0], len(load_rows(objective))
    compute = np.zeros((G, passes, D))
    np.add.at(compute, step[group], a.compute_s.transpose(1, 0, 2))
    chosen = [rows[m][0] for m in by_last]
    tails: list[list[int]] = [[] for _ in range(G)]
    for x, y in edges:
        tails[step[y]].append(int(slot[step[x]]))
    occupied_ptr, occupied_flat = ragged(occupied)
    free_ptr, free_flat = ragged(free_slots)
    tail_ptr, tail = ragged(tails)
    reader_ptr, reader = ragged([[int(slot[step[x]]) for x in rows[m][2]] for m in by_last])
    bound = a.pays | objective.contiguous_cpus
    width = np.diff(occupied_ptr)
    above, below = reach(G, edges)
    closes = np.array(
        [
            mode > 0
            and above[order[t]] == t
            and below[order[t]] == G - 1 - t
            and set(occupied[t + 1]) <= {int(slot[t])}
            for t in range(G)
        ],
        dtype=np.bool_,
    )
    steps = LoadSteps(
        mode=mode,
        parts=parts,
        busy_share=busy_share_of(objective),
        memory=int(a.memory_may_bind),
        channels=a.n_channels,
        compute=compute,
        held=np.bincount(step[group], weights=a.resident, minlength=G).astype(np.float64),
        capacity=a.capacity.astype(np.float64),
        slot=slot,
        occupied_ptr=occupied_ptr,
        occupied=occupied_flat,
        free_ptr=free_ptr,
        free=free_flat,
        done_ptr=np.searchsorted([last[m] for m in by_last], np.arange(G + 1)).astype(np.int32),
        sender=np.array([slot[step[rows[m][1]]] for m in by_last], dtype=np.int32),
        reader_ptr=reader_ptr,
        reader=reader,
        phase=a.phase[chosen].astype(np.int32),
        leave=np.ascontiguousarray(leave[chosen]).reshape(len(chosen), D, D),
        enter=np.ascontiguousarray(enter[chosen]).reshape(len(chosen), D, D),
        wire=np.ascontiguousarray(a.channel_s[chosen]) if a.n_channels and len(chosen) else np.zeros((0, D, D)),
        channel_of=a.channel_of,
        tail_ptr=tail_ptr,
        tail=tail,
        closes=closes,
        bound=bound,
        kind=a.device_class,
    )
    at = np.zeros(G + 2, dtype=np.int64)
    at[1:] = np.cumsum(np.minimum(float(D) ** width, 1e15)).astype(np.int64)
    cuts = np.flatnonzero(width[1:] <= 1)
    return ModuleNetwork(step[group].astype(np.int32), steps, at, cuts)


def _costs(problem: Problem, a: Loads) -> tuple[Floats, Floats]:
    """(M, D, D) what row's device pays to send, and column's to receive; ``inf`` in both where there is no link."""
    D, M = len(a.pays), len(a.producer)
    apart = ~np.eye(D, dtype=bool)
    if not M or D == 1:
        return np.zeros((M, D, D)), np.zeros((M, D, D))
    if a.separable:
        leave = np.where(apart, a.send_s[:, :, None], 0.0)
        enter = np.where(apart, a.receive_s[:, None, :], 0.0)
    else:
        times = np.where(apart, a.pair_s, 0.0)
        leave = np.where(a.pays[:, None] | ~np.isfinite(times), times, 0.0)
        enter = np.where(a.pays[None, :] | ~np.isfinite(times), times, 0.0)
    table = problem.transfer_table
    if table is None:
        absent = ~np.isfinite(problem.cluster.latency_s) & apart
        leave[:, absent], enter[:, absent] = np.inf, np.inf
    elif not np.isfinite(table[:, apart]).all():
        missing = _missing(problem, a, ~np.isfinite(table) & apart)
        leave[missing], enter[missing] = np.inf, np.inf
    return leave, enter


def _missing(problem: Problem, a: Loads, absent: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """(M, D, D) pairs of devices between which some tensor of a message can't go."""
    graph = problem.graph
    row_of: dict[tuple[int, int, tuple[int, ...]], list[int]] = {}
    for u in range(len(a.producer)):
        readers = tuple(a.reader[a.reader_ptr[u] : a.reader_ptr[u + 1]].tolist())
        row_of.setdefault((int(a.producer[u]), int(a.phase[u]), readers), []).append(u)
    found = np.zeros((len(a.producer), *absent.shape[1:]), dtype=np.bool_)
    for x, tensor in enumerate(graph.tensors):
        unit = graph.unit_of[tensor.producer]
        readers = tuple(sorted({graph.unit_of[v] for v in tensor.readers} - {unit}))
        phase = int(graph.operators[tensor.producer].backward and len(a.compute_s) > 1)
        for u in row_of.get((unit, phase, readers), ()):
            found[u] |= absent[x]  # they go all or none
    return found


def _slots(
    G: int, step: Ints, ends: Sequence[Sequence[int]], last: Sequence[int]
) -> tuple[Ints, list[list[int]], list[list[int]]]:
    """Slot of each step's group; slots in use before each step; slots that are free again after it."""
    until = np.arange(G)
    for row, t in zip(ends, last, strict=True):
        for x in row:
            until[step[x]] = max(until[step[x]], t)
    leaving: list[list[int]] = [[] for _ in range(G)]
    for t in range(G):
        leaving[until[t]].append(t)
    slot = np.zeros(G, dtype=np.int32)
    free: list[int] = []
    here, most = set[int](), 0
    occupied: list[list[int]] = [[]]
    freed: list[list[int]] = []
    for t in range(G):
        if free:
            slot[t] = free.pop()
        else:
            slot[t], most = most, most + 1
        here.add(int(slot[t]))
        gone = sorted(int(slot[x]) for x in leaving[t])
        here -= set(gone)
        free = sorted([*free, *gone], reverse=True)
        freed.append(gone)
        occupied.append(sorted(here))
    return slot, occupied, freed
