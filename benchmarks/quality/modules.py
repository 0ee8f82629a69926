"""``modular-split`` against CP-SAT on the whole network, other heuristics, and one GPU alone.

Run ``python benchmarks/quality/modules.py [--keep FILE] [-o docs/modular-split.md]`` in the repository's root; a
picture of the costs is written beside the page, as ``modules.svg``. Networks are functions of ``examples/models.py``,
clusters files of ``examples/``. Both solvers run by themselves: with no plan to start from and no bound of others. Each
run is kept in ``--keep`` as soon as it is there, so that an interrupted benchmark goes on where it was.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from textwrap import fill

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.quality import modules_chains, modules_pairs  # noqa: E402
from benchmarks.quality.modules_picture import picture  # noqa: E402
from benchmarks.quality.timed_runs import Kept, Run  # noqa: E402

import placewright as pw  # noqa: E402
from placewright.coarsen import ANY, duplicate, fuse  # noqa: E402
from placewright.errors import InvalidInput  # noqa: E402
from placewright.host import cpu_name  # noqa: E402
from placewright.io import read_moirai, write_atomic  # noqa: E402
from placewright.solvers import SOLVERS  # noqa: E402
from placewright.solvers.makespan.modules import modules_of  # noqa: E402
from placewright.units import format_seconds  # noqa: E402

NETWORKS = (
    *("resnet_50", "inception_v4", "bert_large", "gpt2", "gpt2_xl"),
    *("randomly_wired", "randomly_wired_er", "randomly_wired_ba"),
)
CLUSTERS = ("two-gpus-and-cpu", "four-gpus-two-hosts", "edge-board", "eight-gpus")
HEURISTICS = ("single-device", "heft", "etf", "m-topo", "m-etf", "m-sct", "getf", "celeritas", "genetic")
"""Published ones; those of this project (annealing, searches) are compared in makespan.md."""

WHOLE = "makespan-cp-sat"
PARTS = "sheets", "networks", "chains", "pairs"
NEAR = 1.01
"""Values within this factor count as of the same quality."""
SAME = 1e-6
"""Relative difference of values that a proof does not tell apart."""

DEFAULTS = {
    "budget": 8.0,
    "whole_budget": 14.0,
    "sheet_budget": 20.0,
    "heuristic_budget": 1.0,
    "chain_budget": 5.0,
    "pair_budget": 2.0,
}
BUDGETS = {
    "budget": "modular-split on a network",
    "whole_budget": "CP-SAT on a whole network or sheet",
    "sheet_budget": "modular-split on a sheet",
    "heuristic_budget": "each other heuristic",
    "chain_budget": "each run on a chain",
    "pair_budget": "each run on a pair of GPUs",
}
LISTS: dict[str, tuple[object, ...]] = {
    "parts": PARTS,
    "networks": NETWORKS,
    "clusters": CLUSTERS,
    "pairs": tuple(modules_pairs.PAIRS),
    "batches": (1, 16),
    "modules": (10, 20, 50, 100, 200),
    "devices": (2, 4, 8, 16),
}
"""Defaults of what is run."""

CHAIN_DEVICES, CHAIN_MODULES = 3, 20
"""Of the chains, along the other axis."""

SHEETS = ("GoogLeNet.xls", "yolov5x.xls", "example-1.xls")
PAPER = "arXiv 2308.00127"


@dataclass(frozen=True)
class Row:
    """A problem, both solvers' runs, and the best of the other heuristics."""

    name: str
    operators: int
    modules: int
    split: Run
    whole: Run | None
    other: str
    other_s: float

    @property
    def faster(self) -> float:
        """Seconds that the whole took, to its proof or to its budget, over seconds to a value within 1 % of its."""
        if self.whole is None or self.whole.value_s == inf:
            return inf
        return self.whole.wall_s / self.split.seconds_to(self.whole.value_s * NEAR)

    @property
    def near_s(self) -> float:
        """The value that is within 1 % of the better of both."""
        return inf if self.whole is None else NEAR * min(self.split.value_s, self.whole.value_s)

    @property
    def late(self) -> bool:
        """Whether the whole never gets within 1 % of the better of both."""
        return self.whole is None or self.whole.seconds_to(self.near_s) == inf

    @property
    def sooner(self) -> float:
        """Seconds that the whole took to within 1 % of the better of both, or to its end, over those of the split."""
        if self.whole is None:
            return inf
        return min(self.whole.wall_s, self.whole.seconds_to(self.near_s)) / self.split.seconds_to(self.near_s)

    @property
    def value_ratio(self) -> float:
        """Value over that of the whole."""
        return 0.0 if self.whole is None else self.split.value_s / self.whole.value_s


