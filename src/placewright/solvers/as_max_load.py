"""The pipeline problem behind another one: for what splits a network by loads, whatever the objective."""

from __future__ import annotations

from placewright.objective import MaxLoad, Throughput
from placewright.one_copy import one_copy
from placewright.problem import Problem

__all__ = ["as_max_load"]


def as_max_load(problem: Problem) -> Problem:
    """Return a max-load problem as it is, and for another objective that of the same network, cluster and wishes.

    Examples
    --------
    >>> from placewright import Cluster, Device, Operator, OperatorGraph
    >>> one = Problem(OperatorGraph([Operator("a")]), Cluster([Device("gpu")]), [[2.0]], "offload")
    >>> as_max_load(one).objective.name
    'max-load'
    """
    if isinstance(problem.objective, MaxLoad):
        return problem
    if isinstance(problem.objective, Throughput):
        return one_copy(problem)
    return Problem(problem.graph, problem.cluster, problem.times, MaxLoad(), problem.wishes, problem.name)
