"""Operators that are wished on one device are placed there by every plan."""

from __future__ import annotations

import numpy as np
import pytest

from placewright.cluster import Cluster, Device, Link
from placewright.errors import InvalidInput
from placewright.graph import Operator, OperatorGraph
from placewright.problem import Problem
from placewright.solve import solve
from placewright.together import kept_together

NAMES = ["h.0.a", "h.0.b", "h.1.a", "h.1.b"]
GRAPH = OperatorGraph([Operator(name, parts=(name, f"{name}.part")) for name in NAMES], (), [(1, 2)])
PAIR = Cluster([Device("x"), Device("y")], [Link(0.0, 1e9, link_class="same-host")])
APART = np.array([[1.0, 3.0], [1.0, 3.0], [3.0, 1.0], [3.0, 1.0]])


def test_each_pattern_is_a_class_beside_those_of_the_graph() -> None:
    """Patterns match names and parts; classes that overlap, also with those of the graph, are merged."""
    problem = Problem(OperatorGraph(GRAPH.operators), PAIR, APART)
    assert kept_together(problem, ["h.0.*", "h.1.?.part"]).graph.colocation == ((0, 1), (2, 3))
    assert kept_together(Problem(GRAPH, PAIR, APART), ["h.0.*"]).graph.colocation == ((0, 1, 2),)
    assert kept_together(problem, []) is problem


def test_plans_keep_to_it() -> None:
    """The best plan has each pair where it is fast, 2 s; with one of each pair together all are on one device, 8 s."""
    problem = Problem(OperatorGraph(GRAPH.operators), PAIR, APART)
    assert solve(problem, budget=2).value_s == 2.0
    assert solve(kept_together(problem, ["h.?.*"]), budget=2).value_s == 8.0


def test_patterns_that_tie_nothing_are_refused() -> None:
    """None or one operator that matches: both patterns are named."""
    with pytest.raises(InvalidInput) as refused:
        kept_together(Problem(GRAPH, PAIR, APART), ["g.*", "h.0.a"])
    assert "together 'g.*': no operator matches it" in str(refused.value)
    assert "together 'h.0.a': only 'h.0.a' matches it" in str(refused.value)
