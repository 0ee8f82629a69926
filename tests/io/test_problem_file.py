"""Problem files: what is written is read back, the hash, and what is wrong with a file."""

import json
import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings

from placewright.cluster import Cluster, Device, Link
from placewright.errors import InvalidInput
from placewright.graph import Operator, OperatorGraph, Source, Tensor
from placewright.io import problem_from_json, problem_hash, problem_to_json, read_problem, write_problem
from placewright.io.problem_document import ProblemDocument
from placewright.objective import Makespan, MaxLoad, Throughput
from placewright.problem import Problem, Times, Wish
from tests.io.random_problems import problems


def small(**changes):
    given = {
        "graph": OperatorGraph(
            [Operator("a", weight_bytes=8, parts=("a1", "a2")), Operator("b")],
            [Tensor("x", 0, (1,), size_bytes=4)],
            name="net",
            source=Source("onnx", "net.onnx", "ff"),
        ),
        "cluster": Cluster(
            [Device("gpu", memory_bytes=100), Device("cpu", kind="cpu")], [Link(1e-5, math.inf, link_class="same-host")]
        ),
        "times": Times([[0.1, math.inf], [1.0, 2.0]], source="profiled"),
        "objective": Makespan("port"),
        "wishes": (Wish("b", "cpu"),),
    }
    return Problem(**(given | changes))


def same(a, b):
    """Every field of two problems is equal."""
    for field in ("graph", "cluster", "objective", "wishes", "name"):
        assert getattr(a, field) == getattr(b, field)
    assert a.times.source == b.times.source
    np.testing.assert_array_equal(a.times.processing_s, b.times.processing_s)
    assert (a.times.transfer_s is None) == (b.times.transfer_s is None)
    if a.times.transfer_s is not None:
        np.testing.assert_array_equal(a.times.transfer_s, b.times.transfer_s)


@settings(max_examples=60, deadline=None)
@given(problem=problems())
def test_a_problem_is_read_back_as_it_was_written(problem, tmp_path_factory):
    """Through a file and through plain values: the same fields, the same hash, the schema obeyed strictly."""
    path = tmp_path_factory.mktemp("problem") / "p.json"
    write_problem(path, problem)
    again = read_problem(path)
    same(problem, again)
    assert problem_hash(problem) == problem_hash(again)
    plain = json.loads(json.dumps(problem_to_json(problem), allow_nan=False))
    same(problem, problem_from_json(plain))
    assert plain == json.loads(path.read_text())
    msgspec.convert(plain, ProblemDocument, strict=True)
    write_problem(path.with_name("again.json"), again)
    assert path.read_bytes() == path.with_name("again.json").read_bytes()


def test_what_a_small_file_holds(tmp_path):
    """The keys and values that the documentation names; one line a key of the outermost object."""
    write_problem(tmp_path / "p.json", small())
    text = (tmp_path / "p.json").read_text()
    assert json.loads(text) == {
        "schema": "placewright/problem/1",
        "name": "net",
        "graph": {
            "operators": [{"name": "a", "weight_bytes": 8, "parts": ["a1", "a2"]}, {"name": "b"}],
            "tensors": [{"name": "x", "producer": 0, "readers": [1], "size_bytes": 4}],
            "name": "net",
            "source": {"format": "onnx", "location": "net.onnx", "sha256": "ff"},
        },
        "cluster": {
            "devices": [{"name": "gpu", "memory_bytes": 100}, {"name": "cpu", "kind": "cpu"}],
            "links": [{"latency_s": 1e-5, "class": "same-host"}],
        },
        "processing_s": [[0.1, None], [1.0, 2.0]],
        "transfer_s": None,
        "cut_s": None,
        "times_source": "profiled",
        "objective": {"name": "makespan", "contention": "port"},
        "wishes": [{"pattern": "b", "device": "cpu"}],
    }
    assert len(text.splitlines()) == 10


def test_the_hash_is_of_canonical_json():
    """Worked by hand with the standard library: the bytes that are hashed are those of the documentation."""
    import hashlib

    problem = Problem(OperatorGraph([Operator("a")]), Cluster([Device("d")]), [[0.1]])
    content = (
        '{"operators":[["a",0,0,[]]],"tensors":[],"colocation":[],"devices":[["d","local",null,0,0.0]],"links":[],'
        '"processing_s":[[0.1]],"transfer_s":null,"cut_s":null,"objective":{"name":"makespan","contention":"link"},"wishes":[]}'
    )
    assert problem_hash(problem) == "sha256:" + hashlib.sha256(content.encode()).hexdigest()


