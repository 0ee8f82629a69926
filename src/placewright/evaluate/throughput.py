"""The loads of several copies of a network that run side by side, and what they break."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from placewright.errors import InvalidInput
from placewright.evaluate.evaluation import ChannelUse, DeviceUse, Evaluation, Load
from placewright.evaluate.makespan import evaluate_makespan
from placewright.evaluate.max_load import load_of, wrong_order
from placewright.graph import RESIDENT_PARTS
from placewright.one_copy import sync_s_per_byte, throughput_of
from placewright.plan import Copy, Schedule
from placewright.problem import Problem
from placewright.units import format_bytes

__all__ = ["CopyParts", "copy_violations", "evaluate_throughput", "parts_of", "sync_of"]

Ints: TypeAlias = npt.NDArray[np.int32]
Floats: TypeAlias = npt.NDArray[np.float64]

SHARES_WITHIN = 1e-9
"""How far from 1 the sum of the shares may be."""


def evaluate_throughput(
    problem: Problem,
    device_of: npt.ArrayLike,
    *,
    order: npt.ArrayLike | None = None,
    schedule: Schedule | None = None,
    copies: Sequence[Copy] = (),
) -> Evaluation:
    """Compute the loads over all copies, their maximum, and memory; see :func:`placewright.evaluate.evaluate`."""
    passed = evaluate_makespan(problem, device_of, order=order, schedule=schedule, activations=False)
    first = np.ascontiguousarray(device_of, dtype=np.int32)
    copies = copies or (Copy(first, 1.0),)
    _check_shapes(problem, first, copies)
    held = _held(problem, copies)
    sums = _summed(problem, copies)
    sync, unlinked = sync_of(problem, held)
    uses = _uses(problem, sums, sync, held)
    channels = tuple(
        ChannelUse(name, (load,)) for name, load in zip(problem.cluster.channels, sums.channels.tolist(), strict=True)
    )
    value = max([use.load_s for use in uses] + [channel.load_s[0] for channel in channels], default=0.0)
    violations = [
        *_wrong_shares(copies),
        *copy_violations(problem, copies),
        *unlinked,
        *_over_memory(uses),
    ]
    return Evaluation(float(value), passed.schedule, uses, tuple(violations), channels)


def _check_shapes(problem: Problem, first: Ints, copies: Sequence[Copy]) -> None:
    n, D = problem.times.processing_s.shape
    for k, copy in enumerate(copies, 1):
        device = copy.device_of
        if device.shape != (n,) or (n and not (device.min() >= 0 and device.max() < D)):
            raise InvalidInput(
                f"copy {k} of the network is one device index below {D} for each of {n} operators; got {device.shape}"
            )
    if not np.array_equal(copies[0].device_of, first):
        raise InvalidInput("the placement is not that of the first copy; give the same for both")


class CopyParts(NamedTuple):
    """Seconds a sample by device of computing, in and out (0 on CPUs), by channel; and bytes by device."""

    compute: Floats
    enters: Floats
    leaves: Floats
    channels: Floats
    sent_bytes: Floats
    received_bytes: Floats


class _Reads(NamedTuple):
    """Tensor, reader and maker of each read; producer and bytes of each tensor; and which devices pay for transfers."""

    tensor: npt.NDArray[np.int64]
    reader: npt.NDArray[np.int64]
    maker: npt.NDArray[np.int64]
    producer: npt.NDArray[np.int64]
    size: Floats
    pays: npt.NDArray[np.bool_]


_made: WeakKeyDictionary[Problem, _Reads] = WeakKeyDictionary()


def _reads_of(problem: Problem) -> _Reads:
    if problem not in _made:
        tensors = problem.graph.tensors
        producer = np.array([t.producer for t in tensors], dtype=np.int64)
        reads = [(u, v) for u, t in enumerate(tensors) for v in t.readers]
        tensor, reader = (np.array([r[k] for r in reads], dtype=np.int64) for k in (0, 1))
        size = np.array([t.size_bytes for t in tensors], dtype=np.float64)
        pays = np.array([d.kind != "cpu" for d in problem.cluster.devices], dtype=np.bool_)
        _made[problem] = _Reads(tensor, reader, producer[tensor], producer, size, pays)
    return _made[problem]


def _summed(problem: Problem, copies: Sequence[Copy]) -> CopyParts:
    parts = [[copy.share * part for part in parts_of(problem, copy.device_of)] for copy in copies]
    return CopyParts(*(sum(column[1:], column[0]) for column in zip(*parts, strict=True)))


def parts_of(problem: Problem, device: Ints) -> CopyParts:
    """Seconds a sample of the parts of the loads, were all samples a copy's."""
    n, D = problem.times.processing_s.shape
    cluster, reads = problem.cluster, _reads_of(problem)
    crossing = device[reads.reader] != device[reads.maker]
    pairs = np.unique(reads.tensor[crossing] * D + device[reads.reader[crossing]])
    u, target = pairs // D, pairs % D
    home = device[reads.producer[u]].astype(np.int64)
    if problem.transfer_table is not None:
        seconds = problem.transfer_table[u, home, target]
    else:
        seconds = cluster.latency_s[home, target] + reads.size[u] * cluster.seconds_per_byte[home, target]
    slowest = np.zeros(len(reads.producer))
    np.maximum.at(slowest, u, seconds)
    channels = np.zeros(len(cluster.channels))
    for channel in cluster.channels_of[home, target].T if len(channels) else ():
        on = channel >= 0
        channels += _by_device(channel[on], seconds[on], len(channels))
    return CopyParts(
        _by_device(device, problem.times.processing_s[np.arange(n), device], D),
        np.where(reads.pays, _by_device(target, seconds, D), 0.0),
        np.where(reads.pays, _by_device(device[reads.producer], slowest, D), 0.0),
        channels,
        _by_device(home, reads.size[u], D),
        _by_device(target, reads.size[u], D),
    )


