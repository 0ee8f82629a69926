"""Reports of offload plans: the terminal letter by letter, the chain, the page's data and the trace."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from placewright.evaluate import calls_of, evaluate, judge, plan_for
from placewright.plan import Plan
from placewright.report import evaluation_report, explain, html_report, plan_report, trace, trace_json
from placewright.report.calls import critical_chain, drawn_times, parts_of
from placewright.report.html_data import timeline
from placewright.result import Result
from tests.offload.by_letters import problem_of
from tests.report.offloaded import planned
from tests.report.test_terminal_loads import expected, rendered

REPORT = """
     network      net (6 operators, 5 tensors) on 3 devices
     objective    offload, at most 2 calls a device, times given
     status       feasible
     value        24.5 ms
     lower bound  22.6 ms, gap 7.8%
     solver       by-hand, 1.5 s, seed 3

    devices
     device   calls   operators     busy   share   compute   transfers
    ───────────────────────────────────────────────────────────────────
     cpu          -           3        -       -     30 ms           -
     npu0         2           3   4.5 ms   18.4%      3 ms      1.5 ms
     npu1         0           0      0 s      0%         -           -

    calls, in the order of their starts
     device   call     start     in   compute      out       end
    ─────────────────────────────────────────────────────────────
     npu0        1       0 s      -      2 ms   500 us    2.5 ms
     npu0        2   22.5 ms   1 ms      1 ms        -   24.5 ms

    what they run
     device   call   operators   first   last
    ───────────────────────────────────────────
     npu0        1           2   net.a   net.b
     npu0        2           1   net.e   -

    memory
     device   weights   limit   used
    ─────────────────────────────────
     npu0       3 MiB   3 MiB   100%

    alternatives
     placement                      predicted   relative
    ─────────────────────────────────────────────────────
     only cpu                           50 ms      2.041
     only npu0 (same for 1 more)   infeasible          -
     plan                             24.5 ms      1.000

     lower bound                      22.6 ms      0.922
     gap of the plan: 7.8% (feasible)

    lower bounds
     bound     value   of the plan
    ───────────────────────────────
     path    22.6 ms         92.2%

     - The latency is a chain of 2 calls and 2 operators on CPUs: 1 ms of transfers
       in, 3 ms of computing in calls, 500 us of transfers out and 20 ms of
       computing on CPUs.
     - It is call 1 of 'npu0' (2.5 ms), 'net.c' on a CPU (10 ms), 'net.d' on a CPU
       (10 ms) and call 2 of 'npu0' (2 ms).
     - 24.5 ms are 51% less than 50 ms on the CPUs alone.
     - No accelerator alone can run the network.
     - 'npu1' is unused: it is faster at 1 of 4 operators, where it could save 9 ms
       of computing; the network holds 6 MiB, more than its 1 MiB; moving 'net.d'
       there makes the whole 16.5 ms, 32.7% less: a longer budget should find a
       better plan.
     - No plan can be below 22.6 ms (path), so this plan takes at most 8.4% longer
       than the best one; the gap is 7.8%.
