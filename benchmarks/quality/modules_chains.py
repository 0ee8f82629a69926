"""Chains of modules of made-up operators: what splitting costs against their number and that of devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from benchmarks.quality.timed_runs import Kept, Run

import placewright as pw

__all__ = ["BRANCHES", "SOLVERS_SHOWN", "Point", "chain", "measured", "table"]

BRANCHES = (3, 3, 2)
"""Operators on each branch between two operators that every path passes."""

SOLVERS_SHOWN = ("modular-split", "makespan-cp-sat")

MEAN_S, MEAN_BYTES = 1e-3, 1e6
"""Of a processing time and a tensor; at 12 GB/s and 10 us a tensor takes about a tenth of an operator."""


@dataclass(frozen=True)
class Point:
    """A chain, and the run of a solver on it."""

    equal: bool
    modules: int
    devices: int
    solver: str
    run: Run | None

    @property
    def family(self) -> str:
        """Name of its curve."""
        return f"{'equal' if self.equal else 'unlike'} modules, {self.solver}"


def chain(modules: int, devices: int, *, equal: bool, seed: int = 0) -> pw.Problem:
    """Modules in a chain: three branches between two operators on every path, on devices of unlike speed.

    Processing times are drawn from 0.5 to 1.5 ms, times a factor of each device from 1 to 3 and one of each operator
    and device from 0.7 to 1.4; tensors from 0.5 to 1.5 MB. ``equal``: all modules are alike.
    """
    rng = np.random.default_rng([seed, devices])
    factor = np.linspace(1.0, 3.0, devices)
    size = 1 + sum(BRANCHES)

    def drawn() -> tuple[np.ndarray, np.ndarray]:
        times = rng.uniform(0.5, 1.5, (size, 1)) * factor * rng.uniform(0.7, 1.4, (size, devices)) * MEAN_S
        return times, (rng.uniform(0.5, 1.5, size) * MEAN_BYTES).astype(np.int64)

    first = drawn()
    operators, tensors, times = [pw.Operator("begin")], [], [first[0][0]]
    readers: list[list[int]] = [[]]
    sizes = [int(first[1][0])]
    for k in range(modules):
        own_times, own_sizes = first if equal else drawn()
        entry, at = len(operators) - 1, 0
        ends = []
        for b, length in enumerate(BRANCHES):
            before = entry
            for step in range(length):
                readers[before].append(len(operators))
                before = len(operators)
                operators.append(pw.Operator(f"{k}.{b}.{step}"))
                readers.append([])
                times.append(own_times[at])
                sizes.append(int(own_sizes[at]))
                at += 1
            ends.append(before)
        for before in ends:
            readers[before].append(len(operators))
        operators.append(pw.Operator(f"{k}.join"))
        readers.append([])
        times.append(own_times[at])
        sizes.append(int(own_sizes[at]))
    tensors = [pw.Tensor(f"t{v}", v, tuple(r), size_bytes=sizes[v]) for v, r in enumerate(readers) if r]
    cluster = pw.Cluster([pw.Device(f"d{i}") for i in range(devices)], [pw.Link(1e-5, 12e9, link_class="same-host")])
    name = f"{modules} {'equal' if equal else 'unlike'} modules on {devices} devices"
    return pw.Problem(pw.OperatorGraph(operators, tensors), cluster, np.array(times), name=name)


def measured(
    modules: Sequence[int], devices: int, more_devices: Sequence[int], at_modules: int, kept: Kept, budget_s: float
) -> list[Point]:
    """Run both solvers along both axes."""
    shapes = [(m, devices) for m in modules] + [(at_modules, d) for d in more_devices]
    points = []
    for equal in (True, False):
        for m, d in dict.fromkeys(shapes):
            problem = chain(m, d, equal=equal)
            for solver in SOLVERS_SHOWN:
                points.append(Point(equal, m, d, solver, kept.run(problem, solver, budget_s)))
                print(f"{problem.name}, {solver}: {_cell(points[-1].run)}", flush=True)
    return points


def table(points: Sequence[Point]) -> list[str]:
    """One line a chain, equal and unlike modules side by side."""
    shapes = list(dict.fromkeys((p.modules, p.devices) for p in points))
    families = list(dict.fromkeys(p.family for p in points))
    lines = [
        f"| modules | operators | devices | {' | '.join(families)} |",
        f"|---:|---:|---:|{'---:|' * len(families)}",
    ]
    for m, d in shapes:
        own = {p.family: p.run for p in points if (p.modules, p.devices) == (m, d)}
        cells = " | ".join(_cell(own[f]) for f in families)
        lines.append(f"| {m} | {m * (1 + sum(BRANCHES)) + 1} | {d} | {cells} |")
    return lines


def _cell(run: Run | None) -> str:
    if run is None:
        return ""
    if run.proved:
        return f"{run.wall_s:.2f} s"
    return "no plan" if run.value_s == float("inf") else f"{100 * (1 - run.bound_s / run.value_s):.1f} % left"
