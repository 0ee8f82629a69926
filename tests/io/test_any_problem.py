"""What kind of problem a file holds, its content says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from placewright.errors import InvalidInput
from placewright.io import problem_to_json, read_any_problem
from placewright.objective import MaxLoad
from tests.io.test_partitioning_file import FORK
from tests.report.two_branches import problem


def written(folder: Path, content: object) -> Path:
    path = folder / "p.json"
    path.write_text(json.dumps(content))
    return path


def test_problem_files_and_workloads_are_told_apart(tmp_path: Path) -> None:
    """By their keys; a workload states no objective."""
    found = read_any_problem(written(tmp_path, problem_to_json(problem())))
    assert (found.kind, found.states_objective, len(found.problem.graph)) == ("problem file", True, 4)
    found = read_any_problem(written(tmp_path, FORK))
    assert (found.kind, found.states_objective, found.problem.objective) == ("workload", False, MaxLoad())


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"maxFPGAs": 1}, "workload '{}': top level: object missing required field `maxCPUs`; correct it"),
        ({"nodes": [], "edges": []}, "workload '{}': top level: object missing required field `maxFPGAs`; correct it"),
        ({"cpus": [], "fpgas": []}, "file '{}': is a split of dnn-partitioning, not a problem; give the workload"),
        ({"schema": 1, "nodes": [], "edges": []}, "problem file '{}': "),
        ({"a": 1}, "problem file '{}': has no 'schema'; this takes a file with the schema 'placewright/problem/1'"),
        ([], "problem file '{}': "),
    ],
)
def test_what_is_neither(tmp_path: Path, content: object, complaint: str) -> None:
    """The line says what the file was taken for."""
    path = written(tmp_path, content)
    with pytest.raises(InvalidInput) as caught:
        read_any_problem(path)
    assert str(caught.value).startswith(complaint.format(path))
