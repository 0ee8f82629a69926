"""The loads of a placement in steady state, and what it breaks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from placewright.evaluate.evaluation import ChannelUse, Evaluation, Load
from placewright.evaluate.makespan import evaluate_makespan
from placewright.loads import loads_of, objective_of, order_blocks, order_edges
from placewright.objective import MaxLoad, Throughput, load_rows
from placewright.plan import Schedule
from placewright.problem import Problem
from placewright.units import format_bytes

__all__ = ["evaluate_max_load", "load_of", "wrong_order"]


def evaluate_max_load(
    problem: Problem,
    device_of: npt.ArrayLike,
    *,
    order: npt.ArrayLike | None = None,
    schedule: Schedule | None = None,
    replicas: Sequence[Sequence[int]] = (),
) -> Evaluation:
    """Compute the loads, their maximum, contiguity and memory; see :func:`placewright.evaluate.evaluate`."""
    objective = objective_of(problem)
    passed = evaluate_makespan(problem, device_of, order=order, schedule=schedule, activations=False)
    device = np.ascontiguousarray(device_of, dtype=np.int32)
    stage_of = _stages(problem, replicas)
    loads = _loads(problem, device, stage_of)
    channels = _channel_loads(problem, device, stage_of)
    uses = []
    for i, use in enumerate(passed.devices):
        first = stage_of.get(i, (i,))[0]
        if first != i:  # a copy holds and does what the first device of its stage does
            use = replace(passed.devices[first], name=use.name, limit_bytes=use.limit_bytes)
        uses.append(replace(use, busy_s=sum(load.compute_s for load in loads[i]), loads=loads[i]))
    peaks = [
        max([row[k].load_s for row in loads] + [channel.load_s[k] for channel in channels], default=0.0)
        for k in range(len(loads[0]))
    ]
    violations = [
        *passed.violations,
        *_wrong_replicas(problem, device, replicas),
        *_copies_over_memory(problem, device, stage_of),
        *wrong_order(problem, objective, device),
    ]
    return Evaluation(float(sum(peaks)), passed.schedule, tuple(uses), tuple(violations), tuple(channels))


def _stages(problem: Problem, replicas: Sequence[Sequence[int]]) -> dict[int, tuple[int, ...]]:
    """Map each device of a replicated stage to all of its devices."""
    D = len(problem.cluster)
    return {i: tuple(stage) for stage in replicas if all(0 <= j < D for j in stage) for i in stage}


def _loads(
    problem: Problem, device: npt.NDArray[np.int32], stage_of: dict[int, tuple[int, ...]]
) -> list[tuple[Load, ...]]:
    objective, D = objective_of(problem), len(problem.cluster)
    operators, passes = problem.graph.operators, 2 if objective.training == "separate" else 1
    compute, enters, leaves = (np.zeros((passes, D)) for _ in range(3))
    weights = np.zeros(D)
    for v, i in enumerate(device.tolist()):
        compute[min(int(operators[v].backward), passes - 1), i] += problem.times.processing_s[v, i]
        weights[i] += operators[v].weight_bytes
    for u, tensor in enumerate(problem.graph.tensors):
        k = min(int(operators[tensor.producer].backward), passes - 1)
        home = int(device[tensor.producer])
        targets = sorted({int(device[v]) for v in tensor.readers} - {home})
        for j in targets:
            enters[k, j] += problem.transfer_s(u, home, j)
        leaves[k, home] += max((problem.transfer_s(u, home, j) for j in targets), default=0.0)
    syncs = any(v.backward for v in operators)
    rows: list[tuple[Load, ...]] = []
    for i, d in enumerate(problem.cluster.devices):
        stage = stage_of.get(i, (i,))
        first, r = stage[0], len(stage)
        row = []
        for k in range(passes):
            sync = 0.0
            if r > 1 and syncs and k == passes - 1:
                per_byte = float(loads_of(problem).sync_s_per_byte[first])
                sync = 2 * (r - 1) / r * float(weights[first]) * per_byte / objective.sync_period
            busy, enter, leave = (float(table[k, first]) for table in (compute, enters, leaves))
            if d.kind == "cpu":
                enter, leave = 0.0, 0.0
            load = load_of(objective, busy, enter, leave) / r + sync
            row.append(Load(busy / r, enter / r, leave / r, sync, load))
        rows.append(tuple(row))
    return rows


def load_of(objective: MaxLoad | Throughput, compute: float, enters: float, leaves: float) -> float:
    """Load of the three parts."""
    parts, load = (compute, enters, leaves), 0.0
    for row in load_rows(objective):
        total = 0.0
        for factor, part in zip(row, parts, strict=True):
            total += factor * part if factor else 0.0  # a missing link takes infinitely long
        load = max(load, total)
    return load


def _channel_loads(
    problem: Problem, device: npt.NDArray[np.int32], stage_of: dict[int, tuple[int, ...]]
) -> list[ChannelUse]:
    """Seconds a sample of each channel; copies of a stage are taken to load what its first device would."""
    names = problem.cluster.channels
    passes = 2 if objective_of(problem).training == "separate" else 1
    loads = np.zeros((len(names), passes))
    for u, tensor in enumerate(problem.graph.tensors):
        k = min(int(problem.graph.operators[tensor.producer].backward), passes - 1)
        home = int(device[tensor.producer])
        for j in sorted({int(device[v]) for v in tensor.readers} - {home}):
            for channel in problem.cluster.channels_of[home, j].tolist():
                if channel >= 0:
                    loads[channel, k] += problem.transfer_s(u, home, j)
    return [ChannelUse(name, tuple(loads[c].tolist())) for c, name in enumerate(names)]


def _wrong_replicas(
    problem: Problem, device: npt.NDArray[np.int32], replicas: Sequence[Sequence[int]]
) -> Iterator[str]:
    if not replicas:
        return
    D, devices = len(problem.cluster), problem.cluster.devices
    if not objective_of(problem).replicate:
        yield "the plan replicates stages, which the objective does not allow; set replicate"
    seen: set[int] = set()
    for stage in replicas:
        if any(not 0 <= i < D for i in stage):
            yield f"a replicated stage names device {max(stage)}; there are only 0..{D - 1}"
            continue
        names = ", ".join(repr(devices[i].name) for i in stage)
        if sorted(set(stage)) != list(stage) or len(stage) < 2 or seen & set(stage):
            yield f"the replicas {names} are not two or more different devices, each in one stage, in ascending order"
        seen |= set(stage)
        if len({int(loads_of(problem).device_class[i]) for i in stage}) > 1:
            yield f"the replicas {names} are unlike; a stage is copied to devices of one kind, equally linked"
        if set(device.tolist()) & set(stage[1:]):
            yield f"operators are placed on a copy in {names}; place them on the first one"


def _copies_over_memory(
    problem: Problem, device: npt.NDArray[np.int32], stage_of: dict[int, tuple[int, ...]]
) -> Iterator[str]:
    held = np.bincount(device, weights=problem.resident_bytes, minlength=len(problem.cluster))
    for i, stage in sorted(stage_of.items()):
        d = problem.cluster.devices[i]
        if i != stage[0] and held[stage[0]] > d.capacity_bytes:
            yield (
                f"device {d.name!r} needs {format_bytes(held[stage[0]])} for its copy of a stage and has "
                f"{format_bytes(d.capacity_bytes)}; place less on it or raise its memory"
            )


def wrong_order(problem: Problem, objective: MaxLoad | Throughput, device: npt.NDArray[np.int32]) -> Iterator[str]:
    """Tell where contiguity or convexity is broken."""
    if objective.contiguity == "any":
        return
    import rustworkx

    devices, unit_of = problem.cluster.devices, problem.graph.unit_of
    place = dict(zip(unit_of, device.tolist(), strict=True))
    bound = [objective.contiguous_cpus or d.kind != "cpu" for d in devices]
    whole = objective.contiguity == "contiguous"
    remedy = "move operators between them, or allow plans that are not contiguous"
    block = order_blocks(problem.graph).tolist()
    parted = _parted_blocks(problem, place, block)
    if parted:
        yield from (f"{line}; {remedy}" for line in parted)
        return
    for each in [None] if whole else sorted({i for i in place.values() if bound[i]}):
        # Devices that are bound (all of them, or one at a time) are one node each, other blocks their own.
        node = {k: -1 - i if (bound[i] if each is None else i == each) else block[k] for k, i in place.items()}
        numbers = {name: x for x, name in enumerate(dict.fromkeys(node.values()))}
        names = list(numbers)
        quotient: rustworkx.PyDiGraph[int, None] = rustworkx.PyDiGraph(multigraph=False)
        quotient.add_nodes_from(names)
        ends = {(numbers[node[a]], numbers[node[b]]) for a, b in order_edges(problem.graph)}
        quotient.add_edges_from_no_data(sorted((a, b) for a, b in ends if a != b))
        if not whole:
            stuck = [c for c in rustworkx.strongly_connected_components(quotient) if len(c) > 1]
            if any(names[x] < 0 for c in stuck for x in c):
                name = devices[-1 - min(names)].name
                yield f"device {name!r} is not convex: a path of operators leaves it and comes back; {remedy}"
            continue
        cycle = [names[a] for a, _ in rustworkx.digraph_find_cycle(quotient)]
        if cycle:
            shown = ", ".join(dict.fromkeys(repr(devices[-1 - x].name) for x in cycle if x < 0))
            yield f"the placement is not contiguous: no order of the devices ({shown}) has all edges forward; {remedy}"


def _parted_blocks(problem: Problem, place: dict[int, int], block: Sequence[int]) -> list[str]:
    """Name the cycles of units (colocation classes may make some) that don't lie on one device."""
    devices, operators = problem.cluster.devices, problem.graph.operators
    first = {k: v for v, k in reversed(list(enumerate(problem.graph.unit_of)))}
    members: dict[int, list[int]] = {}
    for k in sorted(place):
        members.setdefault(block[k], []).append(k)
    lines = []
    for units in members.values():
        used = sorted({place[k] for k in units})
        if len(used) > 1:
            shown = ", ".join(repr(operators[first[k]].name) for k in units[:8])
            where = ", ".join(repr(devices[i].name) for i in used)
            lines.append(f"the colocation classes of {shown} read each other's tensors and are on {where}, not on one")
    return lines