"""


def test_a_plan_on_a_terminal():
    """Devices, calls, what they run, memory of accelerators, alternatives, bounds; d on npu1: 2.5 + 10 + 2 + 2 ms."""
    assert rendered(plan_report(*planned(0.0226))) == expected(REPORT)


def test_an_evaluation_without_the_plan():
    """What calls cost together is known, their starts are not; broken rules are listed."""
    given, result, judged = planned()
    shown = rendered(evaluation_report(given, judged))
    assert "npu0         2           3   4.5 ms   18.4%" in shown and "in the order" not in shown
    broken = evaluate(given, result.plan.device_of, call_of=np.zeros(6))
    shown = rendered(evaluation_report(given, broken))
    assert "infeasible" in shown and "calls of 'npu0' wait for each other" in shown


def chain_of(problem, where, calls=None):
    """Names of the steps of the chain, and which of them waited for the call before."""
    plan = plan_for(problem, where, call_of=calls)
    steps = critical_chain(problem, plan, judge(problem, plan))
    names = [f"{s.call.device}.{s.call.number}" if s.call else problem.graph.operators[s.operator].name for s in steps]
    return names, [s.waited for s in steps]


def test_the_chain_that_bounds():
    """Through inputs, or through the call before on the device; from time 0 without a gap."""
    problem = problem_of([1, 7, 1, 1, 2], [("ac", 0), ("bd", 0), ("ce", 0)])
    assert chain_of(problem, [0, 0, 1, 1, 0]) == (["b", "1.0", "e"], [False] * 3)
    assert chain_of(problem, [0, 0, 1, 1, 0], [0, 0, 1, 0, 0]) == (
        ["b", "1.0", "1.1", "e"],
        [False, False, True, False],
    )
    assert chain_of(problem_of([0, 0], [("ab", 0)]), [0, 1]) == (["a"], [False])
    sentences = explain_of(problem, [0, 0, 1, 1, 0], [0, 0, 1, 0, 0])
    assert "call 2 of 'g1' waits for the call before on its device, not for inputs." in sentences


def explain_of(problem, where, calls=None):
    plan = plan_for(problem, where, call_of=calls)
    return explain(problem, Result(plan), judge(problem, plan))


def test_what_is_said_of_one_device_alone():
    """Against the best accelerator alone and the CPUs alone, but never against itself."""
    problem = problem_of([[9, 1, 2], [9, 1, 2]], [("ab", 1)])
    said = explain_of(problem, [1, 1])
    assert said[:2] == ["The latency is a chain of 1 call: 2 s of computing in calls.",
                        "2 s are 88.9% less than 18 s on the CPUs alone."]  # fmt: skip
    assert not any("the best accelerator" in line for line in said)
    slower = "5 s are more than 2 s on 'g1' alone, the best accelerator; a longer budget should find at least that."
    assert slower in explain_of(problem, [1, 2])
    said = explain_of(problem, [0, 0])
    assert "18 s are more than 2 s on 'g1' alone, the best accelerator; a longer budget" in " ".join(said)
    assert not any("CPUs alone" in line for line in said)


def test_what_is_drawn():
    """Operators of a call follow each other between its transfers; the pool has a lane for each that runs at once."""
    given, result, judged = planned()
    start, finish = drawn_times(given, result.plan, judged)
    np.testing.assert_allclose(start, [0, 0.001, 0.0025, 0.0025, 0.0125, 0.0235])
    np.testing.assert_allclose(finish, [0.001, 0.002, 0.0125, 0.0125, 0.0225, 0.0245])
    parts = parts_of(given, calls_of(given, result.plan, judged))
    assert [(p.out, p.tensors, p.size_bytes) for p in parts] == [(True, 1, 500_000), (False, 2, 1_000_000)]
    data = timeline(given, result, judged)
    assert [(r["label"], r["lanes"]) for r in data["rows"]] == [("cpu", 2), ("npu0", 1)]
    assert data["operators"]["l"] == [0, 0, 0, 1, 0, 0] and data["operators"]["i"] == [1, 1, 0, 0, 0, 1]
    transfers = data["transfers"]
    assert transfers["w"] == ["out", "in"] and transfers["r"] == [1, 1] and transfers["s"] == [2, 22.5]
    assert transfers["n"] == ["1 tensor leaves call 1", "2 tensors enter call 2"]
    json.dumps(data, allow_nan=False)


def test_the_page():
    """Latency, calls and devices; a plan that can't be run has no timeline, and names are escaped."""
    given, result, judged = planned(0.0226)
    page = html_report(given, result, judged)
    assert "latency" in page and "24.5 ms" in page and 'id="timeline-view"' in page
    for heading in ("Timeline", "Calls in the order of their starts", "Devices", "Memory by part"):
        assert re.search(rf"<h2[^>]*>{heading}</h2>", page)
    assert "<dt>calls</dt><dd>2</dd>" in page
    stuck = Plan(result.plan.device_of, result.plan.schedule, 1.0, call_of=np.zeros(6))
    page = html_report(given, Result(stuck), judge(given, stuck))
    assert 'id="timeline-view"' not in page and "wait for each other" in page


def test_the_trace():
    """A call holds its transfers and operators; an arrow for each tensor and each call or operator that reads it."""
    given, result, _ = planned()
    events = trace(given, result.plan)["traceEvents"]
    slices = {e["name"]: (e["pid"], e["tid"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"}
    assert slices["call 1: 2 operators"] == (2, 0, 0, 2500) and slices["out: 1 tensor"] == (2, 0, 2000, 500)
    assert slices["call 2: 1 operator"] == (2, 0, 22500, 2000) and slices["in: 2 tensors"] == (2, 0, 22500, 1000)
    assert slices["net.b"] == (2, 0, 1000, 1000) and slices["net.e"] == (2, 0, 23500, 1000)
    assert slices["net.x"][:2] == (1, 0) and slices["net.c"][:2] == (1, 1)
    assert sum(e["ph"] == "s" for e in events) == sum(e["ph"] == "f" for e in events) == 5
    assert {e["args"]["name"] for e in events if e["name"] == "thread_name"} == {"compute (1)", "compute (2)", "calls"}
    stuck = Plan(result.plan.device_of, result.plan.schedule, 1.0, call_of=np.zeros(6))
    assert json.loads(trace_json(given, stuck))["traceEvents"]


@pytest.mark.parametrize("where", [[0, 0], [1, 1], [2, 1]])
def test_every_report_of_small_plans(where):
    """All on CPUs, all in one call, one call each, without tensors or times: nothing divides by 0."""
    for tensors in ((), [("ab", 0)]):
        problem = problem_of([0, 0], tensors)
        plan = plan_for(problem, where)
        result, judged = Result(plan), judge(problem, plan)
        rendered(plan_report(problem, result, judged))
        html_report(problem, result, judged)
        trace_json(problem, plan)
