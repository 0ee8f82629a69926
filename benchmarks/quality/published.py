"""What the benchmarks on published workloads share: folder, reference values, options, and how tables are made."""

from __future__ import annotations

import argparse
import csv
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from placewright.host import cpu_name
from placewright.io import write_atomic

WORKLOADS = Path(os.environ.get("PLACEWRIGHT_WORKLOADS", Path(__file__).parents[3] / "shared/workloads"))
EXPERTS = WORKLOADS / "dnn-partitioning/expert"

Reference = Mapping[tuple[str, str, str], Mapping[str, str]]
"""(workload, problem, method) -> row of the reference table."""
Sections = Callable[[Sequence[Path], Reference, argparse.Namespace], Iterable[Iterable[str]]]


def reference_of(folder: str) -> Reference:
    """Read the reference values of the workloads in a folder."""
    with (WORKLOADS / "reference.csv").open() as file:
        rows = [r for r in csv.DictReader(file) if folder in r["file"]]
    return {(Path(r["file"]).stem, r["problem"], r["method"]): r for r in rows}


def split_of(path: Path) -> Path | None:
    """Find the human expert's split of a workload; training may use the inference network's."""
    name = path.stem.removeprefix("layer_")
    files = [EXPERTS / f"{n}_expert.json" for n in (name, name.replace("_training", "_inference"))]
    return next((f for f in files if f.exists()), None)


def gap_of(value_ms: float, bound_ms: float) -> float:
    """Share of the value that is not proved."""
    return max(0.0, 1 - bound_ms / value_ms) if 0 < value_ms < float("inf") else 1.0


def rows_of(headings: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> Iterable[str]:
    """Lines of a table, one at a time, the first ``left`` columns aligned to the left."""
    yield f"| {' | '.join(headings)} |"
    yield f"|{'---|' * left}{'---:|' * (len(headings) - left)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def run(program: str, folder: str, title: str, remarks: Sequence[str], sections: Sections, doc: str | None) -> None:
    """Take the command line, print each section, and write all where ``-o`` says."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for what is to be proved")
    parser.add_argument("--compare-budget", type=float, default=10.0, help="seconds where solvers stand side by side")
    parser.add_argument("--only", default="", help="part of the workloads' names")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    paths = [p for p in sorted((WORKLOADS / folder).glob("*.json")) if options.only in p.stem]
    if not paths:
        parser.error(f"no workloads in {WORKLOADS / folder}; set PLACEWRIGHT_WORKLOADS to the folder that holds them")
    text = [
        f"# {title}",
        "",
        f"Made by `python benchmarks/quality/{program} --budget {options.budget:g} --compare-budget "
        f"{options.compare_budget:g}` on {os.cpu_count()} cores ({cpu_name()}), seed 0.",
        *remarks,
        "",
    ]
    for section in sections(paths, reference_of(folder), options):
        for line in section:
            print(line, flush=True)
            text.append(line)
        text.append("")
    if options.output is not None:
        write_atomic(options.output, "\n".join(text))
