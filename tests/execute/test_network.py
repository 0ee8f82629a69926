"""The network of a plan is looked for in the folder of the plan, nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from placewright.cluster import Cluster, Device
from placewright.errors import InvalidInput
from placewright.execute.network import find_model
from placewright.graph import Operator, OperatorGraph, Source
from placewright.problem import Problem


def problem(source: Source | None) -> Problem:
    graph = OperatorGraph([Operator("a")], name="net", source=source)
    return Problem(graph, Cluster([Device("d")]), [[1.0]])


def test_a_model_is_found_at_its_path_below_the_plan_or_beside_it(tmp_path: Path) -> None:
    """First as it was named, then by its name alone."""
    (tmp_path / "models").mkdir()
    below = tmp_path / "models" / "net.onnx"
    below.touch()
    given = problem(Source("onnx", "models/net.onnx"))
    assert find_model(given, tmp_path) == below
    beside = tmp_path / "net.onnx"
    below.rename(beside)
    assert find_model(given, tmp_path) == beside
    assert find_model(problem(Source("onnx", "/somewhere/else/net.onnx")), tmp_path) == beside


@pytest.mark.parametrize("location", ["../secret.onnx", "/etc/passwd", "a\0b.onnx", "x" * 5000, ".", ""])
def test_a_path_in_a_plan_is_never_followed_out_of_its_folder(tmp_path: Path, location: str) -> None:
    """Neither up, nor to the root; nonsense is refused in the same words."""
    folder = tmp_path / "plan"
    folder.mkdir()
    (tmp_path / "secret.onnx").touch()
    with pytest.raises(InvalidInput, match=r"is not in the plan's folder .*; give it with --model PATH"):
        find_model(problem(Source("onnx", location)), folder)


@pytest.mark.skipif(os.name != "posix", reason="links")
def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    """Where a name leads counts, not where it stands; a circle of links leads nowhere."""
    folder = tmp_path / "plan"
    folder.mkdir()
    (tmp_path / "secret.onnx").touch()
    (folder / "net.onnx").symlink_to(tmp_path / "secret.onnx")
    (folder / "loop.onnx").symlink_to(folder / "loop.onnx")
    for name in ("net.onnx", "loop.onnx"):
        with pytest.raises(InvalidInput, match="is not in the plan's folder"):
            find_model(problem(Source("onnx", name)), folder)
