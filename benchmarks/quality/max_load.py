"""The published max-load workloads: every algorithm's value, bound, gap and time, and any-time curves.

Run: ``python benchmarks/quality/max_load.py [--budget 60] [--only bert] [-o docs/max-load.md]``. The workloads are read
from ``../shared/workloads`` or from the folder that ``PLACEWRIGHT_WORKLOADS`` names; values are compared with the
reference table there. Every solver runs in a process of its own: so its peak memory is known. Compiling is not counted.
"""

from __future__ import annotations

import argparse
import csv
import math
import multiprocessing
import os
import resource
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
FOLDER = "dnn-partitioning/throughput"
BASELINES = {
    "single-device": "published-one-accelerator",
    "expert": "published-expert",
    "linearized-dp": "published-dpl",
    "pipedream": "published-pipedream",
    "local-search": "published-local-search-10",
    "scotch": "published-scotch-1-thread",
}
"""Solver -> method in the reference table."""
ANY_SOLVERS = ("annealing", "pair-search", "max-load-cp-sat", "max-load-milp", "auto")
CONTIGUOUS_SOLVERS = ("order-search", "ideal-dp", "max-load-cp-sat", "max-load-milp", "auto")
MARKS_S = (1, 2, 5, 10, 20, 30, 60)
"""Moments at which the any-time curves are read."""


@dataclass(frozen=True)
class Row:
    """One run: milliseconds, seconds and MB."""

    value_ms: float
    bound_ms: float
    seconds: float
    peak_mb: float
    broken: str
    curve: tuple[tuple[float, float, float], ...]
    detail: dict[str, object]

    @property
    def gap(self) -> float:
        """Share of the value that is not proved."""
        return max(0.0, 1 - self.bound_ms / self.value_ms) if 0 < self.value_ms < math.inf else 1.0


