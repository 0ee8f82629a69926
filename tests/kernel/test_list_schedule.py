"""Earliest time first with heaps against the same written as it is told: all pairs are looked at for each operator."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from placewright._kernel.list_schedule import etf, mean_upward_rank
from placewright._kernel.schedule import Workspace, workspace
from placewright.arrays import Arrays, arrays_of
from placewright.problem import Problem
from tests.random_problems import problems

SOME = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)


def plain(a: Arrays, level: np.ndarray, w: Workspace) -> list[int] | None:
    """Of pairs of a ready operator and a device with room take the first to start; ties: level, number, speed.

    When an operator is made ready, the arrival of its inputs at each device is estimated once, with the queues of then.
    """
    g, n, D = a.network, len(level), len(a.capacity)
    room, unit_device = a.capacity.copy(), {}
    device, seen = [-1] * n, {}
    w.resource_free[:], w.device_free[:], w.arrival[:] = 0.0, 0.0, -1.0

    def reads(v: int) -> list[int]:
        return g.read[g.read_ptr[v] : g.read_ptr[v + 1]].tolist()

    def seconds(u: int, j: int, i: int) -> float:
        return float(g.transfer[u, j, i] if len(g.transfer) else g.latency[j, i] + g.size[u] * g.per_byte[j, i])

    def queues(j: int, i: int) -> list[int]:
        return [r for r in g.resources[j, i].tolist() if r >= 0]

    def arrival(u: int, i: int) -> float:
        j = device[g.producer[u]]
        made = float(w.finish[g.producer[u]])
        if i == j:
            return made
        if w.arrival[u, i] >= 0:
            return float(w.arrival[u, i])
        return max([made, *(float(w.resource_free[r]) for r in queues(j, i))]) + seconds(u, j, i)

    def send(u: int, i: int) -> float:
        j = device[g.producer[u]]
        if i != j and w.arrival[u, i] < 0:
            length = seconds(u, j, i)
            waits = queues(j, i) if length > 0 else []
            start = max([float(w.finish[g.producer[u]]), *(float(w.resource_free[r]) for r in waits)])
            w.arrival[u, i] = start + length
            for r in waits:
                w.resource_free[r] = start + length
        return arrival(u, i)

    for _ in range(n):
        ready = [v for v in range(n) if device[v] < 0 and all(device[g.producer[u]] >= 0 for u in reads(v))]
        for v in ready:
            if v not in seen:
                seen[v] = [max([0.0, *(arrival(u, i) for u in reads(v))]) for i in range(D)]
        pairs = []
        for v in ready:
            unit = int(a.unit_of[v])
            for i in range(D):
                placed = unit_device.get(unit)
                fits = placed == i if placed is not None else a.resident[unit] <= room[i]
                start = max(seen[v][i], float(w.device_free[i]))
                if fits and np.isfinite(g.processing[v, i]) and np.isfinite(start):
                    pairs.append((start, -level[v], v, g.processing[v, i], i))
        if not pairs:
            return None
        _, _, v, length, i = min(pairs)
        if int(a.unit_of[v]) not in unit_device:
            unit_device[int(a.unit_of[v])] = i
            room[i] -= a.resident[a.unit_of[v]]
        cut = g.cut[v, i] if any(device[g.producer[u]] != i for u in reads(v)) else 0.0
        device[v] = i
        start = max([float(w.device_free[i]), *(send(u, i) for u in reads(v))])
        w.start[v], w.finish[v] = start, start + length + cut
        w.device_free[i] = w.finish[v]
    return device


@SOME
@given(problems(most_operators=12, most_devices=4), st.booleans())
def test_heaps_take_the_pair_that_starts_first(problem: Problem, by_level: bool) -> None:
    """Devices and times are the same, whatever the contention, classes and memory; so is not finding a place."""
    a = arrays_of(problem)
    level = mean_upward_rank(a.network) if by_level else np.zeros(len(problem.graph))
    fast, slow = workspace(a.network), workspace(a.network)
    device, complete = etf(a.network, level, a.unit_of, a.resident, a.capacity, fast)
    expected = plain(a, level, slow)
    assert complete == (expected is not None)
    if expected is not None:
        assert device.tolist() == expected
        assert fast.start.tolist() == slow.start.tolist() and fast.finish.tolist() == slow.finish.tolist()
