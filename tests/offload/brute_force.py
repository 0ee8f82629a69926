"""The optimum of small offload problems by trying every placement, every split into calls, and every order of them.

Written from the model's text: nodes (operators on CPUs, and calls) finish one after the other as soon as what they wait
for has. It shares nothing with the package's arrays, judge or solvers.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numba import njit

from placewright.problem import Problem

INF = float("inf")


def optimum(problem: Problem) -> float:
    """Least latency in seconds of any plan that breaks no rule; ``inf`` when there is none."""
    return float(_search(*_arrays(problem))[0])


def best_plan(problem: Problem) -> tuple[float, list[int], list[int]]:
    """Return the optimum with a device and a call for every operator."""
    value, choice = _search(*_arrays(problem))
    n, cores = len(problem.graph), _of_kind(problem, cpu=True)
    accelerators, most = _of_kind(problem, cpu=False), _most_calls(problem)
    may = _may_alone(problem)
    device_of, call_of = [0] * n, [0] * n
    for v, c in enumerate(choice.tolist()):
        if c > 0:
            device_of[v], call_of[v] = accelerators[(c - 1) // most], (c - 1) % most
        elif value < INF:
            device_of[v] = min((i for i in cores if may[v, i]), key=lambda i: problem.times.processing_s[v, i])
    return float(value), device_of, call_of


def value_of(problem: Problem, device_of: Sequence[int], call_of: Sequence[int]) -> float:
    """Latency of one plan, ``inf`` when it breaks a rule. Calls of a device are made by ascending number."""
    n, cores, accelerators = len(problem.graph), _of_kind(problem, cpu=True), _of_kind(problem, cpu=False)
    may = _may_alone(problem)
    if any(not may[v, device_of[v]] for v in range(n)):
        return INF
    limit = getattr(problem.objective, "calls", None)
    call, place = np.zeros(n, dtype=np.int64), np.full(n, -1, dtype=np.int64)
    for a, i in enumerate(accelerators):
        here = [v for v in range(n) if device_of[v] == i]
        numbers = sorted({int(call_of[v]) for v in here})
        if limit is not None and len(numbers) > limit:
            return INF
        for v in here:
            place[v], call[v] = a, numbers.index(int(call_of[v]))
        held = sum(problem.graph.operators[v].resident_bytes for v in here)
        if held > problem.cluster.devices[i].capacity_bytes:
            return INF
    for members in problem.graph.colocation:
        if len({int(place[v]) for v in members}) > 1:
            return INF
    given = _arrays(problem)
    cpu_s = np.array([problem.times.processing_s[v, i] if i in cores else 0.0 for v, i in enumerate(device_of)])
    return float(_value(place, call, INF, cpu_s, *given[1:6]))


def _of_kind(problem: Problem, *, cpu: bool) -> list[int]:
    return [i for i, d in enumerate(problem.cluster.devices) if (d.kind == "cpu") == cpu]


def _may_alone(problem: Problem) -> np.ndarray:
    """(n, D) whether a device may run an operator, whatever its class."""
    may = np.isfinite(problem.times.processing_s)
    for v, operator in enumerate(problem.graph.operators):
        for i, device in enumerate(problem.cluster.devices):
            for wish in problem.wishes:
                if fnmatchcase(operator.name, wish.pattern):
                    may[v, i] &= fnmatchcase(device.name, wish.device) != wish.forbid
    return may


def _most_calls(problem: Problem) -> int:
    limit = getattr(problem.objective, "calls", None)
    return len(problem.graph) if limit is None else min(limit, len(problem.graph))


def _arrays(problem: Problem) -> tuple[Any, ...]:
    """Seconds on the pool and on accelerators, transfers by place of the other end, edges, units, memory, limit."""
    graph, n = problem.graph, len(problem.graph)
    cores, accelerators = _of_kind(problem, cpu=True), _of_kind(problem, cpu=False)
    A, T, seconds = (
        len(accelerators),
        len(graph.tensors),
        np.where(_may_alone(problem), problem.times.processing_s, INF),
    )
    cpu_s = seconds[:, cores].min(axis=1) if cores else np.full(n, INF)
    acc_s = np.ascontiguousarray(seconds[:, accelerators])
    # Place A is RAM: the first CPU device, or else what is nearest; also the way between calls of one accelerator.
    enter, leave = np.zeros((T, max(A, 1), A + 1)), np.zeros((T, max(A, 1), A + 1))
    producer, reads = np.zeros(T, dtype=np.int64), np.zeros((T, n), dtype=np.bool_)
    for u, tensor in enumerate(graph.tensors):
        producer[u] = tensor.producer
        reads[u, list(tensor.readers)] = True
        for a, i in enumerate(accelerators):
            ins = [problem.transfer_s(u, j, i) for j in accelerators]
            outs = [problem.transfer_s(u, i, j) for j in accelerators]
            ram_in = min((t for b, t in enumerate(ins) if b != a), default=0.0)
            ram_out = min((t for b, t in enumerate(outs) if b != a), default=0.0)
            if cores:
                ram_in, ram_out = problem.transfer_s(u, cores[0], i), problem.transfer_s(u, i, cores[0])
            ins[a], outs[a] = ram_in, ram_out
            enter[u, a], leave[u, a] = [*ins, ram_in], [*outs, ram_out]
    unit_of, size = np.array(graph.unit_of, dtype=np.int64), problem.resident_bytes.astype(np.float64)
    capacity = np.array([problem.cluster.devices[i].capacity_bytes for i in accelerators])
    return cpu_s, acc_s, enter, leave, producer, reads, unit_of, size, capacity, _most_calls(problem)


@njit(cache=True)
def _search(cpu_s, acc_s, enter, leave, producer, reads, unit_of, size, capacity, most):  # type: ignore[no-untyped-def]
    """Least value and the choice of each operator: 0 for the pool, 1 + accelerator * most + call."""
    n, A = acc_s.shape
    choice, best_choice = np.full(n, -1, dtype=np.int64), np.full(n, -1, dtype=np.int64)
    place, call = np.full(n, -1, dtype=np.int64), np.zeros(n, dtype=np.int64)
    best, v = np.inf, 0
    while v >= 0:
        choice[v] += 1
        if choice[v] > A * most:
            choice[v] = -1
            place[v] = -1
            v -= 1
            continue
        place[v] = -1 if choice[v] == 0 else (choice[v] - 1) // most
        call[v] = 0 if choice[v] == 0 else (choice[v] - 1) % most
        if not _may_be_part(v, place, call, cpu_s, acc_s, producer, reads, unit_of, size, capacity, most):
            continue
        if v < n - 1:
            v += 1
            continue
        value = _value(place, call, best, cpu_s, acc_s, enter, leave, producer, reads)
        if value < best:
            best = value
            best_choice[:] = choice
    return best, best_choice


@njit(cache=True)
def _may_be_part(v, place, call, cpu_s, acc_s, producer, reads, unit_of, size, capacity, most):  # type: ignore[no-untyped-def]
    """Whether the choices of operators 0..v break no rule yet, and calls can still be numbered without gaps."""
    n, A = acc_s.shape
    a = place[v]
    if not np.isfinite(cpu_s[v] if a < 0 else acc_s[v, a]):
        return False
    for u in range(v):
        if unit_of[u] == unit_of[v] and place[u] != a:
            return False
    if a < 0:
        return True
    held = 0.0
    for u in range(v + 1):
        if place[u] == a:
            held += size[u]
    if held > capacity[a]:
        return False
    for t in range(len(producer)):
        if reads[t, v] and place[producer[t]] == a and call[producer[t]] > call[v]:
            return False
    missing = 0
    for b in range(A):
        highest = -1
        used = np.zeros(most, dtype=np.bool_)
        for u in range(v + 1):
            if place[u] == b:
                used[call[u]] = True
                highest = max(highest, call[u])
        missing += highest + 1 - used.sum()
    return missing <= n - 1 - v


@njit(cache=True)
def _value(place, call, limit, cpu_s, acc_s, enter, leave, producer, reads):  # type: ignore[no-untyped-def]
    """Finish of the last operator; ``inf`` when something waits for itself or takes forever."""
    n, A, T = len(place), acc_s.shape[1], len(producer)
    done, finish = np.zeros(n, dtype=np.bool_), np.zeros(n)
    turn, free = np.zeros(A, dtype=np.int64), np.zeros(A)
    left, last = n, 0.0
    progress = True
    while left and progress:
        progress = False
        for v in range(n):
            if done[v] or (place[v] >= 0 and call[v] != turn[place[v]]):
                continue
            a, ready, length, begin = place[v], True, 0.0, 0.0
            for t in range(T):
                enters, cost = False, 0.0
                u = producer[t]
                inside = u == v if a < 0 else place[u] == a and call[u] == call[v]
                leaving = False
                for r in range(n):
                    if reads[t, r]:
                        r_inside = r == v if a < 0 else place[r] == a and call[r] == call[v]
                        if r_inside and not inside:
                            enters = True
                        if inside and not r_inside:
                            leaving = True
                            if a >= 0:
                                cost = max(cost, leave[t, a, place[r] if place[r] >= 0 else A])
                if enters:
                    if not done[u]:
                        ready = False
                        break
                    begin = max(begin, finish[u])
                    if a >= 0:
                        length += enter[t, a, place[u] if place[u] >= 0 else A]
                if leaving:
                    length += cost
            if not ready:
                continue
            if a < 0:
                finish[v], done[v] = begin + cpu_s[v], True
                left -= 1
            else:
                begin = max(begin, free[a])
                for u in range(n):
                    if place[u] == a and call[u] == call[v]:
                        length += acc_s[u, a]
                free[a] = begin + length
                member = call[v]
                for u in range(n):
                    if place[u] == a and call[u] == member:
                        finish[u], done[u] = free[a], True
                        left -= 1
                turn[a] += 1
            last = max(last, finish[v])
            progress = True
            if last >= limit:
                return np.inf
    return np.inf if left or not np.isfinite(last) else last
