"""Fixtures of the command line: a caller, a problem file, a plan of it, a cluster file."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.cli.commands import CLUSTER, Call, call, fork, written


@pytest.fixture
def placewright(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Call commands in an empty working folder."""
    monkeypatch.chdir(tmp_path)
    return partial(call, capfd)


@pytest.fixture
def problem_file(tmp_path: Path) -> Path:
    return written(tmp_path, fork())


@pytest.fixture
def plan_file(placewright: Call, problem_file: Path, tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    assert placewright("plan", problem_file, "--solver", "heft", "--budget", "0", "-o", path).code == 0
    return path


@pytest.fixture
def cluster_file(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    return path
