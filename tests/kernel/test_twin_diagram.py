"""Decision diagrams as compiled code and as ordinary Python do the same."""

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
from placewright.solvers.makespan.decision_diagram import DecisionDiagram

rng = np.random.default_rng(3)
n = 9
graph = pw.OperatorGraph(
    [pw.Operator(f"v{k}") for k in range(n)],
    [pw.Tensor(f"t{k}", k, tuple(sorted({k + 1, int(rng.integers(k + 1, n))})), 40) for k in range(n - 1)],
)
cluster = pw.Cluster(
    [pw.Device(f"d{i}") for i in range(3)], [pw.Link(0.1, 100.0, link_class="same-host", channel="bus")]
)
times = rng.uniform(0.1, 2.0, (n, 3))
shown = [compiled()]
for contention in ("none", "link", "port"):
    problem = pw.Problem(graph, cluster, times, pw.Makespan(contention))
    found = DecisionDiagram(width=2)(problem, budget=Budget(iterations=2), rng=np.random.default_rng(0))
    plan = found.require_plan()
    shown.append([plan.value_s, found.lower_bound_s, plan.device_of.tolist(), plan.schedule.start_s.tolist()])
print(json.dumps(shown))
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


def test_without_the_compiler_diagrams_are_the_same_to_the_bit() -> None:
    """``NUMBA_DISABLE_JIT=1`` runs the same source as Python: bounds, placements and start times are equal."""
    fast, slow = _run("0"), _run("1")
    assert (fast.pop(0), slow.pop(0)) == (True, False)
    assert fast == slow
