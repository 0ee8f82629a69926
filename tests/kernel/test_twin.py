"""The kernels as compiled code and as ordinary Python do the same."""

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

rng = np.random.default_rng(7)
n = 12
graph = pw.OperatorGraph(
    [pw.Operator(f"v{k}", weight_bytes=int(rng.integers(1, 50))) for k in range(n)],
    [pw.Tensor(f"t{k}", k, tuple(sorted({k + 1, int(rng.integers(k + 1, n))})), 40) for k in range(n - 1)],
)
cluster = pw.Cluster(
    [pw.Device(f"d{i}", memory_bytes=700, cut_overhead_s=0.1) for i in range(3)],
    [pw.Link(0.1, 100.0, link_class="same-host", channel="bus")],
)
problem = pw.Problem(graph, cluster, rng.uniform(0.1, 2.0, (n, 3)), pw.Makespan("port"))
shown = {"compiled": compiled()}
for solver in ("single-device", "heft", "etf", "m-sct", "celeritas", "annealing"):
    plan = pw.solve(problem, solver=solver, budget=Budget(iterations=400), seed=1).require_plan()
    shown[solver] = [plan.value_s, plan.device_of.tolist(), plan.schedule.start_s.tolist()]
print(json.dumps(shown))
"""


def _run(disable: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "NUMBA_DISABLE_JIT": disable},
        capture_output=True,
        text=True,
        check=True,
    )
    shown: dict[str, object] = json.loads(done.stdout)
    return shown


def test_without_the_compiler_every_heuristic_gives_the_same_plan_to_the_bit() -> None:
    """``NUMBA_DISABLE_JIT=1`` runs the same source as Python: values, placements and start times are equal."""
    fast, slow = _run("0"), _run("1")
    assert fast.pop("compiled") is True
    assert slow.pop("compiled") is False
    assert fast == slow
