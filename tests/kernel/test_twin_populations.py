"""The genetic algorithm and simulated placements as compiled code and as ordinary Python do the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys

PROGRAM = """
import json
import numpy as np
import placewright as pw
from placewright._kernel.schedule import compiled
from placewright.algorithm import Budget
from placewright.solvers.makespan.genetic import Genetic
from placewright.solvers.makespan.placeto import Training

rng = np.random.default_rng(7)
n = 12
graph = pw.OperatorGraph(
    [pw.Operator(f"v{k}", weight_bytes=int(rng.integers(1, 50))) for k in range(n)],
    [pw.Tensor(f"t{k}", k, tuple(sorted({k + 1, int(rng.integers(k + 1, n))})), 40) for k in range(n - 1)],
)
cluster = pw.Cluster(
    [pw.Device(f"d{i}", memory_bytes=500, cut_overhead_s=0.1) for i in range(3)],
    [pw.Link(0.1, 100.0, link_class="same-host", channel="bus")],
)
problem = pw.Problem(graph, cluster, rng.uniform(0.1, 2.0, (n, 3)), pw.Makespan("port"))
result = Genetic(population=8)(problem, budget=Budget(iterations=6), rng=np.random.default_rng(0))
plan = result.require_plan()
training = Training(problem, plan, 6)
placed = rng.integers(0, 3, (20, 6))
costs = training.judged(placed, Budget())
print(json.dumps([compiled(), plan.device_of.tolist(), plan.schedule.start_s.tolist(), costs.tolist()]))
"""


def _run(disable: str) -> list[object]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "NUMBA_DISABLE_JIT": disable},
        capture_output=True,
        text=True,
        check=True,
    )
    shown: list[object] = json.loads(done.stdout)
    return shown


def test_without_the_compiler_populations_and_simulations_are_the_same_to_the_bit() -> None:
    """``NUMBA_DISABLE_JIT=1`` runs the same source as Python: placements, start times and costs are equal."""
    fast, slow = _run("0"), _run("1")
    assert (fast.pop(0), slow.pop(0)) == (True, False)
    assert fast == slow
