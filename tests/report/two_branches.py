"""A network of two branches on unlike devices, small enough to check by hand."""

from __future__ import annotations

import numpy as np

from placewright.cluster import Cluster, Device, Link
from placewright.evaluate import Evaluation, evaluate, plan_for
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.measurement import Measurement, Span
from placewright.plan import Plan, Provenance
from placewright.problem import Problem, Wish
from placewright.result import Result

MiB = 2**20
KiB = 2**10


def problem(
    *devices: Device, times: object = None, wishes: tuple[Wish, ...] = (), names: str = "abcd", linked: bool = True
) -> Problem:
    """a feeds b and c, both feed d; each tensor has 1000 B; links take 10 us + 1000 B / (1 GB/s) = 11 us.

    By default a fast device takes 1, 2, 2 and 1 ms, a slow one twice as long.
    """
    operators = [Operator(name, "Conv", weight_bytes=MiB) for name in names]
    tensors = [Tensor("x", 0, (1, 2), 1000), Tensor("y", 1, (3,), 1000), Tensor("z", 2, (3,), 1000)]
    cluster = Cluster(
        devices or (Device("fast"), Device("slow")), [Link(1e-5, 1e9, link_class="same-host")] if linked else []
    )
    base = np.array([[0.001], [0.002], [0.002], [0.001]])
    table = base * np.array([[1, 2]]) if times is None else np.asarray(times)
    return Problem(OperatorGraph(operators, tensors, name="fork"), cluster, table, wishes=wishes)


def solved(given: Problem, placement: list[int], *, bound: float = 0.0, **rest: object) -> tuple[Result, Evaluation]:
    """Result with the plan that the judge makes of a placement."""
    plan = plan_for(given, placement, provenance=Provenance("by-hand", seed=3, version="0"))
    assert plan is not None
    judged = evaluate(given, placement)
    return Result(plan, bound, solver="by-hand", runtime_s=1.5, **rest), judged  # type: ignore[arg-type]


def measured(given: Problem, plan: Plan, factor: float = 1.25) -> Measurement:
    """Runs that took ``factor`` times what was predicted, the operators of the plan as spans."""
    devices = given.cluster.devices
    spans = [
        Span(devices[i].name, v.name, "compute", factor * s, factor * f)
        for v, i, s, f in zip(
            given.graph.operators, plan.device_of, plan.schedule.start_s, plan.schedule.finish_s, strict=True
        )
    ]
    spans.append(Span(devices[0].name, "y", "wait", 0.0, 1e-4))
    runs = tuple(factor * plan.value_s * (1 + k / 100) for k in (-2, -1, 0, 1, 2))
    return Measurement("plan", runs, plan.value_s, tuple(spans))