def captured(names: Sequence[str], batch: int = 1) -> Iterator[tuple[str, int, pw.OperatorGraph]]:
    """Graphs of the networks; one that needs a missing package is named and left out."""
    from examples import models

    from placewright.capture.torch_export import capture_module

    for name in names:
        try:
            module, inputs = getattr(models, name)(batch=batch)
        except ImportError as error:
            print(f"left out: {name}: {error}", flush=True)
            continue
        yield name, batch, fuse(capture_module(module, (), inputs, name=name, fold=True), ANY)


def compared(problem: pw.Problem, kept: Kept, options: argparse.Namespace, budget_s: float) -> Row | None:
    """Run both solvers and the heuristics; ``None`` where there are no modules or nothing fits."""
    split = kept.run(problem, "modular-split", budget_s)
    if split is None:
        print(f"left out: {problem.name}: {SOLVERS['makespan']['modular-split'].supports(problem)}", flush=True)
        return None
    others = {s: kept.run(problem, s, options.heuristic_budget) for s in HEURISTICS}
    values = {s: run.value_s for s, run in others.items() if run is not None}
    best = min(values, key=lambda s: values[s])
    whole = kept.run(problem, WHOLE, options.whole_budget)
    if min(split.value_s, values[best], inf if whole is None else whole.value_s) == inf:
        print(f"left out: {problem.name}: no solver found a plan", flush=True)
        return None
    modules = len(modules_of(problem.graph))
    row = Row(problem.name, len(problem.graph), modules, split, whole, best, values[best])
    print(line(row), flush=True)
    return row


def on_networks(
    graphs: Sequence[tuple[str, int, pw.OperatorGraph]], kept: Kept, options: argparse.Namespace
) -> list[tuple[str, list[Row]]]:
    """Rows of each cluster."""
    found = []
    for name in options.clusters:
        cluster = pw.read_cluster(ROOT / "examples" / f"{name}.yaml")
        rows = []
        for network, _, graph in graphs:
            problem = pw.Problem(graph, cluster, pw.roofline(graph, cluster), name=f"{network} on {name}")
            rows.append(compared(duplicate(problem), kept, options, options.budget))
        found.append((name, [r for r in rows if r is not None]))
    return found


def on_sheets(folder: Path, kept: Kept, options: argparse.Namespace) -> list[Row]:
    """Rows of Moirai's sheets, under port contention."""
    rows = []
    for sheet in SHEETS:
        path = folder / "moirai" / sheet
        if not path.is_file():
            print(f"left out: there is no {path}; --workloads names the folder", flush=True)
            continue
        try:
            problem = read_moirai(path).problem
        except InvalidInput as error:
            print(f"left out: {error}", flush=True)
            continue
        row = compared(problem, kept, options, options.sheet_budget)
        rows += [row] if row is not None else []
    return rows


HEAD = (
    "| network | operators | modules | cp-sat | ended after | modular-split | within 1 % after | as good after "
    "| ended after | times faster | value, % | gap, % | best heuristic | above, % |",
    "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|---:|",
)