def test_the_hash_ignores_what_only_describes():
    """Names of files, kinds, FLOPs, shapes, the source of the times and the problem's name change no plan's value."""
    problem = small()
    graph = OperatorGraph(
        [
            replace(v, kind="Conv", flops=9, traffic_bytes=9, dtype="int8", signature="s")
            for v in problem.graph.operators
        ],
        [replace(u, shape=(1, 2), dtype="fp16") for u in problem.graph.tensors],
        name="other",
    )
    devices = [replace(d, kind="npu", model="m", flops_per_s={"x": 1.0}, threads=3) for d in problem.cluster.devices]
    other = small(
        graph=graph,
        cluster=Cluster(devices, problem.cluster.links, "other"),
        times=Times(problem.times.processing_s, source="roofline"),
        name="other",
    )
    assert problem_hash(other) == problem_hash(problem)
    minus = small(times=Times([[0.1, math.inf], [1.0, 2.0]]), cluster=replace_link(problem, latency_s=-0.0))
    plus = small(times=Times([[0.1, math.inf], [1.0, 2.0]]), cluster=replace_link(problem, latency_s=0.0))
    assert problem_hash(minus) == problem_hash(plus)


def replace_link(problem, **changes):
    return Cluster(problem.cluster.devices, [replace(problem.cluster.links[0], **changes)])


def test_the_hash_covers_what_determines_a_value():
    """Each of these changes gives another hash, and no two give the same."""
    base = small()
    a, b = base.graph.operators
    (x,) = base.graph.tensors
    gpu, cpu = base.cluster.devices
    p = base.times.processing_s
    graphs = [
        OperatorGraph([replace(a, name="A"), b], [x]),
        OperatorGraph([replace(a, weight_bytes=9), b], [x]),
        OperatorGraph([replace(a, kv_cache_bytes=1), b], [x]),
        OperatorGraph([replace(a, parts=()), b], [x]),
        OperatorGraph([a, b], [replace(x, size_bytes=5)]),
        OperatorGraph([a, b], [replace(x, name="X")]),
        OperatorGraph([a, b], [replace(x, readers=())]),
        OperatorGraph([a, b], [replace(x, output=True)]),
        OperatorGraph([a, b], [x], [(0, 1)]),
    ]
    links = base.cluster.links
    clusters = [
        Cluster([replace(gpu, memory_bytes=101), cpu], links),
        Cluster([replace(gpu, memory_bytes=None), cpu], links),
        Cluster([replace(gpu, reserve_bytes=1), cpu], links),
        Cluster([replace(gpu, cut_overhead_s=1e-9), cpu], links),
        Cluster([replace(gpu, host="other"), cpu], links),
        Cluster([replace(gpu, name="gpu1"), cpu], links),
        Cluster([gpu, cpu]),
        replace_link(base, latency_s=2e-5),
        replace_link(base, bandwidth_bytes_per_s=1e9),
        replace_link(base, channel="pcie"),
        replace_link(base, link_class="between-hosts"),
        replace_link(base, link_class="", between=("gpu", "cpu")),
        replace_link(base, link_class="", between=("gpu", "cpu"), one_way=True),
    ]
    others = [
        base,
        *(small(graph=graph) for graph in graphs),
        *(small(cluster=cluster) for cluster in clusters),
        small(times=p * (1 + 2**-52)),
        small(times=Times(p, np.zeros((1, 2, 2)))),
        small(objective="makespan"),
        small(wishes=()),
        small(wishes=[Wish("b", "gpu")]),
        small(wishes=[Wish("b", "cpu", forbid=True)]),
        small(wishes=[Wish("*b", "cpu")]),
    ]
    assert len({problem_hash(problem) for problem in others}) == len(others)