def measured(path: Path, contiguity: str, solver: str, budget_s: float) -> Row:
    """Run one solver in a process of its own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    worker = context.Process(target=_work, args=(theirs, path, contiguity, solver, budget_s))
    worker.start()
    theirs.close()
    try:
        row: Row = ours.recv()
    except EOFError:
        row = Row(math.inf, 0.0, 0.0, 0.0, "the process ended", (), {})
    worker.join()
    return row


def _work(
    pipe: multiprocessing.connection.Connection, path: Path, contiguity: str, solver: str, budget_s: float
) -> None:
    problem = read_partitioning(path, pw.MaxLoad(contiguity=contiguity))  # type: ignore[arg-type]
    warm_up("max-load")
    curve: list[tuple[float, float, float]] = []
    clock = time.monotonic()

    def seen(progress: pw.Progress) -> None:
        curve.append((time.monotonic() - clock, progress.value_s * 1e3, progress.lower_bound_s * 1e3))

    given = {}
    if solver == "expert":
        given["expert"] = Entry(Expert(read_split(_split_of(path), problem).device_of), False, "", starts_afresh=True)
    try:
        result = pw.solve(problem, solver=solver, budget=Budget(budget_s), on_progress=seen, given=given)
    except pw.PlacewrightError as error:
        pipe.send(Row(math.inf, 0.0, 0.0, 0.0, str(error), (), {}))
        return
    seconds = time.monotonic() - clock
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    value, broken = result.value_s, ""
    if result.plan is None or (
        solver in BASELINES and result.rejected_s < value
    ):  # as published: without a look at memory
        value, broken = result.rejected_s, result.rejected or result.infeasible
    elif pw.verify(problem, result.plan):
        broken = "verify: " + pw.verify(problem, result.plan)[0]
    detail = {} if result.plan is None else dict(result.plan.provenance.parameters)
    curve.append((seconds, value * 1e3, result.lower_bound_s * 1e3))
    pipe.send(Row(value * 1e3, result.lower_bound_s * 1e3, seconds, peak, broken, tuple(curve), detail))


def _split_of(path: Path) -> Path:
    """Find the human expert's split of a workload; training may use the inference network's."""
    name = path.stem.removeprefix("layer_")
    candidates = (name, name.replace("_training", "_inference"))
    return next(
        (f for c in candidates if (f := WORKLOADS / "dnn-partitioning/expert" / f"{c}_expert.json").exists()), path
    )


def main() -> None:
    """Print the tables, and write them where ``-o`` says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds a solver and workload")
    parser.add_argument("--compare-budget", type=float, default=10.0, help="seconds where solvers stand side by side")
    parser.add_argument("--only", default="", help="part of the workloads' names")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    paths = [p for p in sorted((WORKLOADS / FOLDER).glob("*.json")) if options.only in p.stem]
    if not paths:
        parser.error(f"no workloads in {WORKLOADS / FOLDER}; set PLACEWRIGHT_WORKLOADS to the folder that holds them")
    reference = _reference()
    text = [
        "# The published max-load workloads",
        "",
        f"Made by `python benchmarks/quality/max_load.py --budget {options.budget:g} --compare-budget "
        f"{options.compare_budget:g}` on {os.cpu_count()} cores ({cpu_name()}), seed 0.",
        "Times per sample in milliseconds; every plan was checked by `verify`. Compiling is not counted.",
        "Reference: the authors' programs and the best values known from trials, run on a machine of the same kind.",
        "",
    ]
    sections: list[Callable[[], Iterable[str]]] = [
        lambda: _contiguous(paths, reference, options.budget),
        lambda: _any(paths, reference, options.budget),
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


def _reference() -> dict[tuple[str, str, str], dict[str, str]]:
    with (WORKLOADS / "reference.csv").open() as file:
        return {
            (Path(r["file"]).stem, r["problem"], r["method"]): r for r in csv.DictReader(file) if FOLDER in r["file"]
        }


Reference = dict[tuple[str, str, str], dict[str, str]]


def _contiguous(paths: Sequence[Path], reference: Reference, budget_s: float) -> Iterable[str]:
    yield "## Contiguous: `ideal-dp` against the published program"
    yield ""
    yield "Ideals are told where the program over them made the plan, and not its start."
    yield ""
    yield "| workload | ideals | value | reference | bound | seconds | peak MB | published s | published MB | faster |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    for path in paths:
        row = measured(path, "contiguous", "ideal-dp", budget_s)
        known = reference.get((path.stem, "max-load-contiguous", "best-known"), {})
        published = reference.get((path.stem, "max-load-contiguous", "published-dp"), {})
        wall = float(published.get("wall_s") or "nan")
        over = ">" if "limit" in published.get("note", "") else ""
        yield (
            f"| {path.stem} | {row.detail.get('ideals', '')} | {row.value_ms:.6f} | {known.get('value', '')} | "
            f"{row.bound_ms:.6f} | {row.seconds:.2f} | {row.peak_mb:.0f} | {over}{wall:.2f} | "
            f"{published.get('peak_mb', '')} | {over}{wall / row.seconds:.2g}x |{_note(row)}"
        )


def _any(paths: Sequence[Path], reference: Reference, budget_s: float) -> Iterable[str]:
    yield "## Not contiguous: `auto`"
    yield ""
    yield "| workload | value | bound | gap | seconds | best known before | its bound |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    curves = {}
    for path in paths:
        row = measured(path, "any", "auto", budget_s)
        curves[path.stem] = row
        known = reference.get((path.stem, "max-load-non-contiguous", "best-known"), {})
        yield (
            f"| {path.stem} | {row.value_ms:.6f} | {row.bound_ms:.6f} | {row.gap:.4%} | {row.seconds:.1f} | "
            f"{known.get('value', '')} | {known.get('bound', '')} |{_note(row)}"
        )
    yield ""
    yield "### Any-time curves"
    yield ""
    yield "Value above the final value / bound below the final value, in percent of it, after so many seconds."
    yield ""
    marks = [m for m in MARKS_S if m <= budget_s]
    yield f"| workload | {' | '.join(f'{m} s' for m in marks)} |"
    yield f"|---|{'---:|' * len(marks)}"
    for name, row in curves.items():
        yield f"| {name} | " + " | ".join(_at(row, m) for m in marks) + " |"


def _at(row: Row, seconds: float) -> str:
    """Say what was known at a moment."""
    until = [point for point in row.curve if point[0] <= seconds]
    value = min((v for _, v, _ in until), default=math.inf)
    bound = max((b for _, _, b in until), default=0.0)
    above = f"+{max(0.0, value / row.value_ms - 1):.2%}" if value < math.inf else "none"
    return f"{above} / -{max(0.0, 1 - bound / row.value_ms):.2%}"


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
            free = solver in ("local-search", "scotch")
            problem = "max-load-non-contiguous" if free else "max-load-contiguous"
            known = reference.get((path.stem, problem, method), {}).get("value", "")
            if solver == "expert" and not (known and _split_of(path) != path):
                cells.append(f"no split ({float(known):.5g})" if known else "")
                continue
            row = measured(path, "any" if free else "contiguous", solver, budget_s)
            ours = f"{row.value_ms:.5g}" if row.value_ms < math.inf else "none"
            cells.append(ours + ("*" if row.broken else "") + (f" ({float(known):.5g})" if known else ""))
        yield f"| {path.stem} | " + " | ".join(cells) + " |"


def _side_by_side(paths: Sequence[Path], budget_s: float) -> Iterable[str]:
    for contiguity, solvers in (("contiguous", CONTIGUOUS_SOLVERS), ("any", ANY_SOLVERS)):
        words = "not contiguous" if contiguity == "any" else contiguity
        yield f"## Side by side, {words}, {budget_s:g} s each"
        yield ""
        yield "Value, gap and seconds of each solver by itself; without a bound of its own the gap to the quick ones."
        yield ""
        yield f"| workload | {' | '.join(solvers)} |"
        yield f"|---|{'---:|' * len(solvers)}"
        for path in paths:
            rows = [measured(path, contiguity, solver, budget_s) for solver in solvers]
            shown = (f"{r.value_ms:.5g}, {r.gap:.2%}, {r.seconds:.1f} s" for r in rows)
            yield f"| {path.stem} | " + " | ".join(shown) + " |"
        yield ""


def _note(row: Row) -> str:
    return f" <!-- {row.broken} -->" if row.broken else ""


if __name__ == "__main__":
    main()
