"""Cost against size: synthetic and captured networks of 100 to 100,000 operators on 64 unlike devices.

Run: ``python benchmarks/speed/scale.py [--sizes 1000,10000] [--captured problem.json] [--auto 60] [-o docs/scale.md]``.
``--captured`` takes the problem file of a captured network, which is repeated up to the size. Each network has a
process of its own, whose peak memory is everything: Python, libraries, compiled kernels. Compiling is not counted.
*List scheduling* is what a user waits for: the arrays of the kernels, the schedule, its judging and its checking.
Seconds are of the processor, which on an idle machine are those of the clock: all of this runs on one core; with
``--auto`` the budget counts by the clock. ``-o`` writes the table, and a picture beside it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from curves import picture
from synthetic import FAMILIES, problem_of, repeated

import placewright as pw
from placewright._kernel.warm import warm_up
from placewright.algorithm import Budget
from placewright.arrays import arrays_of
from placewright.bounds import BOUNDS
from placewright.host import cpu_name
from placewright.io import read_problem, write_atomic
from placewright.solvers.makespan import MAKESPAN_SOLVERS

SIZES = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
SOLVERS = ("heft", "etf")
Row = dict[str, Any]


def problem_for(family: str, n: int, captured: Path | None) -> pw.Problem:
    return repeated(read_problem(captured), n) if captured is not None else problem_of(family, n)


def measured(family: str, n: int, captured: Path | None, auto_s: float) -> Row:
    """Measure one network in this process."""
    warm_up("makespan")
    row: Row = {"family": family}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        clock = time.process_time()
        done = work()
        row[name] = time.process_time() - clock
        return done

    problem = timed("problem", lambda: problem_for(family, n, captured))
    row["n"], row["reads"] = len(problem.graph), sum(len(t.readers) for t in problem.graph.tensors)
    timed("arrays", lambda: arrays_of(problem))
    for solver in SOLVERS:
        algorithm = MAKESPAN_SOLVERS[solver].algorithm
        result = timed(solver, lambda algorithm=algorithm: algorithm(problem, budget=Budget(), rng=None))
        row[f"{solver} value"] = result.value_s
        if result.plan is not None:
            broken = timed("verify", lambda plan=result.plan: pw.verify(problem, plan))
            if broken:
                raise SystemExit(f"{family} {n}, {solver}: {broken[0]}")
            row[solver] += row["arrays"] + row["verify"]
    bounds = [BOUNDS["makespan"][name] for name in ("critical-path", "fractional-load")]
    found = timed("bounds", lambda: [bound(problem, budget=Budget(60), rng=None) for bound in bounds])
    row["bound"] = max(result.lower_bound_s for result in found)
    row["GB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    if auto_s:
        result = pw.solve(problem, budget=auto_s)
        row["auto value"], row["auto bound"], row["auto"] = result.value_s, result.lower_bound_s, result.runtime_s
        row["GB auto"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return row


def table(rows: Sequence[Row], auto_s: float) -> list[str]:
    """Lines of the table."""
    headings = [
        "network",
        "operators",
        "reads",
        "problem",
        "heft",
        "etf",
        "bounds",
        "GB",
        "heft / bound",
        "etf / bound",
    ]
    if auto_s:
        headings += ["auto / best list", "auto / bound", "auto, s", "GB with auto"]
    lines = [f"| {' | '.join(headings)} |", f"|---|{'---:|' * (len(headings) - 1)}"]
    for row in rows:
        cells = [row["family"], f"{row['n']:,}", f"{row['reads']:,}"]
        cells += [f"{row[key]:.2f}" for key in ("problem", "heft", "etf", "bounds", "GB")]
        values = [row["heft value"], row["etf value"]]
        cells += [f"{v / row['bound']:.2f}" if v < math.inf else "no plan" for v in values]
        if "auto" in row:
            cells += [f"{row['auto value'] / min(values):.3f}", f"{row['auto value'] / row['auto bound']:.2f}"]
            cells += [f"{row['auto']:.0f}", f"{row['GB auto']:.2f}"]
        elif auto_s:
            cells += ["-"] * 4  # small networks: see docs/makespan.md
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def text_of(rows: Sequence[Row], auto_s: float, figure: str) -> str:
    """Document with table and picture."""
    lines = [
        "# Cost against size",
        "",
        f"Made by `python benchmarks/speed/scale.py` on {os.cpu_count()} cores ({cpu_name()}), seed 0: 64 unlike",
        "devices (four models on eight hosts, a NIC each), contention `link`, weights of 40 % of all memory. Seconds",
        "of the processor, compiling not counted. `problem`: making and validating graph and problem. `heft`, `etf`:",
        "arrays, schedule, judging and checking together. `bounds`: critical path and fractional load. `GB`: peak of",
        "the process, libraries and compiled kernels included. A ratio to the bound says as much of the bound as of",
        "the plan.",
        "",
        "`layered`: as many layers as operators in one; `blocks`: eight towers of transformer blocks; `wired`: a chain",
        "of randomly wired stages; others: copies of a captured network in eight chains.",
        "",
        *table(rows, auto_s),
        "",
        f"![seconds against operators]({figure})",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure each network in a process of its own; print, and write what ``-o`` asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--captured", type=Path, action="append", default=[], help="problem file of a captured network")
    parser.add_argument("--auto", type=float, default=0.0, help="seconds for auto, from 10,000 operators on")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    if options.one:
        captured = options.captured[0] if options.captured else None
        print(json.dumps(measured(options.one[0], int(options.one[1]), captured, options.auto)))
        return
    networks = [(family, None) for family in options.families.split(",") if family]
    networks += [(path.stem.split("--")[0], path) for path in options.captured]
    rows = []
    for family, path in networks:
        for n in sizes:
            command = [sys.executable, __file__, "--one", family, str(n)]
            command += ["--captured", str(path)] if path is not None else []
            command += ["--auto", str(options.auto)] if n >= 10_000 else []
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            rows.append(json.loads(done.stdout))
            print(json.dumps(rows[-1]), flush=True)
    print("\n".join(table([row for row in rows if "auto" in row] or rows, options.auto)))
    if options.output is not None:
        figure = options.output.with_suffix(".svg")
        write_atomic(figure, picture(rows, SOLVERS))
        write_atomic(options.output, text_of(rows, options.auto, figure.name))


if __name__ == "__main__":
    main()