def test_under_max_load_the_hash_covers_passes_cpus_and_options():
    """Backward operators and devices that pay nothing for transfers change loads, and so does every option."""
    base = small(objective=MaxLoad())
    a, b = base.graph.operators
    gpu, cpu = base.cluster.devices
    links = base.cluster.links
    options = [
        MaxLoad("convex"),
        MaxLoad("any"),
        MaxLoad(contiguous_cpus=False),
        MaxLoad(training="separate"),
        MaxLoad(overlap="full"),
        MaxLoad(overlap="full", busy_share=0.3),
        MaxLoad(replicate=True),
        MaxLoad(sync_period=2),
        MaxLoad(sync_bandwidth_bytes_per_s=1.0),
    ]
    others = [
        base,
        small(),
        small(objective=MaxLoad(), graph=OperatorGraph([a, replace(b, backward=True)], base.graph.tensors)),
        small(objective=MaxLoad(), cluster=Cluster([replace(gpu, kind="cpu"), cpu], links)),
        *(small(objective=objective) for objective in options),
    ]
    assert len({problem_hash(problem) for problem in others}) == len(others)
    same_kind = small(objective=MaxLoad(), cluster=Cluster([replace(gpu, kind="npu"), cpu], links))
    assert problem_hash(same_kind) == problem_hash(base)


@pytest.mark.parametrize("objective", [MaxLoad(overlap="full"), Throughput(overlap="transfers")])
def test_the_busy_share_stands_in_a_file_only_where_there_is_one(objective):
    """Older files say nothing of it, and keep their hashes; one with it is read as it was."""
    plain, shared = small(objective=objective), small(objective=replace(objective, busy_share=0.3))
    assert "busy_share" not in problem_to_json(plain)["objective"]
    assert problem_from_json(problem_to_json(plain)).objective == objective
    assert problem_to_json(shared)["objective"]["busy_share"] == 0.3
    assert problem_from_json(problem_to_json(shared)).objective == shared.objective


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"sync_period": 0}, "sync period 0 is not at least 1 sample"),
        ({"sync_bandwidth_bytes_per_s": 0}, "sync bandwidth 0.0 B/s is not above 0"),
        ({"busy_share": 0.3}, "busy share 0.3 is of transfers that overlap computing"),
        ({"overlap": "full", "busy_share": 2}, "busy share 2.0 is not from 0 to 1"),
        ({"overlap": "half"}, "objective.overlap: invalid enum value 'half'"),
        ({"contention": "port"}, "unknown key 'contention'"),
    ],
)
def test_options_of_max_load_that_are_refused(options, complaint):
    """Each is named with its value."""
    content = problem_to_json(small(objective=MaxLoad()))
    content["objective"].update(options)
    with pytest.raises(InvalidInput) as caught:
        problem_from_json(content)
    assert complaint in str(caught.value)


def test_tensors_may_stand_in_any_order_and_keep_their_transfer_times():
    """The graph sorts tensors; the rows of transfer_s follow them."""
    content = problem_to_json(small(wishes=()))
    content["graph"]["tensors"] = [{"name": "z", "producer": 1}, {"name": "x", "producer": 0, "readers": [1]}]
    content["transfer_s"] = [[[0, 7.0], [7.0, 0]], [[0, 5.0], [None, 0]]]
    problem = problem_from_json(content)
    assert [u.name for u in problem.graph.tensors] == ["x", "z"]
    assert [problem.transfer_s(0, 0, 1), problem.transfer_s(0, 1, 0), problem.transfer_s(1, 0, 1)] == [
        5.0,
        math.inf,
        7.0,
    ]


