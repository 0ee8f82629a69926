"""Where a prediction was off: worked cases, and that the differences on the path always sum to the whole one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.cluster import Cluster, Device, Link
from placewright.evaluate import plan_for
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.measurement import Measurement, Span
from placewright.plan import Plan, Schedule, Transfer
from placewright.prediction_errors import PredictionErrors, prediction_errors
from placewright.problem import Problem


def chain() -> tuple[Problem, Plan]:
    """a on gpu in 2 s, its tensor x to cpu in 1 s, b there in 3 s; c on cpu in 1 s at the start."""
    graph = OperatorGraph([Operator("a"), Operator("b"), Operator("c")], [Tensor("x", 0, (1,), 8)])
    cluster = Cluster([Device("gpu"), Device("cpu")], [Link(1.0, 1e12, link_class="same-host")])
    problem = Problem(graph, cluster, [[2.0, 9.0], [9.0, 3.0], [9.0, 1.0]])
    schedule = Schedule([0.0, 3.0, 0.0], [2.0, 6.0, 1.0], (Transfer(0, 0, 1, 2.0, 3.0),))
    return problem, Plan([0, 1, 1], schedule, 6.0)


def span(device: str, name: str, kind: str, start: float, finish: float, peer: str = "", found: bool = False) -> Span:
    operators = (name,) if kind == "compute" else ()
    return Span(device, name, kind, start, finish, peer, operators, found)  # type: ignore[arg-type]


def errors(problem: Problem, plan: Plan, *spans: Span) -> PredictionErrors:
    found = prediction_errors(problem, plan, Measurement("plan", (1.0,), plan.value_s, spans))
    assert found is not None
    return found


def kinds(found: PredictionErrors) -> dict[str, tuple[float, float]]:
    return {k: (p.measured_s, p.predicted_s) for k, p in found.by_kind.items() if p.measured_s or p.predicted_s}


def test_a_path_over_a_transfer_is_charged_to_what_was_slow() -> None:
    """The receiver waits: its path is the sender's operator and the transfer; what cpu did before does not matter.

    Measured: a 0 to 2.5, x packed until 2.75, on its way 2.75 to 5, b 5 to 8. Path: 2.5 + 0.25 + 2.25 + 3 = 8.
    Predicted: 2 + 0 + 1 + 3 = 6, without a gap.
    """
    problem, plan = chain()
    found = errors(
        problem,
        plan,
        span("cpu", "c", "compute", 0.0, 4.0),
        span("gpu", "a", "compute", 0.0, 2.5),
        span("gpu", "x", "handover", 2.5, 2.75, "cpu"),
        span("gpu", "x", "transfer", 2.75, 5.0, "cpu"),
        span("cpu", "x", "wait", 4.0, 5.0, "gpu"),
        span("cpu", "b", "compute", 5.0, 8.0),
    )
    assert [(p.kind, p.device, p.name) for p in found.path] == [
        ("compute", "gpu", "a"),
        ("handover", "gpu", "x"),
        ("transfer", "gpu", "x"),
        ("compute", "cpu", "b"),
    ]
    assert kinds(found) == {"compute": (5.5, 5.0), "handover": (0.25, 0.0), "transfer": (2.25, 1.0)}
    assert (found.measured_s, found.predicted_s) == (8.0, 6.0)
    assert [(p.name, p.error_s) for p in found.worst] == [("c", 3.0), ("x", 1.25), ("a", 0.5), ("b", 0.0)]
    cpu = found.devices[1]
    assert dict(cpu.measured_s) == {"compute": 7.0, "handover": 0, "transfer": 0, "wait": 1.0}
    assert dict(cpu.predicted_s) == {"compute": 4.0, "handover": 0.0, "transfer": 0, "wait": 2.0}


def test_a_tensor_that_was_found_there_delays_nobody() -> None:
    """The path stays on the device that came late, and the plan's wait for the tensor is a gap in it.

    Measured: c 0 to 4, x was there, b 4.5 to 8: 4 + 0.5 waiting + 3.5 = 8. The plan has c 0 to 1 and b 3 to 6, so
    waiting of 2 between them: computing is off by 3 + 0.5, waiting by 0.5 - 2.
    """
    problem, plan = chain()
    found = errors(
        problem,
        plan,
        span("cpu", "c", "compute", 0.0, 4.0),
        span("gpu", "a", "compute", 0.0, 2.0),
        span("gpu", "x", "transfer", 2.0, 4.5, "cpu", found=True),
        span("cpu", "x", "wait", 4.0, 4.5, "gpu"),
        span("cpu", "b", "compute", 4.5, 8.0),
    )
    assert kinds(found) == {"compute": (7.5, 4.0), "wait": (0.5, 2.0)}
    assert sum(p.error_s for p in found.path) == 2.0
    assert "x" not in {p.name for p in found.worst}


def test_a_call_of_several_operators_is_one_piece_and_what_cuts_cost_is_a_hand_over() -> None:
    """The plan has a 0 to 2.25 (0.25 for its cut) and b 2.5 to 5.75 (0.25 too): 5 of computing, 0.5 of hand-over."""
    graph = OperatorGraph([Operator("a"), Operator("b")], [Tensor("x", 0, (1,), 8)])
    problem = Problem(graph, Cluster([Device("gpu")]), [[2.0], [3.0]])
    plan = Plan([0, 0], Schedule([0.0, 2.5], [2.25, 5.75]), 5.75)
    call = Span("gpu", "a .. b (2)", "compute", 0.0, 6.0, operators=("a", "b"))
    found = errors(problem, plan, call)
    assert kinds(found) == {"compute": (6.0, 5.0), "handover": (0.0, 0.5), "wait": (0.0, 0.25)}
    assert [(p.name, p.measured_s, p.predicted_s) for p in found.worst] == [("a .. b (2)", 6.0, 5.0)]


def test_no_table_without_spans_or_for_calls() -> None:
    """Nothing was seen of it, or the schedule is not that of one sample."""
    problem, plan = chain()
    assert prediction_errors(problem, plan, Measurement("plan", (1.0,), 6.0)) is None
    offloaded = Plan(plan.device_of, plan.schedule, 6.0, call_of=np.zeros(3, dtype=np.int32))
    ran = Measurement("plan", (1.0,), 6.0, (span("gpu", "a", "compute", 0.0, 1.0),))
    assert prediction_errors(problem, offloaded, ran) is None


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_differences_on_the_path_sum_to_the_whole_difference(seed: int) -> None:
    """For random networks, placements and disturbed runs: pieces fill M without overlap, predictions sum to P."""
    rng = np.random.default_rng(seed)
    n, devices = int(rng.integers(1, 9)), int(rng.integers(1, 4))
    tensors = []
    for u in range(n):
        readers = tuple(v for v in range(u + 1, n) if rng.random() < 0.4)
        tensors += [Tensor(f"t{u}", u, readers, 8)] if readers else []
    graph = OperatorGraph([Operator(f"o{v}") for v in range(n)], tensors)
    cluster = Cluster([Device(f"d{i}") for i in range(devices)], [Link(0.25, 1e12, link_class="same-host")])
    problem = Problem(graph, cluster, rng.random((n, devices)))
    plan = plan_for(problem, rng.integers(0, devices, n))
    assert plan is not None
    spans = _run(problem, plan, rng)
    found = errors(problem, plan, *spans)
    assert found.measured_s == pytest.approx(max(s.finish_s for s in spans))
    assert sum(p.measured_s for p in found.path) == pytest.approx(found.measured_s)
    assert sum(p.predicted_s for p in found.path) == pytest.approx(plan.schedule.makespan_s)
    assert all(p.measured_s >= -1e-12 for p in found.path)
    assert sum(p.error_s for p in found.on_path.values()) == pytest.approx(found.error_s)


def _run(problem: Problem, plan: Plan, rng: np.random.Generator) -> list[Span]:
    """Operators in a topological order, each with another time than predicted; what ranks see of it."""
    names = [d.name for d in problem.cluster.devices]
    free = dict.fromkeys(range(len(names)), 0.0)
    spans, ended, arrived = [], {}, set[tuple[int, int]]()
    for v in range(len(problem.graph)):
        i = int(plan.device_of[v])
        now = free[i] + 0.01 * rng.random()
        for k, t in enumerate(problem.graph.tensors):
            j = int(plan.device_of[t.producer])
            if v not in t.readers or j == i or (k, i) in arrived:
                continue
            arrived.add((k, i))
            there = ended[t.producer] + rng.random()
            after = max(now + 1e-6, there)
            spans.append(span(names[i], t.name, "wait", now, after, names[j]))
            spans.append(span(names[j], t.name, "transfer", ended[t.producer], after, names[i], there <= now))
            now = after
        end = now + rng.random()
        spans.append(span(names[i], f"o{v}", "compute", now, end))
        free[i] = ended[v] = end
    return spans
