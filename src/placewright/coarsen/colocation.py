"""Colocation classes as groups, as far as nothing has to leave them and come back."""

from __future__ import annotations

from placewright.problem import Problem

__all__ = ["colocated"]


def colocated(problem: Problem) -> list[tuple[int, ...]]:
    """Find members of a class between which no path leads through other operators: they may as well be one operator.

    Each class is gone through in topological order; a member joins the group before it unless the groups would form a
    cycle. Tied weights at both ends of a network stay apart: the whole network lies between them.

    Returns
    -------
    list of tuple of int
        Groups of two operators and more, ascending.

    Notes
    -----
    **Acyclic** since every merger is tried on the graph of groups as it then is. O(k (n + m)) for k members of
    classes.

    Examples
    --------
    >>> from placewright import Cluster, Device, Operator, OperatorGraph, Tensor
    >>> graph = OperatorGraph([Operator(v) for v in "abcd"], [Tensor("x", 0, (1, 2)), Tensor("y", 2, (3,))],
    ...                       [[0, 1, 3]])
    >>> colocated(Problem(graph, Cluster([Device("gpu")]), [[1.0]] * 4))  # from a to d a path leads through c
    [(0, 1)]
    """
    graph = problem.graph
    root = list(range(len(graph)))
    members = {v: [v] for v in range(len(graph))}
    for row in graph.colocation:
        group = row[0]
        for v in row[1:]:
            if _apart(problem, root, members, group, v):
                group = v
                continue
            members[group] += members.pop(v)
            root[v] = group
    return [tuple(sorted(row)) for row in members.values() if len(row) > 1]


def _apart(problem: Problem, root: list[int], members: dict[int, list[int]], group: int, v: int) -> bool:
    """Whether a path leads from a group through others to an operator, or from there to the group."""
    graph = problem.graph
    ends = {group, v}
    pending = [root[r] for end in ends for w in members[end] for r in graph.successors[w]]
    # Stepping from one end right into the other is no way around; stepping out and back is.
    pending = [k for k in pending if k not in ends]
    seen = set(pending)
    while pending:
        for w in members[pending.pop()]:
            for r in graph.successors[w]:
                k = root[r]
                if k in ends:
                    return True
                if k not in seen:
                    seen.add(k)
                    pending.append(k)
    return False
