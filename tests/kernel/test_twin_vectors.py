"""Modular split of the max-load and its bound as compiled code and as ordinary Python do the same."""

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
from placewright.bounds.max_load.modules import PricedModules
from placewright.solvers.max_load.modular_split import LoadModularSplit

rng = np.random.default_rng(3)
n = 8
graph = pw.OperatorGraph(
    [pw.Operator(f"v{k}", weight_bytes=int(rng.integers(1, 50))) for k in range(n)],
    [pw.Tensor(f"t{k}", k, tuple(range(k + 1, min(n, k + 2 + k % 2))), 40) for k in range(n - 1)],
)
cluster = pw.Cluster(
    [pw.Device(f"d{i}", memory_bytes=300) for i in range(2)] + [pw.Device("c", "cpu")],
    [pw.Link(0.1, 100.0, link_class="same-host", channel="bus")],
)
times = np.repeat(rng.uniform(0.1, 2.0, (n, 1)), 3, axis=1) * [1.0, 1.0, 4.0]
out = [compiled()]
for contiguity in ("any", "contiguous", "convex"):
    problem = pw.Problem(graph, cluster, times, pw.MaxLoad(contiguity, contiguous_cpus=False))
    found = LoadModularSplit(width=4)(problem, budget=Budget(iterations=2), rng=np.random.default_rng(0))
    bound = PricedModules()(problem, budget=Budget(iterations=8), rng=np.random.default_rng(0))
    plan = found.require_plan()
    out += [plan.value_s, plan.device_of.tolist(), found.lower_bound_s, bound.lower_bound_s]
print(json.dumps(out))
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


def test_without_the_compiler_vectors_and_prices_are_the_same_to_the_bit() -> None:
    """``NUMBA_DISABLE_JIT=1`` runs the same source as Python: values, placements and bounds are equal."""
    fast, slow = _run("0"), _run("1")
    assert [fast[0], slow[0]] == [True, False]
    assert fast[1:] == slow[1:]
    assert 0.0 < float(str(fast[4])) <= float(str(fast[1]))
