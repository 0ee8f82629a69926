"""Plan files: what is written is read back, and what does not match its problem is refused."""

import json
import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.cluster import Cluster, Device, Link
from placewright.errors import InvalidInput, NoPlan
from placewright.evaluate.evaluation import DeviceUse, Evaluation
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.io import problem_hash, read_plan, write_plan
from placewright.io.plan_document import PlanDocument
from placewright.plan import Plan, Provenance, Schedule, Transfer
from placewright.problem import Problem
from placewright.result import Result
from placewright.verify import verify
from tests.io.random_problems import plans, problems


def problem_of(*, weight=0, names=("ab", "d"), devices=("gpu", "cpu")):
    """'ab', made of a and b, makes x for d."""
    graph = OperatorGraph(
        [Operator(names[0], weight_bytes=weight, parts=("a", "b")), Operator(names[1])], [Tensor("x", 0, (1,), 8)]
    )
    cluster = Cluster([Device(name) for name in devices], [Link(0.5, 16.0, link_class="same-host")])
    return Problem(graph, cluster, np.ones((2, len(devices))), name="small")


# ab on gpu 0..1, x: 0.5 + 8/16 = 1 s, d on cpu 2..3.
PLAN = Plan(
    [0, 1],
    Schedule([0.0, 2.0], [1.0, 3.0], (Transfer(0, 0, 1, 1.0, 2.0),)),
    3.0,
    Provenance("etf", 5, "0.1.0", {"budget_s": 60.0, "steps": [1, 2], "cap": None, "odd": {1}}),
)
RESULT = Result(
    PLAN, 2.0, runtime_s=0.5, solver="etf", bounds={"load": 2.0}, alternatives={"gpu": 4.0, "cpu": math.inf}
)


@pytest.fixture
def path(tmp_path):
    write_plan(tmp_path / "plan.json", problem_of(), RESULT, None)
    return tmp_path / "plan.json"


def refused(path, problem=None):
    with pytest.raises(InvalidInput) as caught:
        read_plan(path, problem)
    message = str(caught.value)
    assert message.startswith(f"plan file {str(path)!r}: ")
    assert "\n" not in message
    return message


def edit(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def same(a, b):
    assert a.device_of.tolist() == b.device_of.tolist()
    assert a.schedule.start_s.tolist() == b.schedule.start_s.tolist()
    assert a.schedule.finish_s.tolist() == b.schedule.finish_s.tolist()
    assert a.schedule.transfers == b.schedule.transfers
    assert a.value_s == b.value_s
    assert a.replicas == b.replicas
    assert (a.call_of is None) == (b.call_of is None)
    assert a.call_of is None or a.call_of.tolist() == b.call_of.tolist()


def test_a_plan_file_stands_alone(path):
    """Plan, problem and result come back; what JSON can't say of the parameters is text."""
    read = read_plan(path)
    same(read.plan, PLAN)
    assert verify(read.problem, read.plan) == ()
    assert read.problem_hash == problem_hash(read.problem) == problem_hash(problem_of())
    assert read.plan.provenance == Provenance(
        "etf", 5, "0.1.0", {"budget_s": 60.0, "steps": [1, 2], "cap": None, "odd": "{1}"}
    )
    result = read.result
    assert (result.lower_bound_s, result.gap, result.solver, result.runtime_s) == (2.0, RESULT.gap, "etf", 0.5)
    assert (result.bounds, result.alternatives) == ({"load": 2.0}, {"gpu": 4.0, "cpu": math.inf})
    assert read.document.seed == 5  # the provenance's


def test_what_the_file_holds(path):
    """The keys of --json, and besides them schedule, provenance and the problem's content."""
    content = json.loads(path.read_text())
    assert content["schema"] == "placewright/plan/1"
    assert content["problem"] == {"name": "small", "hash": problem_hash(problem_of()), "operators": 2, "devices": 2}
    assert content["placement"] == {"a": "gpu", "b": "gpu", "d": "cpu"}
    assert content["schedule"] == {
        "operators": {"name": ["ab", "d"], "device": ["gpu", "cpu"], "start_s": [0.0, 2.0], "finish_s": [1.0, 3.0]},
        "transfers": [{"tensor": "x", "source": "gpu", "target": "cpu", "start_s": 1.0, "finish_s": 2.0}],
    }
    assert content["problem_content"]["graph"]["operators"][0] == {"name": "ab", "parts": ["a", "b"]}
    assert len(path.read_text().splitlines()) == len(content)


def test_an_evaluation_seed_and_explanation_are_kept(tmp_path):
    """As in the JSON of a result."""
    uses = (DeviceUse("gpu", 1, 1.0, 8, 0, 0, 0, 8, None), DeviceUse("cpu", 1, 1.0, 0, 8, 0, 0, 8, None))
    judged = Evaluation(3.0, PLAN.schedule, uses)
    write_plan(tmp_path / "p", problem_of(), RESULT, judged, seed=9, explanation=["Because."])
    document = read_plan(tmp_path / "p").document
    assert [use.memory_bytes for use in document.devices] == [8, 8]
    assert (document.seed, document.explanation) == (9, ["Because."])


def test_without_the_problem_it_must_be_given(tmp_path):
    """A file that doesn't carry its problem is read with it, and not without."""
    path = tmp_path / "p.json"
    write_plan(path, problem_of(), RESULT, None, embed_problem=False)
    assert "does not carry its problem; give the problem file too" in refused(path)
    same(read_plan(path, problem_of()).plan, PLAN)


def test_a_result_without_a_plan_is_not_written(tmp_path):
    """The caller hears why, and there is no file."""
    with pytest.raises(NoPlan, match="too big"):
        write_plan(tmp_path / "p.json", problem_of(), Result(infeasible="too big"), None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"devices": ("gpu", "cpu", "npu")}, "the plan's has 2 devices, this one 3"),
        ({"names": ("ab", "e")}, "the plan's has the operator 'd' where this one has 'e'"),
        ({"weight": 9}, "operators[0][1] is 0 in the plan's, 9 in this one"),
        ({"devices": ("gpu", "tpu")}, "devices[1][0] is 'cpu' in the plan's, 'tpu' in this one"),
    ],
)
def test_a_plan_for_another_problem_is_refused(path, changes, difference):
    """Both hashes and the first difference are named."""
    other = problem_of(**changes)
    message = refused(path, other)
    assert f"is for the problem {problem_hash(problem_of())}, not for {problem_hash(other)}: {difference};" in message