def changed(path, value):
    """A small problem's content with one value replaced; the path is keys and indices."""
    content = problem_to_json(small())
    at = content
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return content


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["schema"], "placewright/plan/1", "says that it is 'placewright/plan/1'"),
        (["proccessing_s"], [], "top level: unknown key 'proccessing_s'; did you mean 'processing_s'"),
        (
            ["graph", "operators", 1, "wieght_bytes"],
            1,
            "graph.operators[1]: unknown key 'wieght_bytes'; did you mean 'weight_bytes'",
        ),
        (["graph", "operators", 1, "flops"], 1.5, "graph.operators[1].flops: expected `int`, got `float`"),
        (
            ["graph", "operators", 1, "weight_bytes"],
            2**50 + 1,
            "graph.operators[1].weight_bytes: expected `int` <= 112589990684",
        ),
        (["graph", "operators", 1, "weight_bytes"], -1, "operator 'b': weight_bytes -1 is below 0"),
        (["graph", "operators", 1, "name"], "a", "operator 'a' stands twice"),
        (["graph", "operators"], [], "it has no operators"),
        (["graph", "tensors", 0, "readers"], [0], "the operators form a cycle"),
        (["graph", "tensors", 0, "producer"], 10**30, "is outside 0..1"),
        (["graph", "colocation"], [[0, 9]], "operator index 9 is outside 0..1"),
        (["graph", "source", "format"], "pickle", "graph.source.format: invalid enum value 'pickle'"),
        (["cluster", "devices", 1, "name"], "gpu", "device 'gpu' stands twice"),
        (["cluster", "devices", 1, "cut_overhead_s"], -1, "cut_overhead -1"),
        (["cluster", "links", 0, "class"], "near", "link class 'near' is unknown"),
        (["processing_s", 0, 0], -1.0, "operator 'a' on 'gpu': processing time -1.0 s is not a number of at least 0"),
        (["processing_s", 0, 0], "1", "processing_s[0][0]: expected `float | null`, got `str`"),
        (
            ["processing_s", 0],
            [1.0],
            "processing_s: the row of operator 'a' has 1 values; give one for each of the 2 devices",
        ),
        (["processing_s"], [[1.0], [1.0]], "2 devices (1 more rows are like it)"),
        (["processing_s"], [[1.0, 1.0]], "processing_s has 1 rows; give one for each of the 2 operators"),
        (["transfer_s"], [], "transfer_s has 0 rows; give one for each of the 1 tensors"),
        (["transfer_s"], [[[1.0, 1.0]]], "transfer_s of tensor 'x' has 1 rows; give one for each of the 2 devices"),
        (["transfer_s"], [[[1.0, 1.0], [1.0]]], "transfer_s of tensor 'x': the row of device 'cpu' has 1 values"),
        (["transfer_s"], [[[0, -1], [1, 0]]], "transfer time -1.0 s is not >= 0"),
        (["objective", "contention"], "some", "objective.contention: invalid enum value 'some'"),
        (["objective", "name"], "speed", "objective.name: invalid value 'speed'"),
        (["wishes", 0, "device"], "tpu", "pin b=tpu: no device is named 'tpu'"),
        (["wishes", 0, "pattern"], "zz", "no operator matches 'zz'"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(path, value, message, tmp_path):
    """The place, the value and the remedy; the file is named."""
    (tmp_path / "p.json").write_text(json.dumps(changed(path, value)))
    with pytest.raises(InvalidInput) as caught:
        read_problem(tmp_path / "p.json")
    assert str(caught.value).startswith(f"problem file {str(tmp_path / 'p.json')!r}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_faults_of_graph_cluster_and_tables_are_reported_together():
    """Three parts are wrong: three lines."""
    content = changed(["graph", "operators", 1, "name"], "a")
    content["cluster"]["devices"][0]["cut_overhead_s"] = -1
    content["transfer_s"] = []
    with pytest.raises(InvalidInput) as caught:
        problem_from_json(content)
    assert len(caught.value.violations) == 2  # without a cluster the tables can't be checked
    content["cluster"]["devices"][0]["cut_overhead_s"] = 1
    with pytest.raises(InvalidInput) as caught:
        problem_from_json(content)
    assert [line.split(" ")[0] for line in caught.value.violations] == ["graph", "transfer_s"]


def test_bombs_end_in_one_line(tmp_path):
    """2 GiB (sparse), nested lists, a NaN, a truncated file, an empty one."""
    bomb = tmp_path / "p.json"
    nested = b'{"schema":"placewright/problem/1","x":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    rows = b'{"schema":"placewright/problem/1","processing_s":' + b"[" * 200_000
    for data, message in (
        (b"[" * 200_000, "expected `object`, got `array`"),
        (nested, "is nested too deeply"),
        (rows, "is nested too deeply"),
        (b'{"schema":"placewright/problem/1","processing_s":[[NaN]]}', "is not valid JSON"),
        (b'{"schema":"placewright/pro', "is not valid JSON"),
        (b"", "is not valid JSON"),
    ):
        bomb.write_bytes(data)
        with pytest.raises(InvalidInput, match=message):
            read_problem(bomb)
    with bomb.open("wb") as file:
        file.truncate(2 * 2**30)
    with pytest.raises(InvalidInput, match="has 2 GiB"):
        read_problem(bomb)
