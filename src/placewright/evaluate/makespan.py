"""The makespan of a placement: list scheduling in an order of operators, or the exact retiming of a schedule."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright._kernel.memory import peak_activations
from placewright._kernel.schedule import Workspace, decode, retime, upward_rank, workspace
from placewright.arrays import arrays_of
from placewright.errors import InvalidInput
from placewright.evaluate.evaluation import DeviceUse, Evaluation
from placewright.plan import Schedule, Transfer
from placewright.problem import Problem
from placewright.units import format_bytes

__all__ = ["evaluate_makespan"]


def evaluate_makespan(
    problem: Problem,
    device_of: npt.ArrayLike,
    *,
    order: npt.ArrayLike | None = None,
    schedule: Schedule | None = None,
    activations: bool = True,
) -> Evaluation:
    """Schedule a placement and measure it; see :func:`placewright.evaluate.evaluate`.

    ``activations=False`` leaves live tensors out of the memory.
    """
    n, D = problem.times.processing_s.shape
    device = np.ascontiguousarray(device_of, dtype=np.int32)
    if device.shape != (n,) or (n and not (device.min() >= 0 and device.max() < D)):
        raise InvalidInput(f"a placement is one device index below {D} for each of {n} operators; got {device.shape}")
    g = arrays_of(problem).network
    w = workspace(g)
    if schedule is not None:
        value = retime(g, device, *_actions(schedule, problem), w)
    else:
        value = _best_decoding(problem, device, order, w)
    made = _schedule_in(w, problem, device)
    peak = peak_activations(g, device, arrays_of(problem).output, w) if activations else np.zeros(D)
    uses = _uses(problem, device, made, peak)
    return Evaluation(float(value), made, uses, tuple(_broken(problem, device, made, uses)))


def _best_decoding(problem: Problem, device: npt.NDArray[np.int32], order: npt.ArrayLike | None, w: Workspace) -> float:
    g = arrays_of(problem).network
    n = len(device)
    if order is None:
        rank = upward_rank(g, device)
        # The topological number breaks ties, so that zero times keep the order legal.
        sequence = np.lexsort((np.arange(n), -np.where(np.isfinite(rank), rank, np.finfo(float).max))).astype(np.int32)
    else:
        sequence = np.ascontiguousarray(order, dtype=np.int32)
    _check_order(problem, sequence)
    tail = np.zeros(n)
    by_maker = decode(g, sequence, device, False, tail, np.inf, w)
    by_reader = decode(g, sequence, device, True, tail, np.inf, w)
    return by_reader if by_reader < by_maker else float(decode(g, sequence, device, False, tail, np.inf, w))


def _check_order(problem: Problem, order: npt.NDArray[np.int32]) -> None:
    n = len(problem.graph)
    position = np.full(n, -1)
    if order.shape == (n,) and n and order.min() >= 0 and order.max() < n:
        position[order] = np.arange(n)
    if order.shape != (n,) or (position < 0).any():
        raise InvalidInput(f"an order names each of the {n} operators once")
    for t in problem.graph.tensors:
        if any(position[v] < position[t.producer] for v in t.readers):
            raise InvalidInput(f"the order puts a reader of {t.name!r} before its producer; give a topological order")


def _actions(schedule: Schedule, problem: Problem) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Operators and transfers sorted by (start, finish, topological position), which is consistent with precedence."""
    n = len(problem.graph)
    keys = [(float(schedule.start_s[v]), float(schedule.finish_s[v]), v, 0, v, -1) for v in range(n)]
    tensors = problem.graph.tensors
    keys += [(x.start_s, x.finish_s, tensors[x.tensor].producer, 1, n + x.tensor, x.target) for x in schedule.transfers]
    keys.sort()
    return np.array([k[4] for k in keys], dtype=np.int32), np.array([k[5] for k in keys], dtype=np.int32)


def _schedule_in(w: Workspace, problem: Problem, device: npt.NDArray[np.int32]) -> Schedule:
    transfers = []
    for u, tensor in enumerate(problem.graph.tensors):
        home = int(device[tensor.producer])
        for j in sorted({int(device[v]) for v in tensor.readers} - {home}):
            transfers.append(Transfer(u, home, j, float(w.sent[u, j]), float(w.arrival[u, j])))
    transfers.sort(key=lambda t: (t.start_s, t.finish_s, t.tensor, t.target))
    return Schedule(w.start, w.finish, tuple(transfers))


def _uses(
    problem: Problem, device: npt.NDArray[np.int32], schedule: Schedule, activations: npt.NDArray[np.float64]
) -> tuple[DeviceUse, ...]:
    D = len(problem.cluster)
    operators = problem.graph.operators
    finite = np.isfinite(schedule.finish_s)
    lasting = np.where(finite, schedule.finish_s, 0.0) - np.where(finite, schedule.start_s, 0.0)
    busy = np.bincount(device, weights=lasting, minlength=D)
    count = np.bincount(device, minlength=D)
    weights, cache, sent, received = ([0] * D for _ in range(4))
    for v, i in enumerate(device.tolist()):
        weights[i] += operators[v].weight_bytes
        cache[i] += operators[v].kv_cache_bytes
    for x in schedule.transfers:
        sent[x.source] += problem.graph.tensors[x.tensor].size_bytes
        received[x.target] += problem.graph.tensors[x.tensor].size_bytes
    return tuple(
        DeviceUse(
            d.name,
            int(count[i]),
            float(busy[i]),
            sent[i],
            received[i],
            weights[i],
            cache[i],
            int(activations[i]),
            None if d.memory_bytes is None else d.memory_bytes - d.reserve_bytes,
        )
        for i, d in enumerate(problem.cluster.devices)
    )


def _broken(
    problem: Problem, device: npt.NDArray[np.int32], schedule: Schedule, uses: tuple[DeviceUse, ...]
) -> list[str]:
    found = []
    graph, devices = problem.graph, problem.cluster.devices
    for members in graph.colocation:
        if len({int(device[v]) for v in members}) > 1:
            names = ", ".join(repr(graph.operators[v].name) for v in members[:4])
            found.append(
                f"operators {names} must share a device (tied weights or aliases) and don't; place them together"
            )
    for v in np.flatnonzero(~problem.allowed[np.arange(len(device)), device]).tolist():
        found.append(
            f"operator {graph.operators[v].name!r} may not run on {devices[device[v]].name!r}: "
            "no finite time there, or a pin, forbid or colocation excludes it"
        )
    for x in schedule.transfers:
        if not np.isfinite(problem.transfer_s(x.tensor, x.source, x.target)):
            found.append(
                f"tensor {graph.tensors[x.tensor].name!r} must go from {devices[x.source].name!r} to "
                f"{devices[x.target].name!r}, which no link joins; add a link or place its reader elsewhere"
            )
    for use in uses:
        if use.limit_bytes is not None and use.memory_bytes > use.limit_bytes:
            parts = (
                f"weights {format_bytes(use.weight_bytes)}, KV cache {format_bytes(use.kv_cache_bytes)}, "
                f"activations {format_bytes(use.activation_bytes)}"
            )
            found.append(
                f"device {use.name!r} needs {format_bytes(use.memory_bytes)} ({parts}) and has "
                f"{format_bytes(use.limit_bytes)}; place less on it or raise its memory"
            )
    return found
