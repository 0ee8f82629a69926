"""The makespan of a placement: list scheduling in an order of operators, or the exact retiming of a schedule."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from placewright._kernel.memory import peak_activations
from placewright._kernel.schedule import Network, Workspace, decode, retime, upward_rank, workspace
from placewright.arrays import arrays_of
from placewright.errors import InvalidInput
from placewright.evaluate.evaluation import DeviceUse, Evaluation
from placewright.graph import RESIDENT_PARTS
from placewright.plan import Schedule, Transfer
from placewright.problem import Problem
from placewright.units import format_bytes

__all__ = ["evaluate_makespan"]

Ints: TypeAlias = npt.NDArray[np.int32]
Floats: TypeAlias = npt.NDArray[np.float64]


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
    legs = _legs(g, device)
    peaks = _peaks(problem, device, w) if activations else (np.zeros(D), np.zeros(D))
    uses = _uses(problem, device, w, legs, *peaks)
    made = Schedule(w.start, w.finish, _transfers(w, device, g, legs))
    return Evaluation(float(value), made, uses, tuple(_broken(problem, device, legs, uses)))


def _best_decoding(problem: Problem, device: Ints, order: npt.ArrayLike | None, w: Workspace) -> float:
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
    by_reader = float(decode(g, sequence, device, True, tail, np.inf, w))
    by_maker = float(decode(g, sequence, device, False, tail, np.inf, w))
    return float(decode(g, sequence, device, True, tail, np.inf, w)) if by_reader < by_maker else by_maker


def _check_order(problem: Problem, order: Ints) -> None:
    n = len(problem.graph)
    position = np.full(n, -1)
    if order.shape == (n,) and n and order.min() >= 0 and order.max() < n:
        position[order] = np.arange(n)
    if order.shape != (n,) or (position < 0).any():
        raise InvalidInput(f"an order names each of the {n} operators once")
    g = arrays_of(problem).network
    tensor = _tensor_read(g)
    late = np.flatnonzero(position[g.reader] < position[g.producer[tensor]])
    if len(late):
        name = problem.graph.tensors[tensor[late[0]]].name
        raise InvalidInput(f"the order puts a reader of {name!r} before its producer; give a topological order")


def _actions(schedule: Schedule, problem: Problem) -> tuple[Ints, Ints]:
    """Operators and transfers sorted by (start, finish, topological position), which is consistent with precedence."""
    g = arrays_of(problem).network
    n, legs = len(schedule.start_s), schedule.transfers
    tensor = np.array([x.tensor for x in legs], dtype=np.int32)
    start = np.concatenate([schedule.start_s, [x.start_s for x in legs]])
    finish = np.concatenate([schedule.finish_s, [x.finish_s for x in legs]])
    position = np.concatenate([np.arange(n, dtype=np.int32), g.producer[tensor]])
    action = np.concatenate([np.arange(n, dtype=np.int32), n + tensor])
    target = np.concatenate([np.full(n, -1), [x.target for x in legs]]).astype(np.int32)
    by_time = np.lexsort((target, action, position, finish, start))
    return action[by_time], target[by_time]


def _tensor_read(g: Network) -> Ints:
    """(E,) the tensor of each read, in the order of ``g.reader``."""
    return np.repeat(np.arange(len(g.producer), dtype=np.int32), np.diff(g.reader_ptr))


def _legs(g: Network, device: Ints) -> tuple[Ints, Ints]:
    """Tensor and target of each transfer that a placement takes, ascending."""
    D = g.processing.shape[1]
    tensor, target = _tensor_read(g), device[g.reader]
    crossing = target != device[g.producer[tensor]]
    pairs = np.unique(tensor[crossing].astype(np.int64) * D + target[crossing])
    return (pairs // D).astype(np.int32), (pairs % D).astype(np.int32)


def _transfers(w: Workspace, device: Ints, g: Network, legs: tuple[Ints, Ints]) -> tuple[Transfer, ...]:
    tensor, target = legs
    start, finish = w.sent[tensor, target], w.arrival[tensor, target]
    by_time = np.lexsort((target, tensor, finish, start))
    columns = (tensor, device[g.producer[tensor]], target, start, finish)
    return tuple(map(Transfer, *(column[by_time].tolist() for column in columns)))


def _peaks(problem: Problem, device: Ints, w: Workspace) -> tuple[Floats, Floats]:
    """(D,) peak of the tensors that somebody reads or that leave, and by how much those that nobody reads raise it."""
    a = arrays_of(problem)
    peak = peak_activations(a.network, device, a.output, w)
    unread = (np.diff(a.network.reader_ptr) == 0) & ~a.output
    if not a.network.size[unread].any():
        return peak, np.zeros_like(peak)
    without = peak_activations(a.network._replace(size=np.where(unread, 0.0, a.network.size)), device, a.output, w)
    return without, peak - without


def _uses(
    problem: Problem, device: Ints, w: Workspace, legs: tuple[Ints, Ints], activations: Floats, workspaces: Floats
) -> tuple[DeviceUse, ...]:
    D, a = len(problem.cluster), arrays_of(problem)
    finite = np.isfinite(w.finish)
    lasting = np.where(finite, w.finish, 0.0) - np.where(finite, w.start, 0.0)
    busy = np.bincount(device, weights=lasting, minlength=D)
    count = np.bincount(device, minlength=D)
    sent, received = (np.zeros(D, dtype=np.int64) for _ in range(2))
    held = np.zeros((D, len(problem.resident_parts)), dtype=np.int64)
    np.add.at(held, device, problem.resident_parts.T)
    tensor, target = legs
    np.add.at(sent, device[a.network.producer[tensor]], a.size_bytes[tensor])
    np.add.at(received, target, a.size_bytes[tensor])
    return tuple(
        DeviceUse(
            d.name,
            int(count[i]),
            float(busy[i]),
            int(sent[i]),
            int(received[i]),
            activation_bytes=int(activations[i]),
            workspace_bytes=int(workspaces[i]),
            limit_bytes=None if d.memory_bytes is None else d.memory_bytes - d.reserve_bytes,
            **dict(zip(RESIDENT_PARTS, held[i].tolist(), strict=True)),
        )
        for i, d in enumerate(problem.cluster.devices)
    )


def _broken(problem: Problem, device: Ints, legs: tuple[Ints, Ints], uses: tuple[DeviceUse, ...]) -> list[str]:
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
    g, (tensor, target) = arrays_of(problem).network, legs
    source = device[g.producer[tensor]]
    seconds = g.transfer[tensor, source, target] if len(g.transfer) else g.latency[source, target]
    for k in np.flatnonzero(~np.isfinite(seconds)).tolist():
        found.append(
            f"tensor {graph.tensors[tensor[k]].name!r} must go from {devices[source[k]].name!r} to "
            f"{devices[target[k]].name!r}, which no link joins; add a link or place its reader elsewhere"
        )
    for use in uses:
        if use.limit_bytes is not None and use.memory_bytes > use.limit_bytes:
            found.append(
                f"device {use.name!r} needs {format_bytes(use.memory_bytes)} ({use.memory_listing}) and has "
                f"{format_bytes(use.limit_bytes)}; place less on it or raise its memory"
            )
    return found
