"""The published offload workloads: what ``auto`` finds and proves, and every algorithm beside the published ones.

Run: ``python benchmarks/quality/offload.py [--budget 60] [--only bert] [-o docs/offload.md]``. The workloads are read
from ``../shared/workloads`` or from the folder that ``PLACEWRIGHT_WORKLOADS`` names; values are compared with the
reference table there. Compiling is not counted.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import placewright as pw
from placewright._kernel.warm import warm_up
from placewright.algorithm import Budget
from placewright.host import cpu_name
from placewright.io import read_partitioning, read_split, write_atomic
from placewright.solvers.entry import Entry
from placewright.solvers.expert import Expert

WORKLOADS = Path(os.environ.get("PLACEWRIGHT_WORKLOADS", Path(__file__).parents[3] / "shared/workloads"))
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
        return max(0.0, 1 - self.bound_ms / self.value_ms) if 0 < self.value_ms < math.inf else 1.0


def measured(path: Path, calls: int | None, solver: str, budget_s: float) -> Row:
    """Run one solver on one file."""
    problem, given = read_partitioning(path, pw.Offload(calls)), {}
    split = WORKLOADS / "dnn-partitioning/expert" / f"{path.stem.removeprefix('layer_')}_expert.json"
    if solver == "expert" and not split.exists():
        return Row(math.inf, 0.0, 0.0, "no split")
    clock = time.monotonic()
    try:
        if solver == "expert":
            given["expert"] = Entry(Expert(read_split(split, problem).device_of), False, "", starts_afresh=True)
        result = pw.solve(problem, solver=solver, budget=Budget(budget_s), given=given)
    except pw.PlacewrightError as error:
        return Row(math.inf, 0.0, 0.0, str(error))
    seconds = time.monotonic() - clock
    value, broken = result.value_s, ""
    if result.plan is None:
        value, broken = result.rejected_s, result.rejected or result.infeasible or "no plan"
    elif pw.verify(problem, result.plan):
        broken = "verify: " + pw.verify(problem, result.plan)[0]
    return Row(value * 1e3, result.lower_bound_s * 1e3, seconds, broken)


def main() -> None:
    """Print the tables, and write them where ``-o`` says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for auto")
    parser.add_argument("--compare-budget", type=float, default=10.0, help="seconds where solvers stand side by side")
    parser.add_argument("--only", default="", help="part of the workloads' names")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    paths = [p for p in sorted((WORKLOADS / FOLDER).glob("*.json")) if options.only in p.stem]
    if not paths:
        parser.error(f"no workloads in {WORKLOADS / FOLDER}; set PLACEWRIGHT_WORKLOADS to the folder that holds them")
    warm_up("offload")
    warm_up("max-load")  # max-load-split
    text = [
        "# The published offload workloads",
        "",
        f"Made by `python benchmarks/quality/offload.py --budget {options.budget:g} --compare-budget "
        f"{options.compare_budget:g}` on {os.cpu_count()} cores ({cpu_name()}), seed 0.",
        "Latencies in milliseconds; every plan was checked by `verify`. Compiling is not counted.",
        "Best known before: from trials of the authors' programs and others, run on a machine of the same kind.",
        "",
    ]
    reference = _reference()
    sections: list[Callable[[], Iterable[str]]] = [
        lambda: _auto(paths, reference, options.budget),
        lambda: _baselines(paths, reference, options.compare_budget),
        lambda: _side_by_side(paths, options.compare_budget),
    ]
    for section in sections:
        for line in section():
            print(line, flush=True)
            text.append(line)
        text.append("")
    if options.output is not None:
        write_atomic(options.output, "\n".join(text))


Reference = dict[tuple[str, str], dict[str, str]]


def _reference() -> Reference:
    with (WORKLOADS / "reference.csv").open() as file:
        rows = [r for r in csv.DictReader(file) if r["problem"] == "offload"]
    return {(Path(r["file"]).stem, r["method"]): r for r in rows}


def _auto(paths: Sequence[Path], reference: Reference, budget_s: float) -> Iterable[str]:
    yield "## `auto`"
    yield ""
    yield "| workload | calls | value | bound | gap | seconds | best known before | its bound |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for path in paths:
        known = reference.get((path.stem, "best-known"), {})
        for calls in (1, None):
            row = measured(path, calls, "auto", budget_s)
            yield (
                f"| {path.stem} | {calls or 'any'} | {row.value_ms:.6f} | {row.bound_ms:.6f} | {row.gap:.1e} | "
                f"{row.seconds:.1f} | {known.get('value', '')} | {known.get('bound', '')} |{_note(row)}"
            )


def _baselines(paths: Sequence[Path], reference: Reference, budget_s: float) -> Iterable[str]:
    yield "## The published baselines: ours (published)"
    yield ""
    yield "A star: the placement breaks a rule (memory, number of devices), as the published program's does."
    yield ""
    yield f"| workload | {' | '.join(BASELINES)} |"
    yield f"|---|{'---:|' * len(BASELINES)}"
    for path in paths:
        cells = []
        for solver, method in BASELINES.items():
            known = reference.get((path.stem, method), {}).get("value", "")
            if solver == "expert" and not known:
                cells.append("")
                continue
            row = measured(path, None, solver, budget_s)
            ours = f"{row.value_ms:.6g}" if row.value_ms < math.inf else "none"
            cells.append(ours + ("*" if row.broken else "") + (f" ({float(known):.6g})" if known else ""))
        yield f"| {path.stem} | " + " | ".join(cells) + " |"


def _side_by_side(paths: Sequence[Path], budget_s: float) -> Iterable[str]:
    yield f"## Side by side, any number of calls, {budget_s:g} s each"
    yield ""
    yield "Value, gap and seconds of each solver by itself; without a bound of its own the gap to the quick one."
    yield ""
    yield f"| workload | {' | '.join(SOLVERS)} |"
    yield f"|---|{'---:|' * len(SOLVERS)}"
    for path in paths:
        rows = [measured(path, None, solver, budget_s) for solver in SOLVERS]
        yield f"| {path.stem} | " + " | ".join(f"{r.value_ms:.6g}, {r.gap:.2%}, {r.seconds:.1f} s" for r in rows) + " |"


def _note(row: Row) -> str:
    return f" <!-- {row.broken} -->" if row.broken else ""


if __name__ == "__main__":
    main()
