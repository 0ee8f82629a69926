"""The published max-load workloads: every algorithm's value, bound, gap and time, and any-time curves.

Run: ``python benchmarks/quality/max_load.py [--budget 60] [--only bert] [-o docs/max-load.md]``. The workloads are read
from ``../shared/workloads`` or from the folder that ``PLACEWRIGHT_WORKLOADS`` names; values are compared with the
reference table there. Every solver runs in a process of its own: so its peak memory is known. Compiling is not counted.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import resource
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
        return gap_of(self.value_ms, self.bound_ms)


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
    if row.broken.startswith("verify"):
        raise SystemExit(f"{path.stem}, {solver}: {row.broken}")
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

    given, split = {}, split_of(path)
    if solver == "expert" and split is not None:
        given["expert"] = Entry(Expert(read_split(split, problem).device_of), False, "", starts_afresh=True)
    try:
        result = pw.solve(problem, solver=solver, budget=Budget(budget_s), on_progress=seen, given=given)
    except pw.PlacewrightError as error:
        pipe.send(Row(math.inf, 0.0, 0.0, 0.0, str(error), (), {}))
        return
    seconds = time.monotonic() - clock
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    value, broken = result.value_s, ""
    if result.plan is None or (solver in BASELINES and result.rejected_s < value):  # as published: memory is ignored
        value, broken = result.rejected_s, result.rejected or result.infeasible
    elif pw.verify(problem, result.plan):
        broken = "verify: " + pw.verify(problem, result.plan)[0]
    detail = {} if result.plan is None else dict(result.plan.provenance.parameters)
    curve.append((seconds, value * 1e3, result.lower_bound_s * 1e3))
    pipe.send(Row(value * 1e3, result.lower_bound_s * 1e3, seconds, peak, broken, tuple(curve), detail))


def sections(paths: Sequence[Path], reference: Reference, options: argparse.Namespace) -> Iterator[Iterable[str]]:
    """Make the tables of the document."""
    yield _contiguous(paths, reference, options.budget)
    yield _any(paths, reference, options.budget)
    yield _baselines(paths, reference, options.compare_budget)
    yield from (_side_by_side(paths, c, options.compare_budget) for c in ("contiguous", "any"))


def main() -> None:
    """Print the tables, and write them where ``-o`` says."""
    remarks = (
        "Times per sample in milliseconds; every plan was checked by `verify`. Compiling is not counted.",
        "Reference: the authors' programs and the best values known from trials, run on a machine of the same kind.",
        "12 of the 16 published workloads: the others were not at hand.",
    )
    run("max_load.py", FOLDER, "Published max-load workloads", remarks, sections, __doc__)


def _contiguous(paths: Sequence[Path], reference: Reference, budget_s: float) -> Iterable[str]:
    yield "## Contiguous: `ideal-dp` against the published program"
    yield ""
    yield "Ideals are told where the program over them made the plan, and not its start."
    yield ""
    headings = "workload, ideals, value, reference, bound, seconds, peak MB, published s, published MB, faster"

    def rows() -> Iterator[list[str]]:
        for path in paths:
            row = measured(path, "contiguous", "ideal-dp", budget_s)
            known = reference.get((path.stem, "max-load-contiguous", "best-known"), {})
            published = reference.get((path.stem, "max-load-contiguous", "published-dp"), {})
            wall = float(published.get("wall_s") or "nan")
            over = ">" if "limit" in published.get("note", "") else ""
            ours = [f"{row.value_ms:.6f}", known.get("value", ""), f"{row.bound_ms:.6f}"]
            cost = [f"{row.seconds:.2f}", f"{row.peak_mb:.0f}", f"{over}{wall:.2f}", published.get("peak_mb", "")]
            yield [path.stem, str(row.detail.get("ideals", "")), *ours, *cost, f"{over}{wall / row.seconds:.2g}x"]

    yield from rows_of(headings.split(", "), rows())


def _any(paths: Sequence[Path], reference: Reference, budget_s: float) -> Iterable[str]:
    yield "## Not contiguous: `auto`"
    yield ""
    curves = {}

    def rows() -> Iterator[list[str]]:
        for path in paths:
            row = curves[path.stem] = measured(path, "any", "auto", budget_s)
            known = reference.get((path.stem, "max-load-non-contiguous", "best-known"), {})
            ours = [f"{row.value_ms:.6f}", f"{row.bound_ms:.6f}", f"{row.gap:.4%}", f"{row.seconds:.1f}"]
            yield [path.stem, *ours, known.get("value", ""), known.get("bound", "")]

    yield from rows_of(["workload", "value", "bound", "gap", "seconds", "best known before", "its bound"], rows())
    yield ""
    yield "### Any-time curves"
    yield ""
    yield "Value above the final value / bound below the final value, in percent of it, after so many seconds."
    yield ""
    marks = [m for m in MARKS_S if m <= budget_s]
    shown = ([name, *(_at(row, m) for m in marks)] for name, row in curves.items())
    yield from rows_of(["workload", *(f"{m} s" for m in marks)], shown)


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

    def cell(path: Path, solver: str) -> str:
        free = solver in ("local-search", "scotch")
        problem = "max-load-non-contiguous" if free else "max-load-contiguous"
        known = reference.get((path.stem, problem, BASELINES[solver]), {}).get("value", "")
        published = f" ({float(known):.5g})" if known else ""
        if solver == "expert" and not (known and split_of(path)):
            return f"no split{published}" if known else ""
        row = measured(path, "any" if free else "contiguous", solver, budget_s)
        ours = f"{row.value_ms:.5g}" if row.value_ms < math.inf else "none"
        return ours + ("*" if row.broken else "") + published

    yield from rows_of(["workload", *BASELINES], ([p.stem, *(cell(p, s) for s in BASELINES)] for p in paths))


def _side_by_side(paths: Sequence[Path], contiguity: str, budget_s: float) -> Iterable[str]:
    words = "not contiguous" if contiguity == "any" else contiguity
    yield f"## Side by side, {words}, {budget_s:g} s each"
    yield ""
    yield "Value, gap and seconds of each solver by itself; without a bound of its own the gap to the quick ones."
    yield ""
    solvers = ANY_SOLVERS if contiguity == "any" else CONTIGUOUS_SOLVERS

    def cell(path: Path, solver: str) -> str:
        row = measured(path, contiguity, solver, budget_s)
        return f"{row.value_ms:.5g}, {row.gap:.2%}, {row.seconds:.1f} s"

    yield from rows_of(["workload", *solvers], ([p.stem, *(cell(p, s) for s in solvers)] for p in paths))


if __name__ == "__main__":
    main()