def line(r: Row) -> str:
    """One line of a table."""
    whole = r.whole
    cells = [r.name.split(" on ")[0], str(r.operators), str(r.modules)]
    cells += ["does not take it", ""] if whole is None else [_value(whole.value_s), _end(whole)]
    cells += [_value(r.split.value_s)]
    if whole is None or whole.value_s == inf:
        cells += ["", "", _end(r.split), "", ""]
    else:
        cells += [_seconds(r.split.seconds_to(whole.value_s * NEAR)), _seconds(r.split.seconds_to(whole.value_s))]
        cells += [_end(r.split), _faster(r), _percent(r.value_ratio - 1, 2, "+")]
    gap = 1.0 if r.split.value_s == inf else max(0.0, 1 - r.split.bound_s / r.split.value_s)
    cells += [f"{100 * gap:.2f}", r.other, _above(r)]
    return f"| {' | '.join(cells)} |"


def _value(value_s: float) -> str:
    return "no plan" if value_s == inf else format_seconds(value_s)


def _seconds(value: float) -> str:
    return "never" if value == inf else f"{value:.2g} s"


def _end(run: Run) -> str:
    return f"{run.wall_s:.2g} s, {'proved' if run.proved else 'open'}"


def _faster(r: Row) -> str:
    at_least = "" if r.whole is None or r.whole.proved else ">= "
    return "never as good" if r.faster == 0 else f"{at_least}{r.faster:.3g}"


def _above(r: Row) -> str:
    return "-" if max(r.other_s, r.split.value_s) == inf else _percent(r.other_s / r.split.value_s - 1, 1)


def _percent(share: float, digits: int, sign: str = "") -> str:
    if share == inf:
        return ""
    return f"{0.0 if abs(share) <= SAME else 100 * share:{sign}.{digits}f}"


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """How much faster, how good, against what the paper says."""
    both = [r for r in rows if r.whole is not None and max(r.whole.value_s, r.split.value_s) < inf]
    if both:
        faster = [r.faster for r in both]
        most = max(both, key=lambda r: r.faster)
        changes = [100 * (r.value_ratio - 1) for r in both]
        large = [sum(f >= x for f in faster) for x in (395, 1000)]
        stopped = sum(not _proved(r.whole) for r in both)
        yield (
            "Until a value within 1 % of what CP-SAT ends with on the whole network: median "
            f"{statistics.median(faster):.3g} times faster, at most {most.faster:.3g} ({most.name}); of {len(both)}, "
            f"395 times or more on {large[0]}, 1,000 times or more on {large[1]}; never that good on "
            f"{sum(f == 0 for f in faster)}. CP-SAT was stopped by its budget on {stopped}: with more of it the factor "
            "would be larger there."
        )
        sooner = [r.sooner for r in both]
        yield (
            "Seconds until a value within 1 % of the best that either finds, CP-SAT's over those of `modular-split`: "
            f"median {statistics.median(sooner):.3g}, from {min(sooner):.3g} to {max(sooner):.3g}; the whole budget "
            f"stands for CP-SAT where it never gets there, on {sum(r.late for r in both)}."
        )
        yield (
            f"Value over CP-SAT's: median {statistics.median(changes):+.2f} %, worst {max(changes):+.2f} %, best "
            f"{min(changes):+.2f} %."
        )
    without = sum(r.split.value_s == inf for r in rows), sum(r.whole is None or r.whole.value_s == inf for r in rows)
    yield f"No plan: {without[0]} of {len(rows)} by `modular-split`, {without[1]} by CP-SAT on the whole."
    proofs = sum(r.split.proved for r in rows), sum(_proved(r.whole) for r in rows)
    ends = [r.whole.wall_s / r.split.wall_s for r in both if r.whole and r.whole.proved and r.split.proved]
    yield (
        f"Proved optimal: {proofs[0]} of {len(rows)} by `modular-split`, {proofs[1]} by CP-SAT on the whole."
        + (
            f" Where both proved it ({len(ends)}): median {statistics.median(ends):.3g} times faster to the proof, at "
            f"most {max(ends):.3g}, at least {min(ends):.3g}."
            if ends
            else ""
        )
    )
    above = [r.other_s / r.split.value_s - 1 for r in rows if max(r.other_s, r.split.value_s) < inf]
    if above:
        yield (
            f"Best of the other heuristics above `modular-split`: median {100 * statistics.median(above):.1f} %, "
            f"at most {100 * max(above):.1f} %; of {len(above)}, alike on {sum(abs(a) <= SAME for a in above)}, below "
            f"on {sum(a < -SAME for a in above)}, 30 % or more above on {sum(a >= 0.3 for a in above)}."
        )


