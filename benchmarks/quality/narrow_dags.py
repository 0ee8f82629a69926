"""Random narrow networks whose transfers take as long as their computing, or longer: value, bound and gap of solvers.

Run: ``python benchmarks/quality/narrow_dags.py [--budget 60] [--solvers auto,...] [--only w5] [-o PAGE.md]``.
A network has layers of 1 to ``width`` operators; an operator reads one to three operators of the two layers before its
own. Processing times are drawn for each operator and device by itself (unrelated machines), transfer times vary by half
around ``ratio`` times the mean processing time, alike on all links. Compiling is not counted.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from published import gap_of, rows_of

import placewright as pw
from placewright._kernel.warm import warm_up
from placewright.host import cpu_name
from placewright.io import write_atomic
from placewright.objective import Contention

__all__ = ["CASES", "Case", "narrow"]

MEAN_S = 5.5e-3
"""Of the processing times, which are drawn from 1 to 10 ms."""


@dataclass(frozen=True)
class Case:
    """One random network."""

    width: int
    ratio: float
    devices: int
    contention: Contention = "link"
    operators: int = 100
    seed: int = 0

    @property
    def name(self) -> str:
        """What tells it from the others."""
        return f"w{self.width} r{self.ratio:g} d{self.devices} {self.contention} s{self.seed}"


CASES = tuple(
    Case(width, ratio, devices, contention)
    for width, devices in ((1, 2), (2, 3), (3, 2), (3, 4), (4, 3), (5, 2), (5, 4))
    for ratio in (1.0, 4.0)
    for contention in ("none", "link", "port")
)


def narrow(case: Case) -> pw.Problem:
    """Draw the problem of a case; every operator but those of the last layer is read by the next one or two layers."""
    rng = np.random.default_rng([case.seed, case.width, int(case.ratio * 8), case.devices, case.operators])
    layers: list[list[int]] = []
    made = 0
    while made < case.operators:
        count = min(int(rng.integers(1, case.width + 1)), case.operators - made)
        layers.append(list(range(made, made + count)))
        made += count
    readers: list[set[int]] = [set() for _ in range(made)]
    for k in range(1, len(layers)):
        near = layers[k - 1] + (layers[k - 2] if k > 1 and rng.random() < 0.5 else [])
        for v in layers[k]:
            for u in rng.choice(near, size=min(int(rng.integers(1, 4)), len(near)), replace=False):
                readers[int(u)].add(v)
        for u in layers[k - 1]:
            if not readers[u]:
                readers[u].add(int(rng.choice(layers[k])))
    graph = pw.OperatorGraph(
        [pw.Operator(f"v{v:03d}") for v in range(made)],
        [
            pw.Tensor(f"t{u:03d}", u, tuple(sorted(r)), int(1e6 * rng.uniform(0.5, 1.5)))
            for u, r in enumerate(readers)
            if r
        ],
    )
    cluster = pw.Cluster(
        [pw.Device(f"d{i}") for i in range(case.devices)],
        [pw.Link(0.0, 1e6 / (case.ratio * MEAN_S), link_class="same-host")],
    )
    times = rng.uniform(1e-3, 1e-2, (made, case.devices))
    return pw.Problem(graph, cluster, times, pw.Makespan(case.contention), name=case.name)


def rows(cases: Sequence[Case], solvers: Sequence[str], budget_s: float) -> Iterator[list[str]]:
    """Solve each case with each solver."""
    for case in cases:
        for solver in solvers:
            clock = time.monotonic()
            try:
                result = pw.solve(narrow(case), solver=solver, budget=budget_s, seed=0)
            except pw.InvalidInput as error:
                yield [case.name, solver, "", "", "", str(error).split(":")[-1].strip()]
                continue
            value, bound = result.value_s * 1e3, result.lower_bound_s * 1e3
            seconds = f"{time.monotonic() - clock:.1f}"
            yield [case.name, solver, f"{value:.3f}", f"{bound:.3f}", f"{gap_of(value, bound):.2%}", seconds]


def main() -> None:
    """Print the table, and write it where ``-o`` says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds each")
    parser.add_argument("--solvers", default="auto", help="names, separated by commas")
    parser.add_argument("--only", default="", help="part of a case's name")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    warm_up("makespan")
    chosen = [case for case in CASES if options.only in case.name]
    text = [
        "# Narrow random networks",
        "",
        "Made by `python benchmarks/quality/narrow_dags.py "
        f"--budget {options.budget:g} --solvers {options.solvers}` on "
        f"{os.cpu_count()} cores ({cpu_name()}), seed 0. Milliseconds; w: width, r: transfer over processing time, d: "
        "devices, s: seed of the network; 100 operators.",
        "",
    ]
    for line in rows_of(
        ["network", "solver", "value", "bound", "gap", "seconds"],
        rows(chosen, options.solvers.split(","), options.budget),
        left=2,
    ):
        print(line, flush=True)
        text.append(line)
    if options.output is not None:
        write_atomic(options.output, "\n".join([*text, ""]))


if __name__ == "__main__":
    main()
