"""The published offload workloads: what ``auto`` finds and proves, and every algorithm beside the published ones.

Run: ``python benchmarks/quality/offload.py [--budget 60] [--only bert] [-o docs/offload.md]``. The workloads are read
from ``../shared/workloads`` or from the folder that ``PLACEWRIGHT_WORKLOADS`` names; values are compared with the
reference table there. Compiling is not counted.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from published import Reference, gap_of, rows_of, run, split_of

import placewright as pw
from placewright._kernel.warm import warm_up
from placewright.algorithm import Budget
from placewright.io import read_partitioning, read_split
from placewright.solvers.entry import Entry
from placewright.solvers.expert import Expert

FOLDER = "dnn-partitioning/offload"
BASELINES = {
    "offload-greedy": "published-greedy",
    "max-load-split": "published-dp-split-as-offload",
    "expert": "published-expert",
    "scotch": "published-scotch-1-thread",
}
"""Solver -> method in the reference table."""
SOLVERS = ("spine-plan", "call-annealing", "offload-cp-sat", "offload-milp", "auto")


@dataclass(frozen=True)
class Row:
    """One run: milliseconds and seconds."""

    value_ms: float
    bound_ms: float
    seconds: float
    broken: str

    @property
    def gap(self) -> float:
        """Share of the value that is not proved."""
        return gap_of(self.value_ms, self.bound_ms)


def measured(path: Path, calls: int | None, solver: str, budget_s: float) -> Row:
    """Run one solver on one file."""
    problem, given = read_partitioning(path, pw.Offload(calls)), {}
    split = split_of(path)
    if solver == "expert" and split is None:
        return Row(math.inf, 0.0, 0.0, "no split")
    clock = time.monotonic()
    try:
        if solver == "expert" and split is not None:
            given["expert"] = Entry(Expert(read_split(split, problem).device_of), False, "", starts_afresh=True)
        result = pw.solve(problem, solver=solver, budget=Budget(budget_s), given=given)
    except pw.PlacewrightError as error:
        return Row(math.inf, 0.0, 0.0, str(error))
    seconds = time.monotonic() - clock
    value, broken = result.value_s, ""
    if result.plan is None:
        value, broken = result.rejected_s, result.rejected or result.infeasible or "no plan"
    elif pw.verify(problem, result.plan):
        raise SystemExit(f"{path.stem}, {solver}: verify: {pw.verify(problem, result.plan)[0]}")
    return Row(value * 1e3, result.lower_bound_s * 1e3, seconds, broken)


def sections(paths: Sequence[Path], reference: Reference, options: argparse.Namespace) -> Iterator[Iterable[str]]:
    """Make the tables of the document."""
    warm_up("offload")
    warm_up("max-load")  # max-load-split
    yield _auto(paths, reference, options.budget)
    yield _baselines(paths, reference, options.compare_budget)
    yield _side_by_side(paths, options.compare_budget)


def main() -> None:
    """Print the tables, and write them where ``-o`` says."""
    remarks = (
        "Latencies in milliseconds; every plan was checked by `verify`. Compiling is not counted.",
        "Best known before: from trials of the authors' programs and others, run on a machine of the same kind.",
        "5 of the 8 published workloads: the others were not at hand.",
    )
    run("offload.py", FOLDER, "Published offload workloads", remarks, sections, __doc__)


def _auto(paths: Sequence[Path], reference: Reference, budget_s: float) -> Iterable[str]:
    yield "## `auto`"
    yield ""

    def rows() -> Iterator[list[str]]:
        for path in paths:
            known = reference.get((path.stem, "offload", "best-known"), {})
            for calls in (1, None):
                row = measured(path, calls, "auto", budget_s)
                ours = [f"{row.value_ms:.6f}", f"{row.bound_ms:.6f}", f"{row.gap:.1e}", f"{row.seconds:.1f}"]
                yield [path.stem, str(calls or "any"), *ours, known.get("value", ""), known.get("bound", "")]

    headings = "workload, calls, value, bound, gap, seconds, best known before, its bound"
    yield from rows_of(headings.split(", "), rows(), left=2)


def _baselines(paths: Sequence[Path], reference: Reference, budget_s: float) -> Iterable[str]:
    yield "## The published baselines: ours (published)"
    yield ""
    yield "A star: the placement breaks a rule (memory, number of devices), as the published program's does."
    yield ""

    def cell(path: Path, solver: str) -> str:
        known = reference.get((path.stem, "offload", BASELINES[solver]), {}).get("value", "")
        if solver == "expert" and not known:
            return ""
        row = measured(path, None, solver, budget_s)
        ours = f"{row.value_ms:.6g}" if row.value_ms < math.inf else "none"
        return ours + ("*" if row.broken else "") + (f" ({float(known):.6g})" if known else "")

    yield from rows_of(["workload", *BASELINES], ([p.stem, *(cell(p, s) for s in BASELINES)] for p in paths))


def _side_by_side(paths: Sequence[Path], budget_s: float) -> Iterable[str]:
    yield f"## Side by side, any number of calls, {budget_s:g} s each"
    yield ""
    yield "Value, gap and seconds of each solver by itself; without a bound of its own the gap to the quick one."
    yield ""

    def cell(path: Path, solver: str) -> str:
        row = measured(path, None, solver, budget_s)
        return f"{row.value_ms:.6g}, {row.gap:.2%}, {row.seconds:.1f} s"

    yield from rows_of(["workload", *SOLVERS], ([p.stem, *(cell(p, s) for s in SOLVERS)] for p in paths))


if __name__ == "__main__":
    main()
