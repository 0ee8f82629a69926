"""An offload problem as plain arrays over operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from placewright.objective import Offload
from placewright.problem import Problem
from placewright.ragged import ragged

__all__ = ["Offloads", "offload_of", "offloads_of"]

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Offloads:
    """The arrays of one offload problem: n operators, A accelerators (devices of a kind other than ``cpu``), T tensors.

    Attributes
    ----------
    accelerator : (A,) int32
        Device index of each accelerator.
    cpu_s : (n,) float64
        Seconds of each operator on the CPU device that runs it fastest; ``inf`` where none may.
    cpu_device : (n,) int32
        That device; -1 where none may.
    acc_s : (n, A) float64
        Seconds on each accelerator; ``inf`` where it may not run.
    producer : (T,) int32
        Of each tensor that some operator reads, ascending.
    reader_ptr, reader : (T+1,), (.) int32
        Its readers, ascending.
    made_ptr : (n+1,) int32
        Tensors that operator v makes are ``made_ptr[v]..made_ptr[v+1]-1``.
    read_ptr, read : (n+1,), (.) int32
        Tensors that operator v reads, ascending.
    in_from_s, out_to_s : (T, A, A+1) float64
        What a tensor costs a call of accelerator i when it enters from, or leaves to, the place j of the last axis;
        j = A stands for RAM, that is for any CPU device, and so does j = i: another call of the same accelerator. What
        leaves a call costs the largest over the places that read it, once.
    in_s, out_s : (T, A) float64
        The least of these over the other end.
    separable : bool
        Whether ``in_s`` and ``out_s`` are exact: no link differs by its other end.
    size : (n,) float64
        Bytes held as long as the plan runs.
    capacity : (A,) float64
        Bytes; ``inf`` without a limit.
    unit_of : (n,) int32
        Colocation unit: on CPUs together, or on one accelerator together.
    acc_class : (A,) int32
        Accelerators of one class can be exchanged.
    """

    accelerator: Ints
    cpu_s: Floats
    cpu_device: Ints
    acc_s: Floats
    producer: Ints
    reader_ptr: Ints
    reader: Ints
    made_ptr: Ints
    read_ptr: Ints
    read: Ints
    in_from_s: Floats
    out_to_s: Floats
    in_s: Floats
    out_s: Floats
    separable: bool
    size: Floats
    capacity: Floats
    unit_of: Ints
    acc_class: Ints


_made: WeakKeyDictionary[Problem, Offloads] = WeakKeyDictionary()


def offloads_of(problem: Problem) -> Offloads:
    """Return the arrays of an offload problem, made once."""
    if problem not in _made:
        _made[problem] = _make(problem)
    return _made[problem]


def offload_of(problem: Problem) -> Offload:
    """Return the objective of a problem that is known to be offload."""
    if not isinstance(problem.objective, Offload):
        raise TypeError(f"the objective is {problem.objective.name}, not offload")
    return problem.objective


def _make(problem: Problem) -> Offloads:
    graph, devices = problem.graph, problem.cluster.devices
    n = len(graph)
    cores = [i for i, d in enumerate(devices) if d.kind == "cpu"]
    accelerators = [i for i, d in enumerate(devices) if d.kind != "cpu"]
    p = np.where(problem.allowed, problem.times.processing_s, np.inf)
    cpu_s, cpu_device = np.full(n, np.inf), np.full(n, -1, dtype=np.int32)
    if cores:
        fastest = p[:, cores].argmin(axis=1)
        cpu_s = p[np.arange(n), np.array(cores)[fastest]]
        cpu_device = np.where(np.isfinite(cpu_s), np.array(cores, dtype=np.int32)[fastest], -1).astype(np.int32)
    tensors = [(u, t) for u, t in enumerate(graph.tensors) if t.readers]
    producer = np.array([t.producer for _, t in tensors], dtype=np.int32)
    reader_ptr, reader = ragged([t.readers for _, t in tensors])
    read_by: list[list[int]] = [[] for _ in range(n)]
    for k, (_, t) in enumerate(tensors):
        for v in t.readers:
            read_by[v].append(k)
    read_ptr, read = ragged(read_by)
    ins, outs = _ends_s(problem, [u for u, _ in tensors], accelerators, cores)
    A = len(accelerators)
    separable = bool(_constant(outs) and _constant(ins))
    capacity = problem.cluster.capacity_bytes[accelerators]
    acc_s = p[:, accelerators]
    return Offloads(
        np.array(accelerators, dtype=np.int32),
        cpu_s,
        cpu_device,
        acc_s,
        producer,
        reader_ptr,
        reader,
        np.searchsorted(producer, np.arange(n + 1)).astype(np.int32),
        read_ptr,
        read,
        ins,
        outs,
        ins.min(axis=2) if A else np.zeros((len(tensors), 0)),
        outs.min(axis=2) if A else np.zeros((len(tensors), 0)),
        separable,
        problem.resident_bytes.astype(np.float64),
        capacity,
        np.array(graph.unit_of, dtype=np.int32),
        _classes(acc_s, capacity, ins, outs),
    )


def _constant(table: Floats) -> bool:
    """Whether no time differs along the last axis."""
    return bool((table == table[:, :, :1]).all())


def _ends_s(
    problem: Problem, tensors: Sequence[int], accelerators: Sequence[int], cores: Sequence[int]
) -> tuple[Floats, Floats]:
    """Make ``in_from_s`` and ``out_to_s``; RAM is the first CPU device, or as near as the nearest accelerator."""
    A = len(accelerators)
    ins, outs = np.zeros((len(tensors), A, A + 1)), np.zeros((len(tensors), A, A + 1))
    for k, u in enumerate(tensors):
        for a, i in enumerate(accelerators):
            for b, j in enumerate(accelerators):
                if a != b:
                    ins[k, a, b], outs[k, a, b] = problem.transfer_s(u, j, i), problem.transfer_s(u, i, j)
            others = [b for b in range(A) if b != a]
            if cores:
                ins[k, a, A], outs[k, a, A] = (problem.transfer_s(u, cores[0], i), problem.transfer_s(u, i, cores[0]))
            elif others:
                ins[k, a, A], outs[k, a, A] = ins[k, a, others].min(), outs[k, a, others].min()
            ins[k, a, a], outs[k, a, a] = ins[k, a, A], outs[k, a, A]
    return ins, outs


def _classes(acc_s: Floats, capacity: Floats, ins: Floats, outs: Floats) -> Ints:
    """Give accelerators that can be exchanged the same number."""
    A = len(capacity)
    classes = np.full(A, -1, dtype=np.int32)
    first: list[int] = []
    for j in range(A):
        for k, i in enumerate(first):
            swap = np.arange(A + 1)
            swap[[i, j]] = j, i
            alike = capacity[i] == capacity[j] and np.array_equal(acc_s[:, i], acc_s[:, j])
            if alike and all(np.array_equal(t[:, swap[:A]][:, :, swap], t) for t in (ins, outs)):
                classes[j] = k
                break
        if classes[j] < 0:
            classes[j] = len(first)
            first.append(j)
    return classes
