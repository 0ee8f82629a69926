"""Small pipelines whose loads can be added up by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from placewright.cluster import Cluster, Device, Link
from placewright.evaluate import Evaluation, judge, plan_for
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.objective import MaxLoad
from placewright.plan import Provenance
from placewright.problem import Problem, Times
from placewright.result import Result

MiB = 2**20
MB = 1_000_000


def gpus(number: int, **rest: Any) -> list[Device]:
    return [Device(f"gpu{k}", **rest) for k in range(number)]


def chain(objective: MaxLoad | None = None, devices: list[Device] | None = None, **link: Any) -> Problem:
    """a -> b -> c -> d take 1, 2, 3 and 4 ms on a gpu, ten times as long on a cpu; 1 GB/s.

    x has 0.5 MB, y 1 MB and z 0.5 MB: 0.5, 1 and 0.5 ms. Every operator has 1 MiB of weights.
    """
    graph = OperatorGraph(
        [Operator(name, "Conv", weight_bytes=MiB) for name in "abcd"],
        [Tensor("x", 0, (1,), MB // 2), Tensor("y", 1, (2,), MB), Tensor("z", 2, (3,), MB // 2)],
        name="chain",
    )
    there = devices or gpus(3)
    base = np.array([[0.001], [0.002], [0.003], [0.004]])
    times = base * np.array([[10.0 if d.kind == "cpu" else 1.0 for d in there]])
    cluster = Cluster(there, [Link(0.0, 1e9, link_class="same-host", **link)])
    return Problem(graph, cluster, Times(times, source="given"), objective or MaxLoad())


def training(objective: MaxLoad, devices: list[Device] | None = None) -> Problem:
    """a -> b -> c, then back c' -> b' -> a' on the same devices as a, b and c: 1, 2, 3 ms forward, 6, 4, 2 ms back.

    Each tensor between layers has 1 MB and takes 1 ms; a, b and c have 1, 2 and 3 MB of weights.
    """
    operators = [Operator(name, "Conv", weight_bytes=(k + 1) * MB) for k, name in enumerate("abc")]
    operators += [Operator(f"{name}'", "ConvGrad", backward=True) for name in "cba"]
    tensors = [Tensor(f"t{k}", k, (k + 1,), MB) for k in range(5)]
    graph = OperatorGraph(operators, tensors, colocation=[(0, 5), (1, 4), (2, 3)], name="training")
    there = devices or gpus(3)
    seconds = np.array([[0.001], [0.002], [0.003], [0.002], [0.004], [0.006]])
    cluster = Cluster(there, [Link(0.0, 1e9, link_class="same-host")])
    return Problem(graph, cluster, Times(np.tile(seconds, len(there)), source="given"), objective)


def planned(
    given: Problem, placement: list[int], replicas: tuple[tuple[int, ...], ...] = (), **rest: Any
) -> tuple[Problem, Result, Evaluation]:
    """The problem, the result with the plan that the judge makes of a placement, and the judgement."""
    made = plan_for(given, placement, provenance=Provenance("by-hand", seed=3, version="0"), replicas=replicas)
    assert made is not None
    bound = rest.pop("bound", 0.0)
    return given, Result(made, bound, solver="by-hand", runtime_s=1.5, **rest), judge(given, made)
