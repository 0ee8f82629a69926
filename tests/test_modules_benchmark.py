"""The program that compares splitting with solving whole networks: its chains, its ratios and its page."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from argparse import Namespace
from math import inf
from pathlib import Path

import numpy as np
import pytest
from benchmarks.quality import modules as program
from benchmarks.quality import modules_pairs
from benchmarks.quality.modules_chains import BRANCHES, chain
from benchmarks.quality.timed_runs import Kept, Run

import placewright as pw
from placewright.solvers.makespan.modules import modules_of

SIZE = 1 + sum(BRANCHES)


def _options(**given: object) -> Namespace:
    return Namespace(**{**program.DEFAULTS, **program.LISTS, "workloads": Path("none"), **given})


def _run(value_s: float, bound_s: float, wall_s: float, *found: tuple[float, float]) -> Run:
    return Run(value_s, bound_s, wall_s, wall_s, list(found), {})


@pytest.mark.parametrize("equal", [True, False])
def test_chains_have_the_modules_that_they_are_said_to_have(equal: bool) -> None:
    """A module ends in an operator on every path; equal ones have equal times, unlike ones don't."""
    problem = chain(3, 2, equal=equal)
    assert len(problem.graph) == 3 * SIZE + 1
    assert [len(m.inner) for m in modules_of(problem.graph) if m.entry is not None] == [sum(BRANCHES)] * 3
    own = problem.times.processing_s[1:].reshape(3, SIZE, 2)
    assert bool((own[0] == own[1]).all()) == equal
    assert np.array_equal(problem.times.processing_s, chain(3, 2, equal=equal).times.processing_s)


def test_ratios_of_a_row() -> None:
    """CP-SAT ends with 100 after 20 s, and had 102 after 8; the split has 103 after 1 s, 101 after 2, 99 after 4.

    Within 1 % of 100 after 2 s: 20 / 2 = 10 times faster. Within 1 % of the best, 99.99, is neither 102 nor 100 but 99:
    CP-SAT is late, its 20 s stand against 4. A split that stays at 103 is never that good.
    """
    whole = _run(100.0, 50.0, 20.0, (8.0, 102.0), (12.0, 100.0))
    row = program.Row(
        "n on c", 9, 2, _run(99.0, 99.0, 4.0, (1.0, 103.0), (2.0, 101.0), (4.0, 99.0)), whole, "heft", 198.0
    )
    assert (row.faster, row.sooner, row.late) == (10.0, 5.0, True)
    assert row.value_ratio == 0.99
    assert row.split.proved and not whole.proved
    cells = program.line(row).split(" | ")
    assert cells[3:] == [
        *("100 s", "20 s, open", "99 s", "2 s", "4 s", "4 s, proved", ">= 10", "-1.00", "0.00", "heft", "100.0 |")
    ]
    worse = program.Row("n on c", 9, 2, _run(103.0, 0.0, 9.0, (1.0, 103.0)), whole, "heft", 103.0)
    assert (worse.faster, worse.late) == (0.0, False)
    assert "never as good" in program.line(worse) and program.line(worse).endswith("| heft | 0.0 |")
    said = " ".join(program.summary([row, worse]))
    assert "at most 10 (n on c); of 2" in said and "never that good on 1" in said and "30 % or more above on 1" in said
    none = program.Row("n on c", 9, 2, _run(inf, 0.0, 9.0), whole, "heft", 103.0)
    assert "| no plan | never | never |" in program.line(none)


def test_a_run_is_kept_and_not_made_again(tmp_path: Path) -> None:
    """A second program reads the file and runs nothing: what it is told to be is what it says."""
    problem, path = chain(1, 2, equal=True), tmp_path / "kept.json"
    run = Kept(path).run(problem, "modular-split", 60.0)
    assert run is not None and run.proved and run.seconds_to(run.value_s) <= run.wall_s
    again = Kept(path)
    again.rows = {key: {**row, "wall_s": 7.0} for key, row in again.rows.items()}
    kept = again.run(problem, "modular-split", 60.0)
    assert kept is not None and kept.wall_s == 7.0


def test_page_and_picture_of_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both solvers prove one module; the page has a line a chain and the command, the picture is well-formed."""
    monkeypatch.setattr(program, "CHAIN_MODULES", 1)
    options = _options(parts=("chains",), modules=(1,), devices=(2,), chain_budget=60.0)
    page, drawn = program.report(Kept(None), options)
    lines = [line for line in page.splitlines() if line.startswith("| 1 |")]
    assert [line.split(" | ")[:3] for line in lines] == [["| 1", "10", "3"], ["| 1", "10", "2"]]
    assert all("left" not in line and "no plan" not in line for line in lines)
    assert "--chain-budget 60 --parts chains --modules 1 --devices 2`" in page
    circles = [e for e in ET.fromstring(drawn).iter() if e.tag.endswith("circle")]
    assert len(circles) == 4 * (1 + 2)  # four curves; a chain on three devices, and that on three and on two


def test_pairs_of_gpus_against_the_fastest_alone() -> None:
    """Two equal branches that are bound by arithmetic, which the A10 and the L4 do at 31.2 and 30.3 TFLOP/s.

    No plan is later than the fastest GPU alone, and no ratio above what its bound allows.
    """
    graph = pw.OperatorGraph(
        [pw.Operator(n, "matmul", flops=10**11, dtype="fp32") for n in "abcd"],
        [pw.Tensor("x", 0, (1, 2), 4_000), pw.Tensor("y", 1, (3,), 4_000), pw.Tensor("z", 2, (3,), 4_000)],
    )
    rows = modules_pairs.compared([("diamond", 1, graph)], ["a10 + l4"], Kept(None), 1.0)
    (row,) = rows
    assert 1.0 <= row.latency_ratio <= row.alone_latency_s / row.latency.bound_s * (1 + 1e-9)
    assert row.latency_ratio > 1.2  # b and c at once: 4 operators in the time of little more than 3
    assert row.throughput_ratio >= 1.0
    assert [line for line in modules_pairs.table(rows) if line.startswith("| diamond | 1 |")]
    assert "1 that fit" in " ".join(modules_pairs.summary(rows))