def test_other_differences_between_problems(tmp_path):
    """Number of operators; tables of another length; and, without the plan's own problem, what may differ."""
    path = tmp_path / "p.json"
    write_plan(path, problem_of(), RESULT, None)
    one = Problem(OperatorGraph([Operator("ab")]), problem_of().cluster, np.ones((1, 2)))
    assert "the plan's has 2 operators, this one 1" in refused(path, one)
    base = problem_of()
    bare = OperatorGraph(base.graph.operators)
    assert "tensors has 1 entries in the plan's, 0 in this one" in refused(
        path, Problem(bare, base.cluster, np.ones((2, 2)))
    )
    port = Problem(base.graph, base.cluster, np.full((2, 2), 2.0))
    assert "processing_s[0][0] is 1.0 in the plan's, 2.0 in this one" in refused(path, port)
    write_plan(path, problem_of(), RESULT, None, embed_problem=False)
    assert "operators and number of devices are the same; times, sizes" in refused(path, port)


def test_a_problem_that_was_changed_in_the_file_is_refused(path):
    """Its hash is not the stated one any more."""
    edit(path, lambda c: c["problem_content"]["processing_s"].__setitem__(0, [2.0, 2.0]))
    assert "it was changed, so make the plan again" in refused(path)


def put(*keys_and_value):
    *keys, last, value = keys_and_value

    def change(content):
        for key in keys:
            content = content[key]
        content[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            put("placement", "b", "cpu"),
            "placement: 'a' on gpu; 'b' on cpu, but the schedule runs 'ab' on 'gpu', and its parts",
        ),
        (put("placement", "d", "gpu"), "placement: 'd' on gpu, but the schedule runs 'd' on 'cpu'; make them agree"),
        (put("placement", {"a": "gpu", "d": "cpu"}), "placement: operator 'b' is missing; give its device"),
        (put("placement", None), "placement: operator 'a' is missing"),
        (put("placement", "dd", "cpu"), "placement: there is no operator 'dd'; did you mean 'd'?"),
        (
            put("schedule", "operators", "device", ["gpu", "cpux"]),
            "schedule: there is no device 'cpux'; did you mean 'cpu'?",
        ),
        (put("schedule", "transfers", 0, "target", "tpu"), "schedule: there is no device 'tpu'"),
        (put("schedule", "transfers", 0, "tensor", "y"), "schedule: there is no tensor 'y'; use one of x"),
        (
            put("schedule", "operators", "start_s", [0.0]),
            "schedule.operators.start_s has 1 values; give one for each of the 2",
        ),
        (
            put("schedule", "operators", "name", ["d", "ab"]),
            "schedule.operators.name[0] is 'd', but 'ab' in the problem",
        ),
        (
            put("schedule", "operators", "start_s", [0.0, None]),
            "schedule.operators.start_s[1]: expected `float`, got `null`",
        ),
        (put("replicas", [["gpu", "cpux"]]), "replicas: there is no device 'cpux'; did you mean 'cpu'?"),
        (put("replicas", [[]]), "replicas[0] is empty; list the devices of the stage, or leave it out"),
        (put("value_s", None), "value_s is null; a plan has a value in seconds"),
        (
            put("schema", "placewright/problem/1"),
            "says that it is 'placewright/problem/1'; this takes a file with the schema",
        ),
        (put("statsu", "x"), "unknown key 'statsu'; did you mean 'status'"),
        (put("problem_content", "graph", "operators", 0, "name", "d"), "its problem: graph: operator 'd' stands twice"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(path, change, message):
    """Names that are not there or disagree, arrays of the wrong length, another kind of file."""
    edit(path, change)
    assert message in refused(path)


def test_many_faults_of_one_kind_are_cut_short(path):
    """Twenty are named, and that there are more."""
    edit(path, lambda c: c["placement"].update({f"u{k}": "gpu" for k in range(30)}))
    message = refused(path)
    assert message.count("there is no operator") == 20
    assert message.endswith("and there are more like these")


@settings(max_examples=50, deadline=None)
@given(problem=problems(), embed=st.booleans(), data=st.data())
def test_a_plan_is_read_back_as_it_was_written(problem, embed, data, tmp_path_factory):
    """Random problems and plans, with the problem in the file or given; the file obeys the schema strictly."""
    plan = data.draw(plans(problem))
    path = tmp_path_factory.mktemp("plan") / "p.json"
    write_plan(path, problem, Result(plan, 0.5), None, embed_problem=embed)
    read = read_plan(path, None if embed else problem)
    same(read.plan, plan)
    assert read.plan.provenance == plan.provenance
    assert problem_hash(read.problem) == problem_hash(problem)
    msgspec.convert(json.loads(path.read_text()), PlanDocument, strict=True)
    write_plan(path.with_name("again"), read.problem, read.result, None, embed_problem=embed)
    assert path.with_name("again").read_bytes() == path.read_bytes()
