"""The checker of plans for the offload latency: calls, their order, times, memory."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property

from placewright.objective import Offload
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.verify.case import Case, allowed_places, wrong_shapes

__all__ = ["verify_offload"]

Node = tuple[int, int]
"""A call: its device and its number there; or an operator on a CPU: -1 and the operator."""


def verify_offload(problem: Problem, plan: Plan, *, tolerance: float = 1e-9) -> tuple[str, ...]:
    """Check a plan; see :func:`placewright.verify.verify`."""
    objective = problem.objective
    if not isinstance(objective, Offload):
        raise TypeError(f"the objective is {objective.name}, not offload")
    shape = [*wrong_shapes(problem, plan), *_wrong_calls(problem, plan)]
    if shape:
        return tuple(shape)
    case = _Calls(problem, plan, tolerance)
    return (
        *allowed_places(case),
        *_classes(case),
        *(["the plan replicates stages, which only max-load knows"] if plan.replicas else []),
        *(["the plan sends tensors on its own, but calls bring and take them"] if plan.schedule.transfers else []),
        *_number_of_calls(case, objective),
        *_circles(case),
        *_durations(case),
        *_starts(case),
        *_memory(case),
        *_value(case),
    )


def _wrong_calls(problem: Problem, plan: Plan) -> Iterator[str]:
    n = len(problem.graph)
    if plan.call_of is None:
        yield "the plan does not say in which calls operators run"
    elif plan.call_of.shape != (n,):
        yield f"the plan gives calls for {len(plan.call_of)} operators, but the problem has {n}"


class _Calls(Case):
    """A case and its nodes: calls, and operators on CPUs, each of which runs alone."""

    @cached_property
    def cores(self) -> list[int]:
        """CPU devices: the pool."""
        return [i for i, d in enumerate(self.problem.cluster.devices) if d.kind == "cpu"]

    @cached_property
    def node_of(self) -> list[Node]:
        """Node of each operator."""
        calls = [] if self.plan.call_of is None else [int(c) for c in self.plan.call_of]
        cores = set(self.cores)
        return [(-1, v) if i in cores else (i, calls[v]) for v, i in enumerate(self.device_of)]

    @cached_property
    def members(self) -> dict[Node, list[int]]:
        """Operators of each node."""
        found: dict[Node, list[int]] = defaultdict(list)
        for v, node in enumerate(self.node_of):
            found[node].append(v)
        return dict(found)

    @cached_property
    def calls(self) -> list[Node]:
        """All calls, those of one device in their order."""
        return sorted(node for node in self.members if node[0] >= 0)

    @cached_property
    def previous(self) -> dict[Node, Node]:
        """The call that a device makes before a call, where there is one."""
        pairs = zip(self.calls, self.calls[1:], strict=False)
        return {late: early for early, late in pairs if early[0] == late[0]}

    @cached_property
    def crossing(self) -> list[tuple[int, list[Node]]]:
        """Tensors that leave their node, each with the nodes that it enters."""
        rows = []
        for u, tensor in enumerate(self.problem.graph.tensors):
            readers = {self.node_of[v] for v in tensor.readers} - {self.node_of[tensor.producer]}
            if readers:
                rows.append((u, sorted(readers)))
        return rows

    @cached_property
    def parts(self) -> dict[Node, list[float]]:
        """Seconds of each call: transfers in, computing, transfers out."""
        rows = {call: [0.0, 0.0, 0.0] for call in self.calls}
        for call in self.calls:
            rows[call][1] = sum(float(self.problem.times.processing_s[v, call[0]]) for v in self.members[call])
        for u, readers in self.crossing:
            home = self.node_of[self.problem.graph.tensors[u].producer]
            for node in readers:
                if node in rows:
                    rows[node][0] += self.brought(u, home[0], node[0])
            if home in rows:
                rows[home][2] += max(self.taken(u, home[0], node[0]) for node in readers)
        return rows

    def brought(self, u: int, source: int, target: int) -> float:
        """Seconds in which a tensor enters a call from a device, or from RAM: a CPU, or a call of the same device."""
        if source not in (-1, target):
            return self.links.seconds(self.problem, u, source, target)
        if self.cores:
            return self.links.seconds(self.problem, u, self.cores[0], target)
        return min((self.links.seconds(self.problem, u, j, target) for j in self.others(target)), default=0.0)

    def taken(self, u: int, source: int, target: int) -> float:
        """Seconds in which a tensor leaves a call for a device, or for RAM."""
        if target not in (-1, source):
            return self.links.seconds(self.problem, u, source, target)
        if self.cores:
            return self.links.seconds(self.problem, u, source, self.cores[0])
        return min((self.links.seconds(self.problem, u, source, j) for j in self.others(source)), default=0.0)

    def others(self, i: int) -> Iterator[int]:
        """All devices but one."""
        return (j for j in range(len(self.problem.cluster)) if j != i)

    def node(self, node: Node) -> str:
        """Name a node in a line."""
        if node[0] < 0:
            return self.operator(node[1])
        number = [c for c in self.calls if c[0] == node[0]].index(node)
        return f"call {number + 1} of {self.device(node[0])}"


def _classes(case: _Calls) -> Iterator[str]:
    """Each colocation class is on CPUs, or on one accelerator."""
    for members in case.problem.graph.colocation:
        if len({-1 if case.node_of[v][0] < 0 else case.device_of[v] for v in members}) > 1:
            where = ", ".join(case.device(i) for i in sorted({case.device_of[v] for v in members}))
            yield f"{case.operator(members[0])} and its colocation class of {len(members)} are on {where}"


def _number_of_calls(case: _Calls, objective: Offload) -> Iterator[str]:
    for i in sorted({i for i, _ in case.calls}):
        count = sum(call[0] == i for call in case.calls)
        if objective.calls is not None and count > objective.calls:
            yield f"{case.device(i)} makes {count} calls, but may make {objective.calls}"


def _circles(case: _Calls) -> Iterator[str]:
    """No call waits for itself: what nothing waits for any more is taken away until nothing is left."""
    waits: dict[Node, set[Node]] = {node: set() for node in case.members}
    for u, readers in case.crossing:
        for node in readers:
            waits[node].add(case.node_of[case.problem.graph.tensors[u].producer])
    for late, early in case.previous.items():
        waits[late].add(early)
    left = dict(waits)
    while free := [node for node, before in left.items() if not before & left.keys()]:
        for node in free:
            del left[node]
    needed = {node for before in left.values() for node in before}
    while idle := [node for node in left if node not in needed]:  # these only wait for the circle
        for node in idle:
            del left[node]
        needed = {node for before in left.values() for node in before}
    stuck = sorted(node for node in left if node[0] >= 0)
    if len(stuck) == 1:
        yield f"a path leaves {case.node(stuck[0])} and comes back to it"
    elif stuck:
        yield f"{', '.join(case.node(node) for node in stuck)} wait for each other"


def _durations(case: _Calls) -> Iterator[str]:
    """Every call and every operator on a CPU starts at 0 or later and takes exactly its time."""
    for node, members in sorted(case.members.items()):
        first = members[0]
        if case.start[first] < -case.slack:
            yield f"{case.node(node)} starts at {case.start[first]} s, before 0"
        if node[0] < 0:
            seconds, what = float(case.problem.times.processing_s[first, case.device_of[first]]), "its time is"
        else:
            enter, compute, leave = case.parts[node]
            seconds = enter + compute + leave
            what = f"in {enter} s, computing {compute} s and out {leave} s are"
            if not (math.isfinite(enter) and math.isfinite(leave)):
                yield f"{case.node(node)} needs a tensor that no link brings or takes"
        if math.isfinite(seconds) and abs(case.finish[first] - case.start[first] - seconds) > case.slack:
            yield f"{case.node(node)} takes {case.finish[first] - case.start[first]} s, but {what} {seconds} s"
        apart = [
            v
            for v in members
            if max(abs(case.start[v] - case.start[first]), abs(case.finish[v] - case.finish[first])) > case.slack
        ]
        if apart:
            more = f" (and {len(apart) - 1} more)" if len(apart) > 1 else ""
            yield (
                f"{case.operator(apart[0])} runs from {case.start[apart[0]]} s to {case.finish[apart[0]]} s, but "
                f"{case.node(node)} from {case.start[first]} s to {case.finish[first]} s{more}"
            )


def _starts(case: _Calls) -> Iterator[str]:
    """Every node starts after what it reads has been delivered; a call after the call before it."""
    graph = case.problem.graph
    for u, readers in case.crossing:
        made = case.finish[graph.tensors[u].producer]
        for node in readers:
            start = min(case.start[v] for v in case.members[node])
            if start < made - case.slack:
                yield (
                    f"{case.node(node)} starts at {start} s, before its input {graph.tensors[u].name!r} "
                    f"is there at {made} s"
                )
    for late, early in sorted(case.previous.items()):
        start = min(case.start[v] for v in case.members[late])
        end = max(case.finish[v] for v in case.members[early])
        if start < end - case.slack:
            yield f"{case.node(late)} starts at {start} s, before {case.node(early)} ends at {end} s"


def _memory(case: _Calls) -> Iterator[str]:
    """Memory less reserve of an accelerator holds what the operators of all its calls keep."""
    for device, resident in zip(case.problem.cluster.devices, case.resident, strict=True):
        if device.kind == "cpu" or device.memory_bytes is None:
            continue
        limit = device.memory_bytes - device.reserve_bytes
        if resident > limit:
            yield f"device {device.name!r} holds {resident} B of {case.held_what}, but may hold {limit} B"


def _value(case: _Calls) -> Iterator[str]:
    if not abs(case.plan.value_s - case.makespan) <= case.slack:
        yield f"the plan states a value of {case.plan.value_s} s, but its last operator finishes at {case.makespan} s"
