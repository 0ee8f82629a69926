"""Published sheets of Moirai: no plan is below a proved optimum, and the smallest one is proved."""

from __future__ import annotations

import csv
from functools import cache

import numpy as np
import pytest

from placewright.algorithm import Budget
from placewright.bounds import BOUNDS
from placewright.io import read_moirai
from placewright.problem import Problem
from placewright.solvers import SOLVERS
from placewright.verify import verify
from tests.workloads import FOLDER, workload, workloads

SHEETS = workloads("moirai/*.xls")
MEMORY_BINDS = "moirai/example-1.xls"
"""Its 44 bits fill three devices of 14, 14 and 16 to the last one."""


@cache
def _posed(sheet: str) -> Problem:
    return read_moirai(workload(sheet)).problem


def _optimum_ms(sheet: str) -> float:
    """Value that reference.csv states as proved; both ends of what it states agree."""
    with workload("reference.csv").open() as file:
        rows = [r for r in csv.DictReader(file) if r["file"] == sheet and r["problem"] == "makespan-port"]
    assert rows, f"{FOLDER / 'reference.csv'} has no makespan of {sheet}"
    best = min(rows, key=lambda r: float(r["value"]))
    assert "proven" in best["note"] and best["value"] == best["bound"]
    return float(best["value"])


@pytest.mark.parametrize("sheet", SHEETS)
@pytest.mark.parametrize("solver", ["single-device", "heft", "etf", "annealing"])
def test_no_plan_is_below_the_optimum(sheet: str, solver: str) -> None:
    """A value below it would mean that the sheet is read, or the plan judged, more kindly than where it was proved."""
    problem = _posed(sheet)
    budget = Budget(iterations=20_000)
    result = SOLVERS["makespan"][solver].algorithm(problem, budget=budget, rng=np.random.default_rng(0))
    if result.plan is None:
        assert sheet == MEMORY_BINDS  # a list scheduler that finds no room gives up
        return
    assert verify(problem, result.plan) == ()
    assert result.value_s * 1e3 >= _optimum_ms(sheet) * (1 - 1e-9)


@pytest.mark.parametrize("sheet", SHEETS)
def test_no_bound_is_above_the_optimum(sheet: str) -> None:
    """Every bound that is computed for every plan."""
    problem = _posed(sheet)
    for name, bound in BOUNDS["makespan"].items():
        result = bound(problem, budget=Budget(5), rng=np.random.default_rng(0))
        assert result.lower_bound_s * 1e3 <= _optimum_ms(sheet), name


def test_the_toy_is_proved() -> None:
    """example-1, 14 operators on 3 devices that they fill to the last bit, takes 30: found and proved."""
    algorithm = SOLVERS["makespan"]["makespan-cp-sat"].algorithm
    result = algorithm(_posed(MEMORY_BINDS), budget=Budget(iterations=100_000), rng=np.random.default_rng(0))
    assert result.status.value == "optimal"
    assert result.value_s * 1e3 == pytest.approx(_optimum_ms(MEMORY_BINDS), rel=1e-9)


@pytest.mark.parametrize("sheet", SHEETS)
def test_where_memory_binds(sheet: str) -> None:
    """In example-1 alone: the networks' weights fit the smallest device many times over, so that modules are apart."""
    problem = _posed(sheet)
    smallest = min(d.capacity_bytes for d in problem.cluster.devices)
    binds = problem.resident_bytes.sum() > smallest
    assert binds == (sheet == MEMORY_BINDS)