def _proved(run: Run | None) -> bool:
    return run is not None and run.proved


def main() -> None:
    """Print the tables, and write them where ``-o`` says."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, said in BUDGETS.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=float, default=DEFAULTS[name], help=f"seconds for {said}"
        )
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--networks", nargs="*", default=LISTS["networks"])
    parser.add_argument("--clusters", nargs="*", default=LISTS["clusters"])
    parser.add_argument("--pairs", nargs="*", choices=list(modules_pairs.PAIRS), default=LISTS["pairs"])
    for name in ("batches", "modules", "devices"):
        parser.add_argument(f"--{name}", nargs="*", type=int, default=LISTS[name])
    shared = Path(os.environ.get("PLACEWRIGHT_WORKLOADS", ROOT / "shared" / "workloads"))
    parser.add_argument("--workloads", type=Path, default=shared, help="folder of the published workloads")
    parser.add_argument("--keep", type=Path, help="file of runs")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    text, drawn = report(Kept(options.keep), options)
    print(text, flush=True)
    if options.output is not None:
        write_atomic(options.output, text)
        if drawn:
            write_atomic(options.output.with_name("modules.svg"), drawn)


def report(kept: Kept, options: argparse.Namespace) -> tuple[str, str]:
    """Return the page and the picture."""
    graphs = list(captured(options.networks)) if {"networks", "pairs"} & set(options.parts) else []
    rows: list[Row] = []
    facts: list[str] = []
    text: list[str] = []
    if "networks" in options.parts:
        for cluster, found in on_networks(graphs, kept, options):
            text += [f"## `examples/{cluster}.yaml`", "", *HEAD, *map(line, found), ""]
            rows += found
        facts += list(summary(rows)) if rows else []
    if "sheets" in options.parts and (sheets := on_sheets(options.workloads, kept, options)):
        text += [
            f"## Moirai's sheets, contention `port`, {options.sheet_budget:g} s",
            "",
            *HEAD,
            *map(line, sheets),
            "",
        ]
    drawn = ""
    if "chains" in options.parts:
        points = modules_chains.measured(
            options.modules, CHAIN_DEVICES, options.devices, CHAIN_MODULES, kept, options.chain_budget
        )
        drawn = picture(points, CHAIN_DEVICES, CHAIN_MODULES, options.chain_budget)
        text += [*filled(CHAINS.format(budget=options.chain_budget)), "", *modules_chains.table(points), ""]
    if "pairs" in options.parts:
        every = [g for g in graphs if 1 in options.batches]
        every += [g for b in options.batches if b != 1 for g in captured(options.networks, b)]
        pairs = modules_pairs.compared(every, options.pairs, kept, options.pair_budget)
        facts += list(modules_pairs.summary(pairs))
        text += [*filled(ALONE.format(cpu=modules_pairs.CPU, budget=options.pair_budget)), ""]
        text += modules_pairs.table(pairs)
    points = [fill(f"- {fact}", 120, subsequent_indent="  ", break_long_words=False) for fact in facts]
    return "\n".join([*heading(options), "", *points, *([""] if points else []), *text]), drawn


def asked(options: argparse.Namespace) -> Iterator[str]:
    """Options that decide what is on the page and aren't the default, as they are written."""
    for name in ("budget", "whole_budget", "sheet_budget", "heuristic_budget", "chain_budget", "pair_budget"):
        if getattr(options, name) != DEFAULTS[name]:
            yield f"--{name.replace('_', '-')} {getattr(options, name):g}"
    for name, default in LISTS.items():
        if list(getattr(options, name)) != list(default):
            yield f"--{name} {' '.join(map(repr if name == 'pairs' else str, getattr(options, name)))}"


