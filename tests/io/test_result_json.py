"""The JSON object of a result."""

import json
import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.cluster import Cluster, Device, Link
from placewright.evaluate import evaluate, judge, plan_for
from placewright.evaluate.evaluation import DeviceUse, Evaluation
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.io import evaluation_to_json, placement_by_name, problem_hash, result_to_json
from placewright.io.result_json import ResultDocument
from placewright.objective import MaxLoad
from placewright.plan import Plan, Schedule
from placewright.problem import Problem
from placewright.result import Result
from tests.io.random_problems import plans, problems


def fused():
    """Two operators, the first made of three; on gpu and cpu."""
    graph = OperatorGraph([Operator("ab", parts=("a", "b", "c")), Operator("d")], name="net")
    cluster = Cluster([Device("gpu", memory_bytes=100, reserve_bytes=10), Device("cpu")])
    return Problem(graph, cluster, [[1.0, 2.0], [1.0, 2.0]])


def test_the_object_that_json_prints():
    """Exactly these keys and values for a worked result; numpy's numbers become plain ones."""
    problem = fused()
    schedule = Schedule([0.0, 0.0], [1.0, 2.0])
    plan = Plan([0, 1], schedule, np.float64(2.0))
    uses = (
        DeviceUse("gpu", 1, np.float64(1.0), 5, 6, np.int64(10), 20, 30, 90),
        DeviceUse("cpu", 1, 2.0, 0, 0, 0, 0, 0, None),
    )
    result = Result(
        plan, np.float64(1.5), "", 0.25, "heft", {"load": 1.5, "path": 1.0}, {"gpu": 3.0, "cpu": math.inf}, True
    )
    shown = result_to_json(problem, result, Evaluation(2.0, schedule, uses), seed=np.int64(7), explanation=["Because."])
    assert json.loads(json.dumps(shown, allow_nan=False)) == {
        "schema": "placewright/result/1",
        "problem": {"name": "net", "hash": problem_hash(problem), "operators": 2, "devices": 2},
        "objective": "makespan",
        "objective_options": {"contention": "link"},
        "times_source": "given",
        "solver": "heft",
        "status": "feasible",
        "value_s": 2.0,
        "lower_bound_s": 1.5,
        "gap": 0.25,  # (2 - 1.5) / 2
        "runtime_s": 0.25,
        "seed": 7,
        "placement": {"a": "gpu", "b": "gpu", "c": "gpu", "d": "cpu"},
        "devices": [
            {
                "name": "gpu",
                "busy_s": 1.0,
                "memory_bytes": 60,  # 10 + 20 + 30
                "memory_limit_bytes": 90,
                "weight_bytes": 10,
                "kv_cache_bytes": 20,
                "activation_bytes": 30,
                "gradient_bytes": 0,
                "optimizer_bytes": 0,
                "saved_bytes": 0,
                "workspace_bytes": 0,
                "operators": 1,
                "sent_bytes": 5,
                "received_bytes": 6,
                "loads": [],
            },
            {
                "name": "cpu",
                "busy_s": 2.0,
                "memory_bytes": 0,
                "memory_limit_bytes": None,
                "weight_bytes": 0,
                "kv_cache_bytes": 0,
                "activation_bytes": 0,
                "gradient_bytes": 0,
                "optimizer_bytes": 0,
                "saved_bytes": 0,
                "workspace_bytes": 0,
                "operators": 1,
                "sent_bytes": 0,
                "received_bytes": 0,
                "loads": [],
            },
        ],
        "channels": [],
        "replicas": [],
        "copies": [],
        "calls": [],
        "bounds": {"load": 1.5, "path": 1.0},
        "alternatives": {"gpu": 3.0, "cpu": None},
        "infeasible": "",
        "interrupted": True,
        "rejected_s": None,
        "rejected": "",
        "explanation": ["Because."],
    }


