"""Captured networks on four clusters, every makespan solver: value over the best bound that any of them proved.

Run ``python benchmarks/quality/makespan.py [--budget 60] [--compare-budget 10] [-o docs/makespan.md]`` in the
repository's root. Networks are functions of ``examples/models.py``, clusters files of ``examples/``; what can't be
captured here (a package is missing) is left out and named. Each result is kept in ``--keep`` as soon as it is there,
so that an interrupted run goes on where it was; a result made with another budget or another problem is made again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import placewright as pw  # noqa: E402
from placewright.coarsen import duplicate  # noqa: E402
from placewright.errors import InvalidInput  # noqa: E402
from placewright.host import cpu_name  # noqa: E402
from placewright.io import problem_hash, write_atomic  # noqa: E402
from placewright.solvers import SOLVERS  # noqa: E402
from placewright.units import format_seconds  # noqa: E402

NETWORKS = (
    *("resnet_50", "inception_v4", "randomly_wired", "bert_large", "gpt2_xl", "swin_v2_large", "t5_large"),
    *("whisper_small", "mixtral_8x7b", "sd_unet"),
)
CLUSTERS = {
    "two-gpus-and-cpu": "2 unlike GPUs and a CPU on PCIe",
    "four-gpus-two-hosts": "4 GPUs of 3 kinds on two hosts",
    "edge-board": "CPU, NPU and DSP-like unit of an edge board",
    "eight-gpus": "8 alike GPUs",
}


class Kept:
    """Results by problem, solver and budget, in a file that is written after each of them."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.rows: dict[str, dict[str, float]] = json.loads(path.read_text()) if path and path.exists() else {}

    def result(self, problem: pw.Problem, solver: str, budget_s: float) -> Mapping[str, float]:
        """Value and bound in seconds, and the seconds that it took; value inf: no plan."""
        key = f"{problem_hash(problem)} {solver} {budget_s:g}"
        if key not in self.rows:
            found = pw.solve(problem, solver=solver, budget=budget_s)
            broken = [] if found.plan is None else pw.verify(problem, found.plan)
            if broken:
                raise SystemExit(f"{problem.name}, {solver}: {broken[0]}")
            self.rows[key] = {
                "value_s": found.value_s,
                "bound_s": found.lower_bound_s,
                "wall_s": found.runtime_s,
                "infeasible": float(bool(found.infeasible)),
            }
            if self.path is not None:
                write_atomic(self.path, json.dumps(self.rows, indent=1))
        return self.rows[key]


def captured(names: Sequence[str]) -> Iterator[tuple[str, pw.OperatorGraph]]:
    """Graphs of the networks; one that needs a missing package is named and left out."""
    for name in names:
        try:
            yield name, pw.capture(f"py:examples.models:{name}")
        except InvalidInput as error:
            print(f"left out: {error}", flush=True)


def solvers_for(problem: pw.Problem) -> list[str]:
    """Every solver that takes the problem."""
    return [name for name, entry in SOLVERS["makespan"].items() if entry.supports(problem) is None]


def over(value_s: float, bound_s: float) -> str:
    """Say how far a value is above the bound, in percent."""
    return "-" if value_s == inf else f"{100 * (value_s / bound_s - 1):.2f}" if bound_s > 0 else "?"


