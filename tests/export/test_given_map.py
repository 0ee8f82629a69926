"""A device_map is read as a plan, and what it lacks is said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from placewright.cluster import Cluster, Device, Link
from placewright.errors import InvalidInput
from placewright.export.given_map import placed_by_map, read_device_map
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.problem import Problem

NAMES = ["model.embed", "model.h.0.a", "model.h.0.b", "model.h.1.a", "model.norm.pow_1", "head"]


def problem(limit: int | None = None) -> Problem:
    graph = OperatorGraph(
        [Operator(name, weight_bytes=1000) for name in NAMES],
        [Tensor(f"t{k}", k, (k + 1,), 1) for k in range(len(NAMES) - 1)],
    )
    devices = [Device("ram", kind="cpu"), Device("a", memory_bytes=limit), Device("b")]
    return Problem(graph, Cluster(devices, [Link(1e-3, 1e9, link_class="same-host")]), np.ones((6, 3)))


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ({"": "cpu"}, [0] * 6),
        ({"model.embed": 0, "model.h.0": 0, "model.h.1": 1, "model.norm": 1, "head": "cpu"}, [1, 1, 1, 2, 2, 0]),
        ({"": "b", "model.h": "cuda:0", "model.h.1": "cpu"}, [2, 1, 1, 0, 2, 2]),  # the longest path counts
        ({"": 1, "model.h.0.a": 0}, [2, 1, 2, 2, 2, 2]),
    ],
)
def test_operators_are_where_the_longest_path_says(found: dict[str, int | str], wanted: list[int]) -> None:
    """Accelerators by number, the CPU, and devices by name; the empty path is for all others."""
    assert placed_by_map(found, problem()).device_of.tolist() == wanted


def test_a_file_that_export_wrote_is_read(tmp_path: Path) -> None:
    """The object with device_map and max_memory, or the map alone."""
    path = tmp_path / "map.json"
    for document in ({"device_map": {"": 1}, "max_memory": {"1": 5}}, {"": 1}):
        path.write_text(json.dumps(document))
        assert read_device_map(path, problem()).device_of.tolist() == [2] * 6


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"": 7}', "puts modules on 7, which is no device of this cluster; there are cpu"),
        ('{"": "disk"}', "puts modules on disk, which is no device"),
        ('{"model": 0}', "has no module that holds head; name one, or the empty path for all others"),
        ('{"": [1]}', "is no object of module paths and devices"),
        ('{"": 0}', "device 'a' needs"),
        ("[]", "device map"),
    ],
)
def test_maps_that_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    """The thing, and what to do."""
    path = tmp_path / "map.json"
    path.write_text(text)
    with pytest.raises(InvalidInput) as refused:
        read_device_map(path, problem(limit=3500))
    assert complaint in str(refused.value)
