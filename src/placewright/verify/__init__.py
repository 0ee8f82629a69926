"""An independent checker of plans: plain Python, no code shared with the judge, the kernels or the solvers.

It takes from the problem only what was given (fields of the graph, cluster, times and wishes) and works out anew what
follows from it: which devices are allowed, transfer times, channels and memory. What it and the judge agree on was
arrived at twice.
"""

from __future__ import annotations

from placewright.objective import MaxLoad, Offload, Throughput
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.verify.makespan import verify_makespan
from placewright.verify.max_load import verify_max_load
from placewright.verify.offload import verify_offload
from placewright.verify.throughput import verify_throughput

__all__ = ["verify"]


def verify(problem: Problem, plan: Plan, *, tolerance: float = 1e-9) -> tuple[str, ...]:
    """Everything that is wrong with a plan; empty when it is legal and its value is right.

    Parameters
    ----------
    problem : Problem
    plan : Plan
    tolerance : float
        Times are compared up to ``tolerance`` times the value; bytes exactly.

    Returns
    -------
    tuple of str
        One line for every violation. Always: a device that is not allowed, parted colocation classes, a wrong value.
        For the makespan: wrong durations, overlaps on a device, link, port or channel, tensors that are read before
        they are there, transfers that are missing, needless or wrong, memory above the limit at any instant. For the
        max-load: devices in no order, unlike replicas, what operators hold above the limit. For throughput: the same
        of every copy, and shares that don't sum to 1. For offload: calls
        that wait for each other, too many of them, starts and durations that can't be; memory of accelerators.

    Examples
    --------
    >>> from placewright import graph, cluster, plan
    >>> one = Problem(graph.OperatorGraph([graph.Operator("a")]), cluster.Cluster([cluster.Device("gpu")]), [[2.0]])
    >>> verify(one, plan.Plan([0], plan.Schedule([0.0], [2.0]), value_s=2.0))
    ()
    >>> verify(one, plan.Plan([0], plan.Schedule([0.0], [2.0]), value_s=1.0))
    ('the plan states a value of 1.0 s, but its last operator finishes at 2.0 s',)
    """
    if isinstance(problem.objective, Offload):
        return verify_offload(problem, plan, tolerance=tolerance)
    if isinstance(problem.objective, MaxLoad):
        return verify_max_load(problem, plan, tolerance=tolerance)
    if isinstance(problem.objective, Throughput):
        return verify_throughput(problem, plan, tolerance=tolerance)
    return verify_makespan(problem, plan, tolerance=tolerance)