@pytest.mark.parametrize(
    ("result", "status", "bound"),
    [
        (Result(), "unknown", 0.0),
        (Result(lower_bound_s=math.inf, infeasible="'ab' does not fit"), "infeasible", None),
    ],
)
def test_without_a_plan_there_is_null(result, status, bound):
    """No placement, no value, no devices; infinite bounds are null, and the reason stands beside them."""
    shown = result_to_json(fused(), result, None)
    assert (shown["status"], shown["lower_bound_s"], shown["infeasible"]) == (status, bound, result.infeasible)
    assert (shown["placement"], shown["value_s"], shown["gap"], shown["devices"], shown["seed"]) == (
        None,
        None,
        1.0,
        [],
        None,
    )


def test_a_part_of_two_operators_runs_on_both_devices():
    """A shared part on two devices is a list, on one device it is that device."""
    graph = OperatorGraph([Operator("x", parts=("s", "x0")), Operator("y", parts=("s", "y0"))])
    problem = Problem(graph, Cluster([Device("p"), Device("q")]), np.ones((2, 2)))
    apart = Plan([0, 1], Schedule([0.0, 0.0], [1.0, 1.0]), 1.0)
    assert placement_by_name(problem, apart) == {"s": ["p", "q"], "x0": "p", "y0": "q"}
    together = Plan([1, 1], Schedule([0.0, 1.0], [1.0, 2.0]), 2.0)
    assert placement_by_name(problem, together) == {"s": "q", "x0": "q", "y0": "q"}


def test_loads_replicas_and_what_was_rejected():
    """Two copies of a stage of 4 s: 2 s each; the placement lists both, and options keep their types."""
    graph = OperatorGraph([Operator("a"), Operator("b")])
    problem = Problem(graph, Cluster([Device("p"), Device("q")]), [[3.0, 3.0], [1.0, 1.0]], MaxLoad(replicate=True))
    plan = plan_for(problem, [0, 0], replicas=[(0, 1)])
    shown = result_to_json(problem, Result(plan, rejected_s=1.5, rejected="no"), judge(problem, plan))
    assert shown["placement"] == {"a": ["p", "q"], "b": ["p", "q"]} and shown["replicas"] == [["p", "q"]]
    load = {"compute_s": 2.0, "in_s": 0.0, "out_s": 0.0, "sync_s": 0.0, "load_s": 2.0}
    assert [d["loads"] for d in shown["devices"]] == [[load], [load]] and shown["value_s"] == 2.0
    assert (shown["rejected_s"], shown["rejected"]) == (1.5, "no")
    assert shown["objective_options"] == {
        "contiguity": "contiguous",
        "contiguous_cpus": True,
        "training": "sum",
        "overlap": "none",
        "replicate": True,
        "sync_period": 1,
        "sync_bandwidth_bytes_per_s": None,
    }


def test_loads_that_are_infinite_are_null():
    """Of a placement where an operator can't run, which no plan is but the judge judges."""
    problem = Problem(OperatorGraph([Operator("a")]), Cluster([Device("p"), Device("q")]), [[1.0, math.inf]], MaxLoad())
    shown = evaluation_to_json(problem, evaluate(problem, [1]))
    json.dumps(shown, allow_nan=False)
    assert shown["value_s"] is None and shown["devices"][1]["loads"][0]["load_s"] is None


def test_channels_have_loads():
    """A tensor of 2 s over a shared channel loads it with 2 s."""
    graph = OperatorGraph([Operator("a"), Operator("b")], [Tensor("x", 0, (1,), 8)])
    cluster = Cluster([Device("p"), Device("q")], [Link(1.0, 8.0, link_class="same-host", channel="bus")])
    problem = Problem(graph, cluster, np.ones((2, 2)), MaxLoad())
    shown = evaluation_to_json(problem, evaluate(problem, [0, 1]))
    assert shown["channels"] == [{"name": "bus@local", "load_s": [2.0]}]


@settings(max_examples=30, deadline=None)
@given(problems(), st.data())
def test_every_result_obeys_the_schema(problem, data):
    """Random problems and plans: strict decoding of the printed text, no NaN or infinity in it."""
    plan = data.draw(st.none() | plans(problem))
    bound = data.draw(st.sampled_from([0.0, 1.0, math.inf]))
    shown = result_to_json(problem, Result(plan, bound, bounds={"b": bound}), None, seed=1)
    text = json.dumps(shown, allow_nan=False)
    decoded = msgspec.json.decode(text, type=ResultDocument, strict=True)
    assert msgspec.to_builtins(decoded) == shown