def _by_device(device: npt.NDArray[np.integer], amounts: Floats, D: int) -> Floats:
    return np.bincount(device, weights=amounts, minlength=D).astype(np.float64)


def _held(problem: Problem, copies: Sequence[Copy]) -> npt.NDArray[np.bool_]:
    """(n, D) whether a device runs an operator in some copy."""
    n, D = problem.times.processing_s.shape
    held = np.zeros((n, D), dtype=np.bool_)
    for copy in copies:
        held[np.arange(n), copy.device_of] = True
    return held


def sync_of(problem: Problem, held: npt.NDArray[np.bool_]) -> tuple[Floats, list[str]]:
    """(D,) seconds a sample of synchronisation, and which operators can't be synchronised."""
    operators, sync = problem.graph.operators, np.zeros(held.shape[1])
    unlinked: list[str] = []
    if not any(v.backward for v in operators):
        return sync, unlinked
    weights = np.array([v.weight_bytes for v in operators], dtype=np.float64)
    several = np.flatnonzero((held.sum(axis=1) > 1) & (weights > 0.0))
    rows, first, group = np.unique(held[several], axis=0, return_index=True, return_inverse=True)
    total = np.bincount(group.ravel(), weights=weights[several], minlength=len(rows))
    period = throughput_of(problem).sync_period
    for row, some, weight in zip(rows, several[first].tolist(), total.tolist(), strict=True):
        devices = np.flatnonzero(row)
        r, per_byte = len(devices), sync_s_per_byte(problem, devices)
        if not per_byte < math.inf:
            names = ", ".join(repr(problem.cluster.devices[i].name) for i in devices[:8])
            unlinked.append(
                f"devices {names} hold copies of {operators[some].name!r}, and no link joins each two of them to "
                "synchronise its weights; add links or give the sync bandwidth (--sync-bandwidth '10 GB/s')"
            )
        sync[devices] += 2 * (r - 1) / r * weight * per_byte / period
    return sync, unlinked


