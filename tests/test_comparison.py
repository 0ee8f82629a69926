"""Comparing solvers: what is reported while they run, and what is kept when they are interrupted."""

from __future__ import annotations

import pytest

import placewright as pw
from placewright import comparison
from placewright.algorithm import Progress
from placewright.comparison import compare, left_out
from placewright.problem import Problem
from placewright.result import Result


def pair() -> Problem:
    """Two operators on two devices: 2 s on one device, and 1 s when each has its own."""
    graph = pw.OperatorGraph([pw.Operator("a"), pw.Operator("b")])
    cluster = pw.Cluster([pw.Device("d0"), pw.Device("d1")], [pw.Link(0.0, 1.0, link_class="same-host")])
    return Problem(graph, cluster, [[1.0, 1.0], [1.0, 1.0]])


def test_every_solver_reports_before_it_starts_and_each_report_knows_the_bound() -> None:
    """Single-device runs in silence, and is named all the same; the bound of 1 s, known at once, is never dropped."""
    reports: list[Progress] = []
    compare(pair(), ["single-device", "annealing"], budget_s=0.2, on_progress=reports.append)
    assert list(dict.fromkeys(r.solver for r in reports)) == ["single-device", "annealing"]
    assert [r.lower_bound_s for r in reports] == [0.0] + [pytest.approx(1.0)] * (len(reports) - 1)


def test_interrupted_between_two_searches_what_was_found_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the second solver is made ready: its row says so, the first one's stays, the third is not run."""
    known = comparison.solve

    def solve(problem: Problem, *, solver: str, **rest: object) -> Result:
        if solver == "etf":
            raise KeyboardInterrupt
        return known(problem, solver=solver, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(comparison, "solve", solve)
    rows = compare(pair(), ["heft", "etf", "annealing"], budget_s=0.2)
    assert [(name, r.value_s, r.interrupted) for name, r in rows] == [("heft", 1.0, False), ("etf", float("inf"), True)]
    with pytest.raises(KeyboardInterrupt):
        compare(pair(), ["etf", "heft"], budget_s=0.2)


def test_solvers_that_were_left_out_come_with_their_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torch, placeto is left out; what was run, or left to the user, has no reason."""
    monkeypatch.setattr("placewright.solvers.makespan.placeto.find_spec", lambda name: None)
    reasons = left_out(pair(), [("heft", Result())])
    assert reasons["placeto"].startswith("it needs torch")
    assert "heft" not in reasons
    assert "annealing" not in reasons
