"""The best split of the operators in their order, a block a device."""

from __future__ import annotations

import numpy as np

from placewright.algorithm import Budget, OnProgress, ignore
from placewright.evaluate import plan_for
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.chain_split import placed, split_chain

__all__ = ["row_split", "why_no_row"]

MOST_DEVICES = 8
MOST_ENTRIES = 16_000_000
"""Of the tables of blocks: with more, operators that follow each other are put together."""

ROOM = (1.0, 0.98, 0.9)
"""Parts of the memory that weights may take, tried in turn: the rest is for live tensors."""


def why_no_row(problem: Problem) -> str | None:
    """Say why there is no use in a split; ``None`` when there is."""
    if len(problem.cluster) > MOST_DEVICES:
        return f"{len(problem.cluster)} devices are more than the {MOST_DEVICES} of which all orders are tried"
    return None


def row_split(
    problem: Problem,
    *,
    budget: Budget,
    rng: np.random.Generator,
    incumbent: Plan | None = None,
    on_progress: OnProgress = ignore,
) -> Result:
    """Cut the operators, in the order of the graph, into blocks of one device each, devices in the best order.

    Minimised is the sum of the blocks' processing times, of what they lose at cuts, and of the transfers into them, as
    one sample goes through them one after the other, under the devices' memory: the recurrence of
    :func:`placewright.solvers.chain_split.split_chain`. What lies between two colocated operators is in their block.

    Guarantee: none. The best plan of a block a device, of a chain whose live tensors fit.
    Complexity: O(2^D D^2 m^2) for m operators or colocation classes.
    Source: ours; as splits of layers by hand, of which it is the best one.
    When to use: as a start where memory forces a split; splits by layers, as other programs make them, are not better.

    Examples
    --------
    Of three operators of 1 s on the fast device and 3 s on the slow one two have room on the fast one.

    >>> from placewright import Cluster, Device, Link, Operator, OperatorGraph, Tensor
    >>> graph = OperatorGraph([Operator(v, weight_bytes=10) for v in "abc"],
    ...                       [Tensor("x", 0, (1,), 1), Tensor("y", 1, (2,), 1)])
    >>> pair = Cluster([Device("fast", memory_bytes=24), Device("slow")], [Link(0.0, 10.0, link_class="same-host")])
    >>> problem = Problem(graph, pair, [[1.0, 3.0]] * 3)
    >>> round(row_split(problem, budget=Budget(), rng=np.random.default_rng(0)).value_s, 6)
    5.1
    """
    groups = _rows(problem)
    most = max(2, int((MOST_ENTRIES / len(problem.cluster) ** 3) ** 0.5) - 1)
    if len(groups) > most:
        joined = np.array_split(np.arange(len(groups)), most)
        groups = [[v for k in row.tolist() for v in groups[k]] for row in joined]
    devices = list(range(len(problem.cluster)))
    for room in ROOM:
        split = split_chain(problem, groups, devices, capacity_bytes=problem.cluster.capacity_bytes * room)
        if split is None or budget.spent:
            break
        plan = plan_for(problem, placed(problem, groups, split.device_of_group), provenance=Provenance("row-split"))
        if plan is not None:
            return Result(plan, solver="row-split")
    return Result(solver="row-split")


def _rows(problem: Problem) -> list[list[int]]:
    """Operators one by one; from the first of a class to its last, all in one group."""
    until = np.arange(len(problem.graph))
    for members in problem.graph.colocation:
        until[min(members)] = max(until[min(members)], max(members))
    groups: list[list[int]] = []
    end = -1
    for v, last in enumerate(until.tolist()):
        if v > end:
            groups.append([])
        groups[-1].append(v)
        end = max(end, last)
    return groups
