"""Whether devices can be put in an order, or no path comes back to one: contiguity, from the edges alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from placewright.objective import MaxLoad, Throughput
from placewright.verify.case import Case

__all__ = ["device_order"]

Edges: TypeAlias = Mapping[int, set[int]]


def device_order(case: Case, objective: MaxLoad | Throughput) -> Iterator[str]:
    """Tell where contiguity or convexity is broken.

    A unit is a colocation class or an operator alone, named by its first operator. Units that reach each other share a
    device. On a CPU that contiguity does not bind, what reaches each other counts as a device of its own.
    """
    if objective.contiguity == "any":
        return
    edges = _order_edges(case)
    component = _components(edges, sorted({*edges, *(b for heads in edges.values() for b in heads)}))
    together: dict[int, list[int]] = defaultdict(list)
    for unit, root in sorted(component.items()):
        together[root].append(unit)
    parted = [units for units in together.values() if len({case.device_of[u] for u in units}) > 1]
    for units in parted:
        names = ", ".join(repr(case.problem.graph.operators[u].name) for u in units)
        yield f"the units of {names} reach each other but don't share a device"
    if parted:
        return
    free = {i for i, d in enumerate(case.problem.cluster.devices) if d.kind == "cpu" and not objective.contiguous_cpus}
    bound = sorted({case.device_of[u] for u in component} - free)
    if objective.contiguity == "convex":
        for i in bound:
            if _comes_back(case, edges, i):
                yield f"a path of operators leaves {case.device(i)} and comes back to it"
        return
    place = {u: -1 - case.device_of[u] if case.device_of[u] not in free else component[u] for u in component}
    stuck = _without_order(edges, place)
    if stuck:
        names = ", ".join(case.device(-1 - x) for x in sorted(stuck, reverse=True) if x < 0)
        yield f"no order of the devices has all edges forward; among {names} they go in a circle"


def _order_edges(case: Case) -> dict[int, set[int]]:
    """Edges of the forward pass, and those between backward operators at units without a forward one, turned round."""
    graph = case.problem.graph
    unit = list(range(len(graph)))
    for members in graph.colocation:
        for v in members:
            unit[v] = members[0]
    with_forward = {unit[v] for v, operator in enumerate(graph.operators) if not operator.backward}
    edges: dict[int, set[int]] = defaultdict(set)
    for tensor in graph.tensors:
        for v in tensor.readers:
            a, b = unit[tensor.producer], unit[v]
            back = graph.operators[tensor.producer].backward, graph.operators[v].backward
            if a == b or back[0] != back[1]:
                continue
            if not back[0]:
                edges[a].add(b)
            elif a not in with_forward or b not in with_forward:
                edges[b].add(a)
    return dict(edges)


def _components(edges: Edges, units: list[int]) -> dict[int, int]:
    """Root of each unit's strongly connected component (Kosaraju: by finish forwards, then against the edges)."""
    finished: list[int] = []
    seen: set[int] = set()
    for start in units:
        stack = [(start, False)]
        while stack:
            unit, done = stack.pop()
            if done:
                finished.append(unit)
            elif unit not in seen:
                seen.add(unit)
                stack.append((unit, True))
                stack.extend((b, False) for b in sorted(edges.get(unit, ())) if b not in seen)
    against: dict[int, list[int]] = defaultdict(list)
    for a, heads in edges.items():
        for b in sorted(heads):
            against[b].append(a)
    root: dict[int, int] = {}
    for start in reversed(finished):
        pending = [start]
        while pending:
            unit = pending.pop()
            if unit not in root:
                root[unit] = start
                pending.extend(against[unit])
    return root


def _comes_back(case: Case, edges: Edges, device: int) -> bool:
    """Whether a path goes from the device over others to the device."""
    seen: set[int] = set()
    pending = [b for a, heads in edges.items() if case.device_of[a] == device for b in heads]
    pending = [b for b in pending if case.device_of[b] != device]
    while pending:
        unit = pending.pop()
        if case.device_of[unit] == device:
            return True
        if unit not in seen:
            seen.add(unit)
            pending.extend(edges.get(unit, ()))
    return False


def _without_order(edges: Edges, place: Mapping[int, int]) -> set[int]:
    """Places left when those that nothing left comes before, or nothing left comes after, are taken away."""
    after: dict[int, set[int]] = {x: set() for x in place.values()}
    before: dict[int, set[int]] = {x: set() for x in place.values()}
    for a, heads in edges.items():
        for b in heads:
            if place[a] != place[b]:
                after[place[a]].add(place[b])
                before[place[b]].add(place[a])
    left = set(after)
    for inward, outward in ((before, after), (after, before)):
        ready = [x for x in left if not inward[x] & left]
        while ready:
            x = ready.pop()
            left.discard(x)
            for y in outward[x] & left:
                inward[y].discard(x)
                if not inward[y] & left:
                    ready.append(y)
    return left
