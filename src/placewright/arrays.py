"""A problem as the plain arrays that the kernels take."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from placewright._kernel.schedule import Network
from placewright.objective import Makespan
from placewright.problem import Problem
from placewright.ragged import ragged

__all__ = ["Arrays", "arrays_of"]


@dataclass(frozen=True, eq=False)
class Arrays:
    """The arrays of one problem.

    Attributes
    ----------
    network : Network
        For the schedule kernels.
    unit_of : (n,) int32
        Colocation unit of each operator.
    member_ptr, member : (U+1,), (n,) int32
        Operators of unit k are ``member[member_ptr[k]:member_ptr[k+1]]``, ascending.
    allowed : (U, D) bool
        Devices that each unit may use.
    resident : (U,) float64
        Bytes that each unit holds as long as the plan runs.
    capacity : (D,) float64
        Bytes that a plan may use; ``inf`` without a limit.
    output : (T,) bool
        Tensors that leave the network.
    memory_may_bind : bool
        False when everything together would fit every device.
    """

    network: Network
    unit_of: npt.NDArray[np.int32]
    member_ptr: npt.NDArray[np.int32]
    member: npt.NDArray[np.int32]
    allowed: npt.NDArray[np.bool_]
    resident: npt.NDArray[np.float64]
    capacity: npt.NDArray[np.float64]
    output: npt.NDArray[np.bool_]
    memory_may_bind: bool
    size_bytes: npt.NDArray[np.int64]


_made: WeakKeyDictionary[Problem, Arrays] = WeakKeyDictionary()


def arrays_of(problem: Problem) -> Arrays:
    """Return the arrays of a problem, made once."""
    if problem not in _made:
        _made[problem] = _make(problem)
    return _made[problem]


def _make(problem: Problem) -> Arrays:
    graph, cluster = problem.graph, problem.cluster
    n = len(graph)
    producer = np.array([t.producer for t in graph.tensors], dtype=np.int32)
    reader_ptr, reader = ragged([t.readers for t in graph.tensors])
    # Tensors are sorted by producer; those that an operator reads stand in the order of the tensors.
    operators = np.arange(n + 1, dtype=np.int32)
    made_ptr = np.searchsorted(producer, operators).astype(np.int32)
    by_reader = np.argsort(reader, kind="stable")
    read = np.repeat(np.arange(len(producer), dtype=np.int32), np.diff(reader_ptr))[by_reader]
    read_ptr = np.searchsorted(reader[by_reader], operators).astype(np.int32)
    resources, n_resources = _resources(problem)
    table = problem.transfer_table
    size = np.array([t.size_bytes for t in graph.tensors], dtype=np.float64)
    network = Network(
        made_ptr,
        read_ptr,
        read,
        reader_ptr,
        reader,
        producer,
        size,
        np.where(problem.allowed, problem.times.processing_s, np.inf),
        cluster.latency_s,
        cluster.seconds_per_byte,
        np.zeros((0, 0, 0)) if table is None else np.array(table),
        np.array(problem.cut_s),
        resources,
        n_resources,
    )
    unit_of = np.array(graph.unit_of, dtype=np.int32)
    member = np.argsort(unit_of, kind="stable").astype(np.int32)
    n_units = int(unit_of.max()) + 1
    member_ptr = np.searchsorted(unit_of[member], np.arange(n_units + 1)).astype(np.int32)
    everything = float(problem.resident_bytes.sum() + size.sum())
    return Arrays(
        network,
        unit_of,
        member_ptr,
        member,
        problem.allowed[member[member_ptr[:-1]]].copy(),
        np.bincount(unit_of, weights=problem.resident_bytes.astype(np.float64), minlength=n_units).astype(np.float64),
        cluster.capacity_bytes,
        np.array([t.output for t in graph.tensors], dtype=np.bool_),
        bool((cluster.capacity_bytes < everything).any()),
        np.array([t.size_bytes for t in graph.tensors], dtype=np.int64),
    )


def _resources(problem: Problem) -> tuple[npt.NDArray[np.int32], int]:
    """(D, D, 4) what a transfer from row to column occupies under the objective's contention, and how many exist.

    Objectives about the steady state know no contention for the one sample that has the cluster for itself.
    """
    D = len(problem.cluster)
    resources = np.full((D, D, 4), -1, dtype=np.int32)
    contention = problem.objective.contention if isinstance(problem.objective, Makespan) else "none"
    if contention == "none":
        return resources, 0
    i, j = np.indices((D, D), dtype=np.int32)
    if contention == "link":
        resources[:, :, 0] = i * D + j
        count = D * D
    else:
        resources[:, :, 0], resources[:, :, 1] = i, D + j
        count = 2 * D
    channels = problem.cluster.channels_of
    resources[:, :, 2:] = np.where(channels >= 0, channels + count, -1)
    return resources, count + len(problem.cluster.channels)
