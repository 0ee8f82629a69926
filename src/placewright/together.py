"""Operators that a user wants on one device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from placewright.errors import InvalidInput
from placewright.problem import Problem

__all__ = ["kept_together"]


def kept_together(problem: Problem, patterns: Sequence[str]) -> Problem:
    """Return the problem with a colocation class for each pattern, of the operators whose name or part matches it.

    Raises
    ------
    InvalidInput
        For each pattern that fewer than two operators match.

    Examples
    --------
    >>> from placewright import Cluster, Device, Operator, OperatorGraph
    >>> graph = OperatorGraph([Operator("h.0.a"), Operator("h.0.b"), Operator("head")])
    >>> kept_together(Problem(graph, Cluster([Device("gpu")]), [[1.0]] * 3), ["h.0.*"]).graph.colocation
    ((0, 1),)
    """
    if not patterns:
        return problem
    graph = problem.graph
    classes, violations = list(graph.colocation), []
    for pattern in patterns:
        row = [
            k for k, v in enumerate(graph.operators) if any(fnmatchcase(name, pattern) for name in {v.name, *v.parts})
        ]
        if len(row) < 2:
            found = "no operator matches it" if not row else f"only {graph.operators[row[0]].name!r} matches it"
            violations.append(f"together {pattern!r}: {found}; 'placewright show' lists their names")
        classes.append(tuple(row))
    if violations:
        raise InvalidInput(violations)
    return replace(problem, graph=replace(graph, colocation=tuple(classes)))
