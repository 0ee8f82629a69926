"""What fusion, chains, repeated blocks and duplication cost and gain: value, bound and time with and without.

Run ``python benchmarks/quality/coarsening.py [--budget 20] [--keep FILE] [-o docs/coarsening.md]`` in the repository's
root. Networks are functions of ``examples/models.py``; what can't be captured here is left out and named. With
``--keep`` each result is written as soon as it is there, and an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import placewright as pw  # noqa: E402
from placewright.algorithm import Progress  # noqa: E402
from placewright.coarsen import contract, duplicate, duplicated_parts, fuse, repeated_blocks  # noqa: E402
from placewright.errors import InvalidInput, PlacewrightError  # noqa: E402
from placewright.host import cpu_name  # noqa: E402
from placewright.io import problem_hash, write_atomic  # noqa: E402
from placewright.solve import COARSENINGS  # noqa: E402
from placewright.solvers.makespan.modules import cut_operators, modules_of  # noqa: E402
from placewright.units import format_seconds  # noqa: E402

NETWORKS = (
    *("inception_v4", "bert_large", "gpt2_xl", "swin_v2_large", "t5_large", "randomly_wired", "sd_unet"),
    "mixtral_8x7b",
)
MASKED = ("bert_large", "gpt2_xl", "llama_7b", "t5_large")
CLUSTERS = ("two-gpus-and-cpu", "four-gpus-two-hosts")
NEAR = 0.01
"""How near the best value a search must come for the time that it took to count."""

Row = dict[str, Any]


class Kept:
    """Results by problem, coarsening and budget, in a file that is written after each of them."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.rows: dict[str, Row] = json.loads(path.read_text()) if path and path.exists() else {}

    def result(self, problem: pw.Problem, way: str, budget_s: float) -> Row:
        """Value, bound, and how the value fell: pairs of seconds and value."""
        key = f"{problem_hash(problem)} {way} {budget_s:g}"
        if key not in self.rows:
            fell: list[tuple[float, float]] = []

            def seen(progress: Progress) -> None:
                if progress.value_s < (fell[-1][1] if fell else inf):
                    fell.append((progress.elapsed_s, progress.value_s))

            begun = time.monotonic()
            found = pw.solve(problem, budget=budget_s, coarsen=way, on_progress=seen)
            broken = [] if found.plan is None else pw.verify(problem, found.plan)
            if broken:
                raise SystemExit(f"{problem.name}, {way}: {broken[0]}")
            if found.plan is not None:
                fell.append((time.monotonic() - begun, found.value_s))
            self.rows[key] = {
                "value_s": found.value_s if found.plan is not None else None,
                "bound_s": found.lower_bound_s if not found.infeasible else 0.0,
                "coarse_s": found.alternatives.get(f"{way} as one"),
                "fell": fell,
                "solver": found.solver,
            }
            if self.path is not None:
                write_atomic(self.path, json.dumps(self.rows, indent=1))
        return self.rows[key]


def reached(row: Row, value_s: float) -> str:
    """Seconds until a value was reached."""
    return next((f"{at:.1f} s" for at, value in row["fell"] if value <= value_s * (1 + NEAR)), "never")


def shown(seconds: float | None) -> str:
    return "-" if seconds is None else format_seconds(seconds)


def captured(name: str, **inputs: Callable[[Any], Any]) -> pw.OperatorGraph:
    """Graph of a network before fusion, with further inputs made of its tokens."""
    import torch
    from examples import models

    from placewright.capture.torch_export import capture_program, export_module

    try:
        module, given = getattr(models, name)()
    except ImportError as absent:
        raise InvalidInput(f"{name}: {absent}") from None
    further = {key: make(given["input_ids"]) for key, make in inputs.items()}
    with torch.no_grad():
        return capture_program(export_module(module, (), {**given, **further}), name=name)


def rows_of(name: str, graph: pw.OperatorGraph, cluster: str, kept: Kept, budget_s: float) -> Iterator[str]:
    """Lines of one network on one cluster: not fused, fused, and fused with each coarsening."""
    devices = pw.read_cluster(ROOT / "examples" / f"{cluster}.yaml")
    problems = {
        text: pw.Problem(g, devices, pw.roofline(g, devices), name=f"{name} on {cluster}")
        for text, g in (("not fused", graph), ("fused", fuse(graph)))
    }
    fused = problems["fused"]
    ways = ["none", *(way for way in COARSENINGS if way != "none")]
    results: dict[str, tuple[int, Row]] = {
        "not fused": (len(graph), kept.result(problems["not fused"], "none", budget_s))
    }
    for way in ways:
        size = len(contract(fused, COARSENINGS[way](fused)).groups)
        results["fused" if way == "none" else f"fused, {way}"] = size, kept.result(fused, way, budget_s)
    of_fused = [row for text, (_, row) in results.items() if text != "not fused"]
    best = min((row["value_s"] for row in of_fused if row["value_s"] is not None), default=inf)
    bound = max(row["bound_s"] for row in of_fused)
    for text, (size, row) in results.items():
        own = text == "not fused"
        value = row["value_s"]
        low = row["bound_s"] if own else bound
        gap = "-" if value is None else f"{100 * max(0.0, 1 - low / value):.1f}"
        near = reached(row, value if own and value is not None else best)
        yield (
            f"| {name} | {cluster} | {text} | {size} | {shown(row['coarse_s'])} | {shown(value)} | {gap} | {near} | "
            f"{row['solver']} |"
        )