def _uses(problem: Problem, sums: CopyParts, sync: Floats, held: npt.NDArray[np.bool_]) -> tuple[DeviceUse, ...]:
    objective, parts = throughput_of(problem), problem.resident_parts @ held
    count = held.sum(axis=0)
    uses = []
    for i, d in enumerate(problem.cluster.devices):
        busy, enter, leave = (float(table[i]) for table in (sums.compute, sums.enters, sums.leaves))
        load = load_of(objective, busy, enter, leave) + float(sync[i])
        uses.append(
            DeviceUse(
                d.name,
                int(count[i]),
                busy,
                round(float(sums.sent_bytes[i])),
                round(float(sums.received_bytes[i])),
                activation_bytes=0,
                limit_bytes=None if d.memory_bytes is None else d.memory_bytes - d.reserve_bytes,
                loads=(Load(busy, enter, leave, float(sync[i]), load),),
                **dict(zip(RESIDENT_PARTS, parts[:, i].tolist(), strict=True)),
            )
        )
    return tuple(uses)


def _wrong_shares(copies: Sequence[Copy]) -> Iterator[str]:
    for k, copy in enumerate(copies, 1):
        if not 0.0 < copy.share < math.inf:
            yield f"copy {k} has the share {copy.share}; a copy takes part of the samples, or leave it out"
    total = sum(copy.share for copy in copies)
    if not abs(total - 1.0) <= SHARES_WITHIN:
        yield f"the shares of the {len(copies)} copies sum to {total}; all samples together are 1"


def copy_violations(problem: Problem, copies: Sequence[Copy]) -> Iterator[str]:
    """List what a placement of the network may not do, of every copy; with its number where there are several."""
    graph, devices, n = problem.graph, problem.cluster.devices, len(problem.graph)
    reads = _reads_of(problem)
    objective = throughput_of(problem)
    in_order: set[bytes] = set()
    unit_of = np.array(graph.unit_of, dtype=np.int64)
    leader = np.unique(unit_of, return_index=True)[1][unit_of]
    for k, copy in enumerate(copies, 1):
        which, device = f"copy {k}: " if len(copies) > 1 else "", copy.device_of
        for members in graph.colocation if (device != device[leader]).any() else ():
            if (device[list(members)] != device[members[0]]).any():
                names = ", ".join(repr(graph.operators[v].name) for v in members[:4])
                yield (
                    f"{which}operators {names} must share a device (tied weights or aliases) and don't; place them "
                    "together"
                )
        for v in np.flatnonzero(~problem.allowed[np.arange(n), device]).tolist():
            yield (
                f"{which}operator {graph.operators[v].name!r} may not run on {devices[device[v]].name!r}: "
                "no finite time there, or a pin, forbid or colocation excludes it"
            )
        source, target = device[reads.maker], device[reads.reader]
        if problem.times.transfer_s is not None:
            apart = ~np.isfinite(problem.times.transfer_s[reads.tensor, source, target]) & (source != target)
        else:
            apart = (problem.cluster.rule_of[source, target] < 0) & (source != target)
        for e in np.flatnonzero(apart).tolist():
            yield (
                f"{which}tensor {graph.tensors[reads.tensor[e]].name!r} must go from {devices[source[e]].name!r} to "
                f"{devices[target[e]].name!r}, which no link joins; add a link or place its reader elsewhere"
            )
        pattern = _pattern(problem, device)
        if pattern not in in_order:
            broken = list(wrong_order(problem, objective, device))
            yield from (which + line for line in broken)
            if not broken:
                in_order.add(pattern)


def _pattern(problem: Problem, device: Ints) -> bytes:
    """Reduce a placement to what contiguity is about: which operators share a device, and which of these are CPUs."""
    used, first, number = np.unique(device, return_index=True, return_inverse=True)
    place = np.argsort(np.argsort(first))
    cpus = [problem.cluster.devices[i].kind == "cpu" for i in used[np.argsort(first)].tolist()]
    return place[number.ravel()].astype(np.int32).tobytes() + bytes(cpus)


def _over_memory(uses: Sequence[DeviceUse]) -> Iterator[str]:
    for use in uses:
        if use.limit_bytes is not None and use.memory_bytes > use.limit_bytes:
            yield (
                f"device {use.name!r} needs {format_bytes(use.memory_bytes)} ({use.memory_listing}) for all that it "
                f"runs and has {format_bytes(use.limit_bytes)}; place less on it or raise its memory"
            )
