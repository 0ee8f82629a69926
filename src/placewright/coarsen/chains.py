"""Chains: an operator with one reader, which reads nothing else, and so on."""

from __future__ import annotations

from math import inf

import numpy as np
import numpy.typing as npt

from placewright.problem import Problem

__all__ = ["chains"]


def chains(problem: Problem, *, at_most_s: float = inf, most_operators: int = 1 << 30) -> list[tuple[int, ...]]:
    """Find groups of operators that follow each other, with nothing that leaves or enters in between.

    A chain ends where an operator has several readers, or makes an output of the network; where a reader reads of
    several operators, or may use other devices; and where it would grow beyond a limit.

    Parameters
    ----------
    problem : Problem
    at_most_s : float
        Seconds that a chain of several operators may take on its fastest device.
    most_operators : int

    Returns
    -------
    list of tuple of int
        Chains of two operators and more, each in topological order.

    Notes
    -----
    **Acyclic.** Merge u with its only reader v, which reads of u alone. A new cycle would leave the pair and come back
    into it. It can leave only from v and come back only into u, since u has no other reader and v reads nothing else:
    a path from v to u, which closed a cycle before. What is merged again looks like u and v, so that the same holds
    for the next link. O(n + m).

    **What is lost.** A plan that changes devices within a chain. Such a plan sends a tensor of the chain, which may be
    smaller than those at its ends.

    Examples
    --------
    >>> from placewright import Cluster, Device, Operator, OperatorGraph, Tensor
    >>> graph = OperatorGraph([Operator(v) for v in "abcd"],
    ...                       [Tensor("x", 0, (1,)), Tensor("y", 1, (2,)), Tensor("z", 0, (3,))])
    >>> chains(Problem(graph, Cluster([Device("gpu")]), [[1.0]] * 4))
    [(1, 2)]
    """
    graph, allowed = problem.graph, problem.allowed
    fastest = np.where(allowed, problem.times.processing_s, np.inf)
    found: list[list[int]] = []
    chain_of: dict[int, int] = {}
    total: dict[int, npt.NDArray[np.float64]] = {}
    for v in range(len(graph)):
        before = graph.predecessors[v]
        if len(before) == 1 and len(graph.successors[before[0]]) == 1:
            k = chain_of[before[0]]
            together = total[k] + fastest[v]
            if (
                len(found[k]) < most_operators
                and not any(graph.tensors[u].output for u in graph.outputs_of[before[0]])
                and (allowed[before[0]] == allowed[v]).all()
                and together.min() <= at_most_s
            ):
                found[k].append(v)
                chain_of[v] = k
                total[k] = together
                continue
        chain_of[v] = len(found)
        total[len(found)] = fastest[v]
        found.append([v])
    return [tuple(row) for row in found if len(row) > 1]