def duplication_row(name: str, cluster: str, graph: pw.OperatorGraph, kept: Kept, budget_s: float) -> str:
    """One line: operators on every path, and what auto makes of it, with the mask single and duplicated."""
    devices = pw.read_cluster(ROOT / "examples" / f"{cluster}.yaml")
    single = pw.Problem(graph, devices, pw.roofline(graph, devices), name=f"{name} with a mask on {cluster}")
    made = duplicate(single)
    cells = []
    for problem in (single, made):
        largest = max(len(m.inner) for m in modules_of(problem.graph))
        cells.append((str(len(cut_operators(problem.graph))), str(largest), kept.result(problem, "none", budget_s)))
    (cuts, largest, before), (cuts_after, largest_after, after) = cells
    gaps = [
        "-" if row["value_s"] is None else f"{100 * max(0.0, 1 - row['bound_s'] / row['value_s']):.1f}"
        for row in (before, after)
    ]
    return (
        f"| {name} | {cluster} | {len(graph)} | {len(duplicated_parts(made.graph))} | {cuts} -> {cuts_after} | "
        f"{largest} -> {largest_after} | {shown(before['value_s'])} -> {shown(after['value_s'])} | "
        f"{gaps[0]} -> {gaps[1]} |"
    )


def blocks_row(name: str, graph: pw.OperatorGraph) -> str:
    """One line: which layers are alike."""
    begun = time.monotonic()
    found = repeated_blocks(graph)
    seconds = time.monotonic() - begun
    covered = sum(r.length * r.count for r in found)
    return (
        f"| {name} | {len(graph)} | {'; '.join(map(str, found)) or 'none'} | {100 * covered / len(graph):.0f} | "
        f"{seconds * 1e3:.0f} ms |"
    )


TEXT: Mapping[str, list[str]] = {
    "compared": [
        "## With and without",
        "",
        "*Placed as one*: operators of the coarse problem. *Coarse*: value of its plan, expanded, after half of the",
        "budget. *Value*: after the other half. *Gap* in percent, to the best bound that any row of the same problem",
        "proved. What is not fused is a problem of its own with its own times: each operator writes and reads its",
        "tensors. *Near*: when the value was within 1 % of the best of the fused rows (of its own, if not fused).",
        "",
        "| network | cluster | coarsening | placed as one | coarse | value | gap, % | near | solver |",
        "|---|---|---|---:|---:|---:|---:|---:|---|",
    ],
    "blocks": [
        "## Repeated blocks",
        "",
        "| network | operators, fused | blocks that are alike | of all operators, % | found in |",
        "|---|---:|---|---:|---:|",
    ],
    "duplicated": [
        "## Duplication",
        "",
        "Transformers that are given an attention mask, which every layer reads. What `plan` duplicates by default,",
        "and what `auto` finds without and with it.",
        "",
        "| network | cluster | operators | duplicated | operators on every path | largest module | value | gap, % |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ],
}


def main() -> None:
    """Print the tables, and write them where ``-o`` says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=20.0, help="seconds a network, cluster and coarsening")
    parser.add_argument("--networks", nargs="*", default=NETWORKS)
    parser.add_argument("--masked", nargs="*", default=MASKED)
    parser.add_argument("--clusters", nargs="*", default=CLUSTERS)
    parser.add_argument("--keep", type=Path, help="file of results")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    kept = Kept(options.keep)
    lines: dict[str, list[str]] = {key: [] for key in TEXT}

    def add(key: str, line: str) -> None:
        lines[key].append(line)
        print(line, flush=True)

    import torch

    for name in options.networks:
        try:
            graph = captured(name)
        except PlacewrightError as error:
            print(f"left out: {error}", flush=True)
            continue
        add("blocks", blocks_row(name, fuse(graph)))
        for cluster in options.clusters:
            for line in rows_of(name, graph, cluster, kept, options.budget):
                add("compared", line)
    for name in options.masked:
        graph = fuse(captured(name, attention_mask=torch.ones_like))
        for cluster in options.clusters:
            add("duplicated", duplication_row(name, cluster, graph, kept, options.budget))
    head = [
        "# Coarsening: what it costs and what it gains",
        "",
        f"Made by `python benchmarks/quality/coarsening.py --budget {options.budget:g}` on {os.cpu_count()} cores "
        f"({cpu_name()}), seed 0,",
        f"`auto` with {options.budget:g} s each. Times are predicted by the roofline; contention `link`. Each plan was",
        "checked by `verify`. Fusion: `coarsen/fusion.py`; chains, blocks: `plan --coarsen`.",
        "",
    ]
    text = [line for key, rows in lines.items() if rows for line in (*TEXT[key], *rows, "")]
    if options.output is not None:
        write_atomic(options.output, "\n".join([*head, *text]))


if __name__ == "__main__":
    main()
