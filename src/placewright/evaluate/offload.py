"""The latency of a split into calls, and what it breaks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from placewright.errors import InvalidInput
from placewright.evaluate.evaluation import DeviceUse, Evaluation, Load
from placewright.graph import RESIDENT_PARTS
from placewright.offloads import offload_of, offloads_of
from placewright.plan import Schedule
from placewright.problem import Problem
from placewright.units import format_bytes

__all__ = ["evaluate_offload", "fewest_calls", "numbered_calls"]


def fewest_calls(problem: Problem, device_of: npt.ArrayLike) -> npt.NDArray[np.int32]:
    """(n,) calls of a placement, as few on each accelerator as paths that leave it and come back allow.

    An operator's call is the largest number of times that a path to it has come back to its device: what the published
    program does with a split that is not contiguous. On CPUs 0.
    """
    o, device = offloads_of(problem), np.asarray(device_of, dtype=np.int32)
    calls = np.zeros(len(device), dtype=np.int32)
    for i in o.accelerator.tolist():
        level = np.zeros(len(device), dtype=np.int32)
        for v in range(len(device)):
            mine = device[v] == i
            makers = o.producer[o.read[o.read_ptr[v] : o.read_ptr[v + 1]]]
            here = [int(level[u]) + int(mine and device[u] != i and level[u] > 0) for u in makers.tolist()]
            level[v] = max([int(mine), *here])
            if mine:
                calls[v] = level[v] - 1
    return calls


def numbered_calls(
    problem: Problem, device_of: npt.ArrayLike, call_of: npt.ArrayLike | None = None
) -> npt.NDArray[np.int32]:
    """(n,) calls as a plan states them: those of a device 0, 1, ... in order, 0 on CPUs; by default the fewest."""
    device = np.asarray(device_of, dtype=np.int32)
    if call_of is None:
        return fewest_calls(problem, device)
    given, calls = np.asarray(call_of, dtype=np.int32), np.zeros(len(device), dtype=np.int32)
    for i in offloads_of(problem).accelerator.tolist():
        calls[device == i] = np.unique(given[device == i], return_inverse=True)[1]
    return calls


@dataclass(frozen=True)
class _Call:
    device: int
    accelerator: int
    members: tuple[int, ...]
    enters: tuple[int, ...]
    leaves: tuple[int, ...]
    load: Load


def evaluate_offload(problem: Problem, device_of: npt.ArrayLike, *, call_of: npt.ArrayLike | None = None) -> Evaluation:
    """Start everything as early as it can; see :func:`placewright.evaluate.evaluate`."""
    n, D = problem.times.processing_s.shape
    device = np.ascontiguousarray(device_of, dtype=np.int32)
    if device.shape != (n,) or (n and not (device.min() >= 0 and device.max() < D)):
        raise InvalidInput(f"a placement is one device index below {D} for each of {n} operators; got {device.shape}")
    call = fewest_calls(problem, device) if call_of is None else np.asarray(call_of, dtype=np.int32)
    if call.shape != (n,):
        raise InvalidInput(f"a split gives one call for each of {n} operators; got {call.shape}")
    calls = _calls(problem, device, call)
    start, finish, stuck = _times(problem, device, calls)
    schedule = Schedule(start, finish)
    value = schedule.makespan_s
    uses = _uses(problem, device, calls)
    violations = [
        *_wrong_devices(problem, device),
        *_too_many(problem, calls),
        *stuck,
        *(
            f"device {use.name!r} needs {format_bytes(use.memory_bytes)} and has {format_bytes(use.limit_bytes)}; "
            "place less on it or raise its memory"
            for i, use in enumerate(uses)
            if use.limit_bytes is not None
            and use.memory_bytes > use.limit_bytes
            and problem.cluster.devices[i].kind != "cpu"
        ),
    ]
    return Evaluation(float(value), schedule, uses, tuple(violations))


def _calls(problem: Problem, device: npt.NDArray[np.int32], call: npt.NDArray[np.int32]) -> list[_Call]:
    """All calls, those of a device in their order."""
    o = offloads_of(problem)
    place = {int(i): a for a, i in enumerate(o.accelerator)}
    ram = len(place)
    members: dict[tuple[int, int], list[int]] = {}
    for v, i in enumerate(device.tolist()):
        if i in place:
            members.setdefault((i, int(call[v])), []).append(v)
    made = []
    for (i, _), inside in sorted(members.items()):
        within, a = set(inside), place[i]
        enters = sorted({int(t) for v in inside for t in o.read[o.read_ptr[v] : o.read_ptr[v + 1]]})
        enters = [t for t in enters if int(o.producer[t]) not in within]
        in_s = sum((float(o.in_from_s[t, a, place.get(int(device[o.producer[t]]), ram)]) for t in enters), 0.0)
        leaves, out_s = [], 0.0
        for t in (t for v in inside for t in range(o.made_ptr[v], o.made_ptr[v + 1])):
            readers = o.reader[o.reader_ptr[t] : o.reader_ptr[t + 1]].tolist()
            to = [float(o.out_to_s[t, a, place.get(int(device[r]), ram)]) for r in readers if r not in within]
            if to:
                leaves.append(t)
                out_s += max(to)
        compute = sum(float(problem.times.processing_s[v, i]) for v in inside)
        load = Load(compute, in_s, out_s, 0.0, in_s + compute + out_s)
        made.append(_Call(i, a, tuple(inside), tuple(enters), tuple(leaves), load))
    return made


def _times(
    problem: Problem, device: npt.NDArray[np.int32], calls: list[_Call]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], list[str]]:
    """Find starts and finishes of operators, those of a call together, and which calls wait for each other."""
    import rustworkx

    n = len(device)
    node = np.arange(n)
    for k, c in enumerate(calls):
        node[list(c.members)] = n + k
    edges = {(int(node[u]), int(node[v])) for u, v in _read_pairs(problem) if node[u] != node[v]}
    edges |= {(n + k, n + k + 1) for k in range(len(calls) - 1) if calls[k].device == calls[k + 1].device}
    graph: rustworkx.PyDiGraph[int, None] = rustworkx.PyDiGraph(multigraph=False)
    graph.add_nodes_from(range(n + len(calls)))
    graph.add_edges_from_no_data(sorted(edges))
    start, finish = np.full(n, np.inf), np.full(n, np.inf)
    cycle = [a for a, _ in rustworkx.digraph_find_cycle(graph)]
    if cycle:
        where = dict.fromkeys(problem.cluster.devices[calls[x - n].device].name for x in cycle if x >= n)
        names = ", ".join(map(repr, where))
        return (
            start,
            finish,
            [f"calls of {names} wait for each other: a path leaves one and returns; split it there"],
        )
    ends = np.zeros(n + len(calls))
    before: dict[int, list[int]] = {}
    for a, b in edges:
        before.setdefault(b, []).append(a)
    for x in rustworkx.topological_sort(graph):
        begins = max((float(ends[a]) for a in before.get(x, [])), default=0.0)
        if x >= n:
            inside = list(calls[x - n].members)
            ends[x] = begins + calls[x - n].load.load_s
            start[inside], finish[inside] = begins, ends[x]
        elif node[x] == x:
            ends[x] = begins + float(problem.times.processing_s[x, device[x]])
            start[x], finish[x] = begins, ends[x]
    return start, finish, []


def _read_pairs(problem: Problem) -> Iterator[tuple[int, int]]:
    for t in problem.graph.tensors:
        for v in t.readers:
            yield t.producer, v


def _uses(problem: Problem, device: npt.NDArray[np.int32], calls: list[_Call]) -> tuple[DeviceUse, ...]:
    uses = []
    sizes = [t.size_bytes for t in problem.graph.tensors if t.readers]
    for i, d in enumerate(problem.cluster.devices):
        here = np.flatnonzero(device == i).tolist()
        mine = [c for c in calls if c.device == i]
        busy = sum(float(problem.times.processing_s[v, i]) for v in here)
        uses.append(
            DeviceUse(
                d.name,
                len(here),
                busy,
                sum(sizes[t] for c in mine for t in c.leaves),
                sum(sizes[t] for c in mine for t in c.enters),
                activation_bytes=0,
                limit_bytes=None if d.memory_bytes is None else d.memory_bytes - d.reserve_bytes,
                loads=tuple(c.load for c in mine),
                **dict(zip(RESIDENT_PARTS, problem.resident_parts[:, here].sum(axis=1).tolist(), strict=True)),
            )
        )
    return tuple(uses)


def _wrong_devices(problem: Problem, device: npt.NDArray[np.int32]) -> Iterator[str]:
    graph, devices = problem.graph, problem.cluster.devices
    for members in graph.colocation:
        places = {-1 if devices[device[v]].kind == "cpu" else int(device[v]) for v in members}
        if len(places) > 1:
            names = ", ".join(repr(graph.operators[v].name) for v in members[:4])
            yield f"operators {names} must share an accelerator or all be on CPUs, and don't; place them together"
    for v in np.flatnonzero(~problem.allowed[np.arange(len(device)), device]).tolist():
        yield (
            f"operator {graph.operators[v].name!r} may not run on {devices[device[v]].name!r}: "
            "no finite time there, or a pin, forbid or colocation excludes it"
        )


def _too_many(problem: Problem, calls: list[_Call]) -> Iterator[str]:
    most, devices = offload_of(problem).calls, problem.cluster.devices
    for i, d in enumerate(devices):
        count = sum(c.device == i for c in calls)
        if most is not None and count > most:
            yield f"device {d.name!r} makes {count} calls, and {most} are allowed; raise --calls or split otherwise"
    for c in calls:
        if not np.isfinite(c.load.in_s + c.load.out_s):
            name = devices[c.device].name
            yield f"a call of {name!r} needs a tensor that no link brings; add a link or place it elsewhere"
