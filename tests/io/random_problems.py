"""Hypothesis strategies: clusters, problems and plans with everything that files must carry."""

import math
from dataclasses import replace

import hypothesis.strategies as st
import numpy as np

from placewright.cluster import Cluster, Device, Link
from placewright.evaluate.offload import numbered_calls
from placewright.graph import Operator, OperatorGraph, Source, Tensor
from placewright.objective import Makespan, MaxLoad, Offload
from placewright.plan import Plan, Provenance, Schedule, Transfer
from placewright.problem import Problem, Times, Wish

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6) | st.sampled_from(
    ["gpu[0-1]", "a[[0]", "{0}", "*", "?", "null", "1e3", "no", "x: y", "#c", "~", "'", "\n", "[0]"]
)
SECONDS = st.floats(0, 1e9, allow_nan=False) | st.sampled_from([0.0, -0.0, 5e-324, 1e-6, 0.1])
SIZES = st.integers(0, 2**45) | st.sampled_from([0, 2**30, 10**9])
TEXT = st.text(st.characters(codec="utf-8"), max_size=5)


@st.composite
def clusters(draw):
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    hosts = st.sampled_from(["local", "h{0}", "box[1]", "b"])
    devices = []
    for name in names:
        memory = draw(st.none() | SIZES)
        devices.append(
            Device(
                name,
                kind=draw(st.sampled_from(["gpu", "cpu"])),
                host=draw(hosts),
                memory_bytes=memory,
                reserve_bytes=0 if memory is None else draw(st.integers(0, memory)),
                flops_per_s=draw(st.dictionaries(st.sampled_from(["fp32", "int8"]), st.floats(0, 1e18))),
                memory_bandwidth_bytes_per_s=draw(st.floats(0, 1e13)),
                launch_overhead_s=draw(SECONDS),
                cut_overhead_s=draw(SECONDS),
                cores=tuple(draw(st.lists(st.integers(0, 99), max_size=3, unique=True))),
                threads=draw(st.integers(0, 8)),
                cpu_share=draw(st.floats(0, 1, exclude_min=True)),
            )
        )
    links = []
    for _ in range(draw(st.integers(0, 3))):
        rule = {"channel": draw(TEXT), "one_way": draw(st.booleans())}
        if len(names) > 1 and draw(st.booleans()):
            rule["between"] = tuple(draw(st.permutations(names))[:2])
        else:
            rule["link_class"] = draw(st.sampled_from(["same-host", "between-hosts"]))
        bandwidth = draw(st.floats(0, 1e12, exclude_min=True) | st.just(math.inf))
        links.append(Link(draw(SECONDS), bandwidth, **rule))
    return Cluster(devices, links, draw(TEXT))


def max_loads():
    """Max-load with any options."""
    return st.builds(
        MaxLoad,
        st.sampled_from(["contiguous", "convex", "any"]),
        st.booleans(),
        st.sampled_from(["sum", "separate"]),
        st.sampled_from(["none", "transfers", "full"]),
        st.booleans(),
        st.integers(1, 10**6),
        st.none() | st.floats(1, 1e12),
    )


@st.composite
def problems(draw):
    names = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    n, cluster = len(names), draw(clusters())
    operators = [
        Operator(
            name,
            draw(TEXT),
            *draw(st.tuples(*[SIZES] * 4)),
            signature=draw(TEXT),
            backward=draw(st.booleans()),
            parts=tuple(f"{k}.{j}" for j in range(draw(st.integers(0, 2)))),
        )
        for k, name in enumerate(names)
    ]
    tensors = [
        Tensor(
            f"{draw(TEXT)}{u}",
            producer := draw(st.integers(0, n - 1)),
            tuple(v for v in range(producer + 1, n) if draw(st.booleans())),
            draw(SIZES),
            tuple(draw(st.lists(st.integers(0, 99), max_size=2))),
            output=draw(st.booleans()),
        )
        for u in range(draw(st.integers(0, 4)))
    ]
    colocation = [draw(st.lists(st.integers(0, n - 1), min_size=2, max_size=2, unique=True))] if n > 1 else []
    source = draw(st.none() | st.builds(Source, st.sampled_from(["onnx", "py"]), TEXT, TEXT))
    graph = OperatorGraph(operators, tensors, colocation, draw(TEXT), source)
    times = SECONDS | st.just(math.inf)
    D = len(cluster)
    processing = [[draw(times) for _ in range(D)] for _ in range(n)]
    table = draw(st.booleans())
    transfer = np.array([draw(times) for _ in range(len(tensors) * D * D)]).reshape(len(tensors), D, D)
    wishes = draw(st.lists(st.builds(Wish, st.just("*"), st.just("*"), st.booleans()), max_size=1))
    offloads = st.builds(Offload, st.none() | st.integers(1, 10**6))
    objective = draw(st.builds(Makespan, st.sampled_from(["none", "link", "port"])) | max_loads() | offloads)
    if isinstance(objective, MaxLoad) and objective.sync_bandwidth_bytes_per_s is None:
        objective = replace(objective, sync_bandwidth_bytes_per_s=8.0)  # links may be absent, or of any bandwidth
    return Problem(graph, cluster, Times(processing, transfer if table else None, draw(TEXT)), objective, wishes)


@st.composite
def plans(draw, problem):
    """A plan with any numbers: files carry plans, the judge judges them."""
    n, D, T = len(problem.graph), len(problem.cluster), len(problem.graph.tensors)
    where = [draw(st.integers(0, D - 1)) for _ in range(n)]
    start, finish = ([draw(SECONDS) for _ in range(n)] for _ in range(2))
    legs = [
        Transfer(
            draw(st.integers(0, T - 1)), draw(st.integers(0, D - 1)), draw(st.integers(0, D - 1)), 0.5, draw(SECONDS)
        )
        for _ in range(draw(st.integers(0, 2)) if T else 0)
    ]
    stages = [sorted(draw(st.permutations(range(D)))[:2])] if D > 1 and draw(st.booleans()) else []
    provenance = Provenance("solver", draw(st.none() | st.integers(0, 9)), "0.1", {"budget": 1.5, "list": [1, 2]})
    calls = None
    if isinstance(problem.objective, Offload):
        calls = numbered_calls(problem, where, draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)))
    return Plan(where, Schedule(start, finish, tuple(legs)), draw(SECONDS), provenance, stages, calls)
