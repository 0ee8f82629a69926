"""Runs of solvers, with when they found what; kept in a file so that an interrupted benchmark goes on where it was."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from functools import cache
from math import inf
from pathlib import Path

import numpy as np

import placewright as pw
from placewright._kernel.warm import warm_up
from placewright.algorithm import Budget, Progress
from placewright.io import problem_hash, write_atomic
from placewright.result import OPTIMALITY_TOLERANCE
from placewright.solvers import SOLVERS

__all__ = ["Kept", "Run"]


@dataclass(frozen=True)
class Run:
    """What a solver made of a problem.

    Attributes
    ----------
    value_s, bound_s : float
        ``inf``: no plan; 0: no bound.
    wall_s, cpu_s : float
        Of the solver: wall clock, and processor seconds of all threads.
    found : list of (float, float)
        Seconds since the start, and the value of a plan that was better than those before.
    alone : dict of str to float
        Values on one device, by its name, from ``single-device``.
    """

    value_s: float
    bound_s: float
    wall_s: float
    cpu_s: float
    found: list[tuple[float, float]]
    alone: dict[str, float]

    @property
    def proved(self) -> bool:
        """Whether value and bound meet."""
        return self.value_s < inf and self.value_s - self.bound_s <= OPTIMALITY_TOLERANCE * self.value_s

    def seconds_to(self, value_s: float) -> float:
        """Seconds until a plan of at most this value was there; ``inf`` if none ever was."""
        return next((at for at, value in self.found if value <= value_s * (1 + OPTIMALITY_TOLERANCE)), inf)


class Kept:
    """Runs by problem, solver and budget; the file is written after each of them."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.rows: dict[str, dict[str, object]] = json.loads(path.read_text()) if path and path.exists() else {}

    def run(self, problem: pw.Problem, solver: str, budget_s: float) -> Run | None:
        """Run a solver; ``None`` where it does not take the problem.

        ``auto`` is all of :func:`placewright.solve`; any other name is that algorithm alone, with no plan to start from
        and no bound but its own.
        """
        key = f"{problem_hash(problem)} {solver} {budget_s:g}"
        if key not in self.rows:
            if solver != "auto" and SOLVERS[problem.objective.name][solver].supports(problem) is not None:
                return None
            self.rows[key] = asdict(_run(problem, solver, budget_s))
            if self.path is not None:
                write_atomic(self.path, json.dumps(self.rows, indent=1))
        return Run(**self.rows[key])  # type: ignore[arg-type]


@cache
def _load(objective: pw.Makespan | pw.MaxLoad | pw.Throughput | pw.Offload, solver: str) -> None:
    """Compile kernels, and load what a solver needs by solving three branches, so that no run pays for it."""
    warm_up(objective.name)
    reads = {0: (1, 4, 7), 1: (2,), 2: (3,), 3: (9,), 4: (5,), 5: (6,), 6: (9,), 7: (8,), 8: (9,)}
    graph = pw.OperatorGraph(
        [pw.Operator(name) for name in "abcdefghij"], [pw.Tensor(f"t{v}", v, r, 10**7) for v, r in reads.items()]
    )
    three = pw.Cluster([pw.Device(name) for name in "def"], [pw.Link(1e-3, 1e9, link_class="same-host")])
    times = np.random.default_rng(0).uniform(0.5, 1.5, (10, 3))
    small = pw.Problem(graph, three, times, objective=objective)
    if solver == "auto":
        pw.solve(small, budget=2.0)
        return
    # What a solver calls only on larger problems is loaded by solving this one exactly.
    for name in dict.fromkeys((solver, *(["makespan-cp-sat"] if objective.name == "makespan" else []))):
        if SOLVERS[objective.name][name].supports(small) is None:
            SOLVERS[objective.name][name].algorithm(small, budget=Budget(2.0), rng=np.random.default_rng(0))


def _run(problem: pw.Problem, solver: str, budget_s: float) -> Run:
    found: list[tuple[float, float]] = []

    def watch(step: Progress) -> None:
        if step.value_s < (found[-1][1] if found else inf):
            found.append((time.perf_counter() - start, step.value_s))

    _load(problem.objective, solver)
    start, cpu = time.perf_counter(), time.process_time()
    if solver == "auto":
        result = pw.solve(problem, budget=budget_s, on_progress=watch)
    else:
        algorithm = SOLVERS[problem.objective.name][solver].algorithm
        result = algorithm(problem, budget=Budget(budget_s), rng=np.random.default_rng(0), on_progress=watch)
    wall_s, cpu_s = time.perf_counter() - start, time.process_time() - cpu
    if result.plan is not None:
        broken = pw.verify(problem, result.plan)
        if broken:
            raise SystemExit(f"{problem.name}, {solver}: {broken[0]}")
        if not found or result.value_s < found[-1][1]:
            found.append((wall_s, result.value_s))
    alone = {name.removeprefix("only "): s for name, s in result.alternatives.items() if name.startswith("only ")}
    return Run(result.value_s, result.lower_bound_s, wall_s, cpu_s, found, alone)
