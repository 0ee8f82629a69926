"""What the exact max-load models decide on: groups of units, and nets, the tensors with the same ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from placewright.loads import Loads, loads_of, objective_of
from placewright.objective import load_rows
from placewright.problem import Problem

__all__ = ["Groups", "Net", "groups_of", "nets_of", "unreachable"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Groups:
    """Units that are placed together: blocks under contiguity and convexity, else single units.

    Attributes
    ----------
    of_unit : (U,) int32
    compute_s : (P, G, D) float64
        ``inf`` where the group may not be.
    resident : (G,) float64
        Bytes.
    edges : tuple of (int, int)
        Edges between groups that contiguity or convexity is about, ascending; none where any placement will do.
    bound : (D,) bool
        Devices that contiguity binds.
    """

    of_unit: Ints
    compute_s: Floats
    resident: Floats
    edges: tuple[tuple[int, int], ...]
    bound: Bools

    def __len__(self) -> int:
        return len(self.resident)


@dataclass(frozen=True, eq=False)
class Net:
    """Tensors of one pass that the same groups read.

    Attributes
    ----------
    producer : int
        Group; of a ``symmetric`` net just one of its ends.
    readers : tuple of int
        Groups, ascending, without the producer.
    phase : int
    leaves_s, enters_s : (D,) float64
        What device i pays when the net leaves it, or enters it.
    pair_s : (D, D) float64 or None
        Instead of both, where links differ by pair.
    channel_s : (D, D) float64 or None
        What channels see.
    symmetric : bool
        Whether leaving and entering cost the same, so that the ends alone matter.
    """

    producer: int
    readers: tuple[int, ...]
    phase: int
    leaves_s: Floats
    enters_s: Floats
    pair_s: Floats | None = None
    channel_s: Floats | None = None
    symmetric: bool = False


def groups_of(problem: Problem) -> Groups:
    """Return the groups of a max-load problem."""
    a, objective = loads_of(problem), objective_of(problem)
    bound = a.pays | objective.contiguous_cpus
    of_unit = np.arange(a.n_units, dtype=np.int32) if objective.contiguity == "any" else a.block_of
    n = int(of_unit.max()) + 1
    compute = np.zeros((a.compute_s.shape[0], n, len(a.pays)))
    for k, times in enumerate(a.compute_s):
        np.add.at(compute[k], of_unit, times)
    ends = zip(of_unit[a.order_tail].tolist(), of_unit[a.order_head].tolist(), strict=True)
    edges = sorted({(s, t) for s, t in ends if s != t}) if objective.contiguity != "any" else []
    resident = np.bincount(of_unit, weights=a.resident, minlength=n).astype(np.float64)
    return Groups(of_unit, compute, resident, tuple(edges), bound)


def nets_of(problem: Problem, groups: Groups) -> list[Net]:
    """Return the nets between groups, those that cost nothing left out."""
    a, objective = loads_of(problem), objective_of(problem)
    alike = all(enters == leaves for _, enters, leaves in load_rows(objective))
    may_merge = a.separable and not a.n_channels and alike
    found: dict[tuple[object, ...], Net] = {}
    for u in range(len(a.producer)):
        producer = int(groups.of_unit[a.producer[u]])
        readers = _readers(a, groups, u, producer)
        if not readers:
            continue
        phase = int(a.phase[u])
        pair = None if a.separable else np.where(a.pays[:, None] | a.pays[None, :], a.pair_s[u], 0.0)
        channel = a.channel_s[u] if a.n_channels else None
        leaves, enters = a.send_s[u], a.receive_s[u]
        if channel is None and pair is None and not leaves.any() and not enters.any():
            continue
        symmetric = may_merge and np.array_equal(leaves, enters)
        key: tuple[object, ...] = (producer, readers, phase)
        if symmetric:
            key = ("symmetric", tuple(sorted((producer, *readers))), phase)
        elif not a.separable:
            key = (u,)
        if key in found:
            old = found[key]
            leaves, enters = leaves + old.leaves_s, enters + old.enters_s
            if channel is not None and old.channel_s is not None:
                channel = channel + old.channel_s
            producer, readers = old.producer, old.readers
        found[key] = Net(producer, readers, phase, leaves, enters, pair, channel, symmetric)
    return list(found.values())


def _readers(a: Loads, groups: Groups, message: int, producer: int) -> tuple[int, ...]:
    rows = groups.of_unit[a.reader[a.reader_ptr[message] : a.reader_ptr[message + 1]]]
    return tuple(sorted(set(rows.tolist()) - {producer}))


def unreachable(problem: Problem, groups: Groups) -> Iterator[tuple[int, tuple[int, ...], Bools]]:
    """Yield (producer, readers, (D, D) pairs of devices without a link) wherever a tensor could need an absent link."""
    table, unit_of = problem.times.transfer_s, problem.graph.unit_of
    D = len(problem.cluster)
    apart = ~np.eye(D, dtype=np.bool_)
    absent = ~np.isfinite(problem.cluster.latency_s) if table is None else ~np.isfinite(table).all(axis=0)
    if not (absent & apart).any():
        return
    for u, tensor in enumerate(problem.graph.tensors):
        producer = int(groups.of_unit[unit_of[tensor.producer]])
        readers = tuple(sorted({int(groups.of_unit[unit_of[v]]) for v in tensor.readers} - {producer}))
        missing = absent & apart if table is None else ~np.isfinite(table[u]) & apart
        if readers and missing.any():
            yield producer, readers, missing
