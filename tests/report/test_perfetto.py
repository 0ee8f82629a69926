"""The trace: times, processes, arrows, bytes."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest

from placewright.cluster import Cluster, Device, Link
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.measurement import Measurement, Span
from placewright.objective import Makespan
from placewright.problem import Problem
from placewright.report import trace, trace_json

from .two_branches import measured, problem, solved


@pytest.fixture(scope="module")
def made():
    given = problem()
    result, _ = solved(given, [0, 1, 0, 0])
    return given, result.plan, trace(given, result.plan, [measured(given, result.plan)])["traceEvents"]


def slices(events):
    return [e for e in events if e["ph"] == "X"]


def named(events, what):
    return {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == what}


def assert_no_overlap(events):
    threads = {}
    for e in slices(events):
        threads.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
    for spans in threads.values():
        spans.sort()
        assert all(a[1] <= b[0] + 1e-6 for a, b in pairwise(spans))


def test_operators_and_transfers_stand_at_their_times_in_microseconds(made):
    """a 0-1 ms, x goes 1-1.011, b on the slow device 1.011-5.011, y back, d 5.022-6.022."""
    predicted = [e for e in slices(made[2]) if e["pid"] <= 2]
    assert {(e["name"], e["pid"], e["ts"], e["dur"]) for e in predicted} == {
        ("a", 1, 0.0, 1000.0), ("c", 1, 1000.0, 2000.0), ("d", 1, 5022.0, 1000.0), ("b", 2, 1011.0, 4000.0),
        ("x", 1, 1000.0, 11.0), ("y", 2, 5011.0, 11.0),
    }  # fmt: skip
    assert named(made[2], "thread_name")[1, 1] == "send to slow"


def test_predicted_and_measured_devices_are_processes_of_their_own(made):
    """Two devices, each predicted and measured, in one order."""
    assert list(named(made[2], "process_name").values()) == [
        "predicted: fast", "predicted: slow", "measured plan: fast", "measured plan: slow",
    ]  # fmt: skip
    b = next(e for e in slices(made[2]) if e["name"] == "b" and e["pid"] > 2)
    assert (b["ts"], b["dur"]) == pytest.approx((1.25 * 1011, 5000))


def test_every_arrow_starts_ends_and_passes_inside_a_slice_of_its_thread(made):
    """Perfetto binds an arrow to the slice around its time: producer, transfer, reader."""
    events = made[2]
    arrows = [e for e in events if e["ph"] in "stf"]
    assert [e["ph"] for e in arrows] == ["s", "t", "f"] * 2
    at = [
        next(s["name"] for s in slices(events)
             if (s["pid"], s["tid"]) == (e["pid"], e["tid"]) and s["ts"] < e["ts"] < s["ts"] + s["dur"])
        for e in arrows
    ]  # fmt: skip
    assert at == ["a", "x", "b", "b", "y", "d"]


def test_no_two_slices_of_a_thread_overlap_even_where_transfers_do():
    """Without contention three tensors travel at once: each gets a thread of its own."""
    operators = [Operator("a"), *(Operator(f"r{k}") for k in range(3))]
    tensors = [Tensor(f"t{k}", 0, (k + 1,), 1000) for k in range(3)]
    cluster = Cluster([Device("p"), Device("q")], [Link(1e-5, 1e9, link_class="same-host")])
    given = Problem(OperatorGraph(operators, tensors), cluster, np.full((4, 2), 1e-3), Makespan("none"))
    result, _ = solved(given, [0, 1, 1, 1])
    events = trace(given, result.plan)["traceEvents"]
    assert_no_overlap(events)
    assert [n for (p, t), n in named(events, "thread_name").items() if p == 1] == [
        "compute", "send to q (1)", "send to q (2)", "send to q (3)",
    ]  # fmt: skip


def test_measured_spans_of_unknown_devices_are_kept(made):
    """A relay that is not in the cluster has a process of its own, apart from all others."""
    given, plan, _ = made
    runs = Measurement("plan", (1.0,), 1.0, (Span("relay", "x", "transfer", 0, 1), Span("slow", "b", "compute", 0, 2)))
    names = named(trace(given, plan, [runs])["traceEvents"], "process_name")
    assert [n for n in names.values() if "measured" in n] == ["measured plan: slow", "measured plan: relay"]
    assert len(names) == 4


def test_the_file_is_json_and_always_the_same_bytes(made):
    """One event a line; a name that needs escapes survives."""
    given = problem(names=['a"\\\u2028', "b", "c", "d"])  # type: ignore[arg-type]
    result, _ = solved(given, [0, 1, 0, 0])
    text = trace_json(given, result.plan)
    assert text == trace_json(given, result.plan)
    loaded = json.loads(text)
    assert loaded["otherData"]["solver"] == "by-hand"
    assert loaded == json.loads(json.dumps(trace(given, result.plan)))
    assert 'a"\\\u2028' in {e["name"] for e in loaded["traceEvents"]}