def table(
    cluster: str, graphs: Sequence[tuple[str, pw.OperatorGraph]], kept: Kept, options: argparse.Namespace
) -> tuple[list[str], list[tuple[str, float, list[str]]]]:
    """Lines of a cluster's table; and for each network the gap of auto, and the solvers that beat it."""
    columns = [name for name in SOLVERS["makespan"] if not options.solvers or name in options.solvers]
    judged: list[tuple[str, float, list[str]]] = []
    lines = [
        f"## {CLUSTERS[cluster]} (`examples/{cluster}.yaml`)",
        "",
        f"| network | operators | auto | gap, % | bound | {' | '.join(('auto', *columns))} |",
        f"|---|---:|---:|---:|---:|{'---:|' * (len(columns) + 1)}",
    ]
    devices = pw.read_cluster(ROOT / "examples" / f"{cluster}.yaml")
    for name, graph in graphs:
        problem = duplicate(pw.Problem(graph, devices, pw.roofline(graph, devices), name=f"{name} on {cluster}"))
        auto = kept.result(problem, "auto", options.budget)
        if auto["infeasible"]:
            lines.append(f"| {name} | {len(graph)} | does not fit | | |{' |' * (len(columns) + 1)}")
            print(lines[-1], flush=True)
            continue
        able = [c for c in columns if c in solvers_for(problem)]
        rows = {c: kept.result(problem, c, options.compare_budget) for c in able}
        bound = max(r["bound_s"] for r in (auto, *rows.values()))
        gap = 1 - bound / auto["value_s"] if auto["value_s"] < inf else 1.0
        # Values that differ by less than the proof's tolerance are the same.
        better = [c for c, r in rows.items() if r["value_s"] < auto["value_s"] * (1 - 1e-6)]
        judged.append((f"{name} on {cluster}", max(0.0, gap), better))
        cells = [over(auto["value_s"], bound), *(over(rows[c]["value_s"], bound) if c in rows else "" for c in columns)]
        lines.append(
            f"| {name} | {len(graph)} | {format_seconds(auto['value_s'])} | {100 * max(0.0, gap):.2f} | "
            f"{format_seconds(bound)} | {' | '.join(cells)} |"
        )
        print(lines[-1], flush=True)
    return [*lines, ""], judged


def summary(judged: Sequence[tuple[str, float, list[str]]]) -> Iterable[str]:
    """Median and largest gap, and where another solver was better."""
    gaps = [gap for _, gap, _ in judged]
    name, worst, _ = max(judged, key=lambda row: row[1])
    counts = (sum(g < 1e-6 for g in gaps), sum(g < 0.02 for g in gaps), sum(g <= 0.1 for g in gaps))
    yield f"- Gap of `auto`: median {statistics.median(gaps):.2%}, largest {worst:.2%} ({name}); of {len(gaps)}"
    yield "  {} are proved optimal, {} under 2 %, {} at most 10 %.".format(*counts)
    beaten = [f"{name} ({', '.join(better)})" for name, _, better in judged if better]
    yield f"- `auto` is beaten by another solver on {len(beaten)} of {len(judged)}: {'; '.join(beaten) or 'nowhere'}."


def main() -> None:
    """Print the tables, and write them where ``-o`` says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for auto")
    parser.add_argument("--compare-budget", type=float, default=10.0, help="seconds for each other solver")
    parser.add_argument("--networks", nargs="*", default=NETWORKS)
    parser.add_argument("--clusters", nargs="*", default=list(CLUSTERS))
    parser.add_argument("--solvers", nargs="*", default=[])
    parser.add_argument("--keep", type=Path, help="file of results")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    kept, graphs = Kept(options.keep), list(captured(options.networks))
    text: list[str] = []
    judged: list[tuple[str, float, list[str]]] = []
    for cluster in options.clusters:
        lines, rows = table(cluster, graphs, kept, options)
        text += lines
        judged += rows
    head = [
        "# Makespan of captured networks",
        "",
        f"Made by `python benchmarks/quality/makespan.py --budget {options.budget:g} --compare-budget "
        f"{options.compare_budget:g}`",
        f"on {os.cpu_count()} cores ({cpu_name()}), seed 0. `auto` had {options.budget:g} s, every other solver "
        f"{options.compare_budget:g} s.",
        "Times are predicted by the roofline; contention `link`. Cells: percent above the best bound that any solver",
        "proved; `-`: no plan; empty: the solver does not take the problem. Operators are counted after fusing. Every",
        "plan was checked by `verify`.",
        "",
        *summary(judged),
        "",
    ]
    print("\n".join(head))
    if options.output is not None:
        write_atomic(options.output, "\n".join([*head, *text]))


if __name__ == "__main__":
    main()
