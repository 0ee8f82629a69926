"""A small offload plan whose times can be added up by hand."""

from __future__ import annotations

import numpy as np

from placewright.cluster import Cluster, Device, Link
from placewright.evaluate import Evaluation, judge, plan_for
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.objective import Offload
from placewright.plan import Provenance
from placewright.problem import Problem, Times
from placewright.result import Result

MiB = 2**20
MB = 1_000_000


def problem(calls: int | None = 2) -> Problem:
    """a -> b -> c -> d -> e, and b -> x -> e: 10 ms each on a CPU, and 1 ms on npus, which can't run x and c.

    Every tensor has 0.5 MB: 0.5 ms between RAM and an npu. npu0 holds three operators, npu1 one.
    """
    names = ["net.a", "net.b", "net.x", "net.c", "net.d", "net.e"]
    graph = OperatorGraph(
        [Operator(name, "Conv", weight_bytes=MiB) for name in names],
        [
            Tensor("ta", 0, (1,), MB // 2),
            Tensor("tb", 1, (2, 3), MB // 2),
            Tensor("tx", 2, (5,), MB // 2),
            Tensor("tc", 3, (4,), MB // 2),
            Tensor("td", 4, (5,), MB // 2),
        ],
        name="net",
    )
    devices = [
        Device("cpu", "cpu"),
        Device("npu0", "npu", memory_bytes=3 * MiB),
        Device("npu1", "npu", memory_bytes=MiB),
    ]
    there = np.array([[0.01, 0.001, 0.001]] * 6)
    there[2:4, 1:] = np.inf
    return Problem(
        graph, Cluster(devices, [Link(0.0, 1e9, link_class="same-host")]), Times(there, source="given"), Offload(calls)
    )


def planned(bound: float = 0.0) -> tuple[Problem, Result, Evaluation]:
    """a, b and e on npu0, the rest on the CPU.

    Call 1 is a, b: 1 + 1 + 0.5 out; x and c run 2.5..12.5, d 12.5..22.5 ms; call 2 is e: 22.5 + 0.5 x 2 + 1 = 24.5 ms.
    """
    given = problem()
    plan = plan_for(given, [0 if v in (2, 3, 4) else 1 for v in range(6)], provenance=Provenance("by-hand", seed=3))
    assert plan is not None
    bounds = {"path": bound} if bound else {}
    alternatives = {"only cpu": 0.05, "only npu0": float("inf"), "only npu1": float("inf")}
    made = Result(plan, bound, solver="by-hand", runtime_s=1.5, bounds=bounds, alternatives=alternatives)
    return given, made, judge(given, plan)
