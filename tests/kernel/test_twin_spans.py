"""The searches of spans as compiled code and as ordinary Python give the same bounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys

PROGRAM = """
import json
import numpy as np
import placewright as pw
from placewright._kernel.energy import least_energy
from placewright._kernel.schedule import compiled
from placewright._kernel.span_search import scratch_for
from placewright.algorithm import Budget
from placewright.arrays import arrays_of
from placewright.bounds.makespan.priced_spans import PricedSpans
from placewright.bounds.makespan.refuted_spans import RefutedSpans
from placewright.bounds.makespan.spans import spans

rng = np.random.default_rng(7)
n = 9
graph = pw.OperatorGraph(
    [pw.Operator(f"v{k}", weight_bytes=int(rng.integers(1, 50))) for k in range(n)],
    [pw.Tensor(f"t{k}", k, tuple(sorted({k + 1, int(rng.integers(k + 1, n))})), 40) for k in range(n - 1)],
)
cluster = pw.Cluster(
    [pw.Device(f"d{i}", memory_bytes=200, cut_overhead_s=0.1) for i in range(3)],
    [pw.Link(0.1, 100.0, link_class="same-host", channel="bus")],
)
problem = pw.Problem(graph, cluster, rng.uniform(0.1, 2.0, (n, 3)), pw.Makespan("port"))
g = arrays_of(problem).network
shown = {"compiled": compiled(), "energy": least_energy(g, scratch_for(g))}
for bound in (spans, PricedSpans(), RefutedSpans()):
    found = bound(problem, budget=Budget(iterations=4), rng=rng)
    shown[found.solver] = found.lower_bound_s
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


def test_without_the_compiler_the_bounds_of_spans_are_the_same_to_the_bit() -> None:
    """``NUMBA_DISABLE_JIT=1`` runs the same source as Python."""
    fast, slow = _run("0"), _run("1")
    assert fast.pop("compiled") is True
    assert slow.pop("compiled") is False
    assert set(fast) == {"energy", "spans", "priced-spans", "refuted-spans"}
    assert fast == slow
