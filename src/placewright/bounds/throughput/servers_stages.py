"""The stages that devices of one class after another may take of a contiguous copy, and what they cost at least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from placewright._kernel.ideals import Ideals, enumerate_ideals, first_ideal
from placewright._kernel.stages import Messages, StageTable, count_stages, crossing, fill_stages
from placewright.algorithm import Budget
from placewright.loads import order_blocks, order_edges
from placewright.objective import busy_share_of
from placewright.one_copy import throughput_of
from placewright.problem import Problem
from placewright.ragged import ragged
from placewright.symmetry import symmetry_of

__all__ = ["ClassStages", "messages_of", "stages_of"]

Ints: TypeAlias = npt.NDArray[np.int32]
Floats: TypeAlias = npt.NDArray[np.float64]

MOST_IDEALS = 20_000
MOST_STAGES = 12_000_000
MOST_LOADS = 64_000_000
"""Stages times classes of devices."""

MOST_ENTRIES = 200_000_000
"""Of the table of which ideal holds which unit."""

CHILDREN = 100_000
"""Ideals extended between two looks at the budget."""

ROWS = 16
"""Ideals whose stages are listed between two looks at the budget."""


@dataclass(frozen=True, eq=False)
class ClassStages:
    """Stages between nested ideals of the units, by class of devices.

    Attributes
    ----------
    count : (C,) float64
        Devices of each class: of each orbit of the cluster's exchanges.
    unit_s : (U, C) float64
        Processing times of the units; ``inf`` where one may not run.
    inside : (N, U) uint8
        Whether a unit is in an ideal; ideals by size, the first is empty and the last holds all.
    weights : (U,) float64
        Bytes.
    table : StageTable
        Loads in seconds, ``inf`` where a stage is not allowed or does not fit.
    """

    count: Floats
    unit_s: Floats
    inside: npt.NDArray[np.uint8]
    weights: Floats
    table: StageTable


_made: WeakKeyDictionary[Problem, ClassStages] = WeakKeyDictionary()


def stages_of(problem: Problem, budget: Budget) -> ClassStages | None:
    """List the stages, once; ``None`` where they are too many, or the budget is spent."""
    if problem not in _made:
        made = _make(problem, budget)
        if made is None:
            return None
        _made[problem] = made
    return _made[problem]


def _make(problem: Problem, budget: Budget) -> ClassStages | None:
    orbit = symmetry_of(problem).orbit
    first = np.unique(orbit, return_index=True)[1]
    unit_of = np.array(problem.graph.unit_of, dtype=np.int32)
    U = int(unit_of.max()) + 1
    unit_s = np.zeros((U, len(first)))
    np.add.at(unit_s, unit_of, np.where(problem.allowed[:, first], problem.times.processing_s[:, first], np.inf))
    weights = np.bincount(unit_of, weights=[v.weight_bytes for v in problem.graph.operators], minlength=U)
    resident = np.bincount(unit_of, weights=problem.resident_bytes.astype(np.float64), minlength=U)
    block_of = order_blocks(problem.graph)
    inside = _ideals(problem, block_of, budget)
    if inside is None or inside.shape[0] * U > MOST_ENTRIES:
        return None
    inside = np.ascontiguousarray(inside[:, block_of])
    held, capacity = (inside @ resident).astype(np.float64), problem.cluster.capacity_bytes[first]
    N, C, room = len(inside), len(first), 0
    for a in range(0, N, ROWS):
        room += count_stages(inside, held, float(capacity.max()), a, min(a + ROWS, N))
        if room > min(MOST_STAGES, MOST_LOADS // C) or budget.spent:
            return None
    table = StageTable(np.zeros(N + 1, dtype=np.int64), np.zeros(room, dtype=np.int32), np.zeros((room, C)))
    finite, banned = np.isfinite(unit_s), inside.astype(np.int32) @ (~np.isfinite(unit_s)).astype(np.int32)
    compute = (inside @ np.where(finite, unit_s, 0.0)).astype(np.float64)
    messages = messages_of(problem, first)
    cross = crossing(inside, messages)
    for a in range(0, N, ROWS):
        if budget.spent:
            return None
        fill_stages(inside, held, capacity, compute, banned, messages, cross, a, min(a + ROWS, N), table)
    return ClassStages(np.bincount(orbit).astype(np.float64), unit_s, inside, weights.astype(np.float64), table)


def _ideals(problem: Problem, block_of: Ints, budget: Budget) -> npt.NDArray[np.uint8] | None:
    """(N, B) which blocks each ideal holds, by size."""
    B = int(block_of.max()) + 1
    edges = sorted({(int(block_of[a]), int(block_of[b])) for a, b in order_edges(problem.graph)})
    before: list[list[int]] = [[] for _ in range(B)]
    after: list[list[int]] = [[] for _ in range(B)]
    for a, b in edges:
        if a != b:
            before[b].append(a)
            after[a].append(b)
    graph = (*ragged(before), *ragged(after))
    ideals: Ideals = first_ideal(graph[0], MOST_IDEALS)
    done, known = 0, 1
    while done < known:
        earlier = done
        done, known = enumerate_ideals(*graph, ideals, done, known, CHILDREN)
        if done == earlier or budget.spent:
            return None
    bits = ideals.bits[:known].view(np.uint8)
    inside = np.unpackbits(bits, axis=1, bitorder="little")[:, :B]
    return np.asarray(inside[np.argsort(inside.sum(axis=1), kind="stable")])


def messages_of(problem: Problem, first: npt.NDArray[np.int64]) -> Messages:
    """Collect what units send each other: tensors of one unit that the same other units read.

    Of the devices ``first``, one a class: seconds that a message costs them when it leaves or enters, the least over
    the other end, of which the busy share counts; nothing where the device does not pay.
    """
    graph, cluster, unit_of = problem.graph, problem.cluster, problem.graph.unit_of
    found: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for u, t in enumerate(graph.tensors):
        readers = tuple(sorted({unit_of[v] for v in t.readers} - {unit_of[t.producer]}))
        if readers:
            found.setdefault((unit_of[t.producer], readers), []).append(u)
    keys = sorted(found)
    reader_ptr, reader = ragged([key[1] for key in keys])
    send, receive = np.zeros((len(keys), len(first))), np.zeros((len(keys), len(first)))
    number = np.array([len(found[key]) for key in keys], dtype=np.float64)
    size = np.array([sum(graph.tensors[u].size_bytes for u in found[key]) for key in keys], dtype=np.float64)
    share = busy_share_of(throughput_of(problem))
    for c, i in enumerate(first.tolist() if share and len(cluster) > 1 else []):
        if cluster.devices[i].kind == "cpu":
            continue
        others = np.delete(np.arange(len(cluster)), i)
        given = problem.transfer_table
        for into, costs in ((False, send), (True, receive)):
            if given is not None:
                rows = given[:, others, i] if into else given[:, i, others]
                for m, key in enumerate(keys):
                    costs[m, c] = share * rows[found[key]].sum(axis=0).min()
                continue
            rules = cluster.rule_of[others, i] if into else cluster.rule_of[i, others]
            links = [cluster.links[r] for r in np.unique(rules[rules >= 0]).tolist()]
            each = [number * link.latency_s + size / link.bandwidth_bytes_per_s for link in links]
            costs[:, c] = share * np.min(each, axis=0) if each else np.inf
    return Messages(np.array([key[0] for key in keys], dtype=np.int32), reader_ptr, reader, send, receive)
