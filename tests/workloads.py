"""Where the published workloads are; tests that need them are skipped where they are not."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("PLACEWRIGHT_WORKLOADS", Path(__file__).parents[2] / "shared/workloads"))


def workload(name: str) -> Path:
    """A file of the workloads, by its path in their folder."""
    path = FOLDER / name
    if not path.is_file():
        pytest.skip(f"there is no {path}; PLACEWRIGHT_WORKLOADS names the folder of the workloads")
    return path


def workloads(pattern: str) -> list[str]:
    """Paths of all workloads that match; one that is not there, so that a test says what is skipped, when none does."""
    found = sorted(p.relative_to(FOLDER).as_posix() for p in FOLDER.glob(pattern) if p.name != "LICENSE.txt")
    return found or [pattern]


def reference(method: str) -> list[tuple[str, float]]:
    """File and value of each row of ``reference.csv`` of a method."""
    path = FOLDER / "reference.csv"
    if not path.is_file():
        return []
    with path.open() as file:
        rows = [r for r in csv.DictReader(file) if r["method"] == method and r["problem"].startswith("max-load-con")]
    return [(r["file"], float(r["value"])) for r in rows]
