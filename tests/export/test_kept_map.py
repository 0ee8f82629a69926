"""A part of a device_map becomes pins of what it names, and of nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.cluster import Cluster, Device, Link
from placewright.errors import InvalidInput
from placewright.export.kept_map import kept_as
from placewright.graph import Operator, OperatorGraph
from placewright.problem import Problem

NAMES = ["embed", "h.0.a", "h.0.b", "h.1.a", "h.10.a", "h.norm", "h[1].x", "head"]
DEVICES = [Device("ram", kind="cpu"), Device("a"), Device("b")]


def problem(names: list[str] = NAMES) -> Problem:
    graph = OperatorGraph([Operator(name, weight_bytes=10) for name in names])
    return Problem(graph, Cluster(DEVICES, [Link(0.0, 1e9, link_class="same-host")]), np.ones((len(names), 3)))


def expected(found: dict[str, int | str], name: str) -> int | None:
    """Device of the path of most letters that is the name, a module around it, or empty."""
    fits = [path for path in found if path in ("", name) or name.startswith(path + ".")]
    words = {"cpu": 0, 0: 1, 1: 2, "a": 1, "cuda:1": 2}
    return words[found[max(fits, key=len)]] if fits else None


PATHS = ["", "embed", "h", "h.0", "h.1", "h.10", "h.0.b", "h.norm", "h[1]", "h[1].x", "head"]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.dictionaries(st.sampled_from(PATHS), st.sampled_from(["cpu", 0, 1, "a", "cuda:1"])))
def test_named_modules_are_held_and_all_others_free(found: dict[str, int | str]) -> None:
    """By a second reading of what a path means: brackets stand for themselves, h.1 is no part of h.10."""
    allowed = kept_as(found, problem()).allowed
    for v, name in enumerate(NAMES):
        device = expected(found, name)
        assert np.flatnonzero(allowed[v]).tolist() == ([0, 1, 2] if device is None else [device])


def test_a_whole_module_is_one_pin() -> None:
    """So that a plan of a thousand operators has a few wishes to show."""
    assert [(w.pattern, w.device) for w in kept_as({"h.0": 1, "head": "cpu"}, problem()).wishes] == [
        ("h.0.*", "b"),
        ("head", "ram"),
    ]


def test_operators_go_where_their_name_says_or_else_the_first_part_that_lies_in_a_path() -> None:
    """A fused operator of two modules is held by its own name first."""
    given = problem()
    operators = [replace(v, parts=("h.0.a", "head.bias")) if v.name == "h.0.a" else v for v in given.graph.operators]
    given = replace(given, graph=replace(given.graph, operators=operators))
    assert np.flatnonzero(kept_as({"head": 0}, given).allowed[1]).tolist() == [1]
    assert np.flatnonzero(kept_as({"head": 0, "h.0": 1}, given).allowed[1]).tolist() == [2]


def test_everything_that_is_wrong_is_said() -> None:
    """Both what is no device and what is no module."""
    with pytest.raises(InvalidInput) as refused:
        kept_as({"h.7": 0, "head": "disk"}, problem())
    assert "puts 'head' on disk" in str(refused.value)
    assert "names 'h.7', of which this network has no operator" in str(refused.value)
