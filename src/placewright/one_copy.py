"""A throughput problem as the pipeline problem of one of its copies."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from placewright.objective import MaxLoad, Throughput
from placewright.problem import Problem

__all__ = ["one_copy", "sync_s_per_byte", "throughput_of"]

_made: WeakKeyDictionary[Problem, Problem] = WeakKeyDictionary()


def throughput_of(problem: Problem) -> Throughput:
    """Return the objective of a problem that is known to be throughput."""
    if not isinstance(problem.objective, Throughput):
        raise TypeError(f"the objective is {problem.objective.name}, not throughput")
    return problem.objective


def one_copy(problem: Problem) -> Problem:
    """Return the max-load problem of the same network, cluster and wishes, made once: what each copy is a plan of.

    Examples
    --------
    >>> from placewright import Cluster, Device, Operator, OperatorGraph
    >>> one = Problem(OperatorGraph([Operator("a")]), Cluster([Device("gpu")]), [[2.0]], Throughput("any"))
    >>> one_copy(one).objective.contiguity
    'any'
    """
    if problem not in _made:
        objective = throughput_of(problem)
        alone = MaxLoad(
            objective.contiguity,
            objective.contiguous_cpus,
            overlap=objective.overlap,
            busy_share=objective.busy_share,
        )
        _made[problem] = Problem(problem.graph, problem.cluster, problem.times, alone, problem.wishes, problem.name)
    return _made[problem]


def sync_s_per_byte(problem: Problem, devices: npt.ArrayLike) -> float:
    """Seconds a byte of a synchronisation between devices: of the slowest link of two; ``inf`` where one is missing."""
    bandwidth = throughput_of(problem).sync_bandwidth_bytes_per_s
    if bandwidth is not None:
        return 1.0 / bandwidth
    among, cluster = np.ix_(np.asarray(devices), np.asarray(devices)), problem.cluster
    linked = (cluster.rule_of[among] >= 0) | np.eye(len(among[0]), dtype=bool)
    return float(cluster.seconds_per_byte[among].max(initial=0.0)) if linked.all() else float("inf")