def heading(options: argparse.Namespace) -> list[str]:
    """Say what was run, where, and what the columns are."""
    text = HEADING.format(
        command=" ".join(["python benchmarks/quality/modules.py", *asked(options)]),
        cores=os.cpu_count(),
        cpu=cpu_name(),
        budget=options.budget,
        whole=options.whole_budget,
        others=options.heuristic_budget,
        heuristics=", ".join(f"`{s}`" for s in HEURISTICS if s in SOLVERS["makespan"]),
        paper=PAPER,
    )
    return filled(text)


def filled(text: str) -> list[str]:
    """Fill lines up to the width of the page, but for titles, pictures and the command."""
    parts = text.split("\n\n")
    whole = ("#", "!", "Made by")
    parts = [p if p.startswith(whole) else fill(p, 120, break_on_hyphens=False) for p in parts]
    return "\n\n".join(parts).splitlines()


HEADING = """# Splitting into modules

Made by `{command}`
on {cores} cores ({cpu}), seed 0, seconds of wall clock, kernels compiled before. Times of operators are predicted by
the roofline, contention `link`; every plan was checked by `verify`.

`modular-split` ({budget:g} s) against the same constraint program on the whole network, `makespan-cp-sat`
({whole:g} s). Both run by themselves: from no plan, with no bound but their own. *Within 1 %* and *as good*: when
`modular-split` had a plan within 1 % of what CP-SAT ended with, and one at least as good. *Times faster*: the seconds
after which CP-SAT ended, over those until within 1 %; `>=` where CP-SAT was stopped by its budget. *Value*: above
CP-SAT's, in percent. *Best heuristic*: of {heuristics};
{others:g} s each.

The abstract of DiviML ({paper}) reports up to 395 times less solution time than its integer program "without
noticeably sacrificing solution quality", and 30 to 60 % better values than all other heuristics. Only the abstract was
at hand and its program was never published, so its networks, devices and times are not these: the figures stand side by
side, they are no comparison."""

CHAINS = """## Cost against the number of modules and of devices

Made-up chains: between two operators that every path passes three branches of 3, 3 and 2 operators; devices of unlike
speed (1 to 3), a tensor takes a tenth of an operator. Seconds to the proof; where {budget:g} s ended before it, what is
left of the gap, and a hollow circle in the picture.

![Seconds to the proof](modules.svg)"""

ALONE = """## A CPU and two unlike GPUs against the fastest GPU alone

Predicted times: nothing here was run on these GPUs. Models of the catalogue and an {cpu}, joined by one PCIe channel of
24 GB/s; fp32; {budget:g} s for each plan by `auto`. Latency: one sample (a batch), objective `makespan`. Time per
sample: objective `throughput`; data-parallel runs the whole network on each device with the best shares, model-parallel
is one pipeline, and *copies* is the plan of `auto`, any set of copies. *At most*: the factor that no plan exceeds, from
the proved bound.

The abstract of DiviML reports more than 3 times lower latency and up to 2.9 times more throughput on a CPU and two
unlike GPUs than on the fastest GPU alone; on which GPUs it does not say. Where each device takes every operator in the
same proportion, no plan can pass the sum of the devices' speeds over that of the fastest; more than that takes
operators that suit different devices, or a network that the fastest one can't hold."""


if __name__ == "__main__":
    main()
