"""Links whose time bends with the bytes: what they say, that all parts agree on it, and what files hold of it."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import placewright as pw
from placewright import problem as problem_module
from placewright.algorithm import Budget
from placewright.errors import InvalidInput
from placewright.evaluate import judge
from placewright.io import cluster_from_text, cluster_to_text, problem_from_json, problem_hash, problem_to_json
from placewright.objective import Throughput
from placewright.solvers.copies import with_copies
from placewright.verify import verify
from tests.max_load.random_problems import max_load_problems
from tests.offload.random_problems import offload_problems
from tests.random_problems import problems

PAIR = [pw.Device("a"), pw.Device("b")]


def bent(link: pw.Link, rises: list[tuple[int, int]]) -> pw.Link:
    """The link with points at the sums of these (bytes, eighths of a second)."""
    points, size, seconds = [], 0, link.latency_s
    for more, longer in rises:
        size, seconds = size + more, seconds + longer / 8
        points.append((size, seconds))
    return replace(link, points=tuple(points))


RISES = st.lists(st.tuples(st.sampled_from([1, 2, 8, 32]), st.integers(0, 8)), min_size=1, max_size=4)


@st.composite
def bent_problems(draw: st.DrawFn) -> pw.Problem:
    """Problems of every objective, each of whose links has points with an even chance; no tables."""
    kind = draw(st.sampled_from(["makespan", "max-load", "offload", "throughput"]))
    if kind == "makespan":
        problem = draw(problems(most_operators=6))
    elif kind == "offload":
        problem = draw(offload_problems(most_operators=5))
    else:
        problem = draw(max_load_problems(most_operators=5, table=False))
        if kind == "throughput":
            problem = pw.Problem(
                problem.graph, problem.cluster, problem.times, Throughput(sync_bandwidth_bytes_per_s=2.0)
            )
    links = [bent(k, draw(RISES)) if draw(st.booleans()) else k for k in problem.cluster.links]
    return pw.Problem(
        problem.graph,
        pw.Cluster(problem.cluster.devices, links),
        replace(problem.times, transfer_s=None),
        problem.objective,
        problem.wishes,
    )


def with_table(problem: pw.Problem) -> pw.Problem:
    """The same problem with the transfer times as a table, worked out link by link in fractions, and no points."""
    cluster, D = problem.cluster, len(problem.cluster)
    table = np.zeros((len(problem.graph.tensors), D, D))
    for u, tensor in enumerate(problem.graph.tensors):
        for i in range(D):
            for j in range(D):
                rule = cluster.rule_of[i, j]
                table[u, i, j] = (
                    0.0 if i == j else math.inf if rule < 0 else by_hand(cluster.links[rule], tensor.size_bytes)
                )
    straight = pw.Cluster(cluster.devices, [replace(k, points=()) for k in cluster.links])
    return pw.Problem(
        problem.graph, straight, replace(problem.times, transfer_s=table), problem.objective, problem.wishes
    )


def by_hand(link: pw.Link, size: int) -> float:
    corners = [(Fraction(0), Fraction(link.latency_s)), *((Fraction(b), Fraction(s)) for b, s in link.points)]
    for (b, s), (c, t) in pairwise(corners):
        if size <= c:
            return float(s + (t - s) * (size - b) / (c - b))
    slope = 0 if link.bandwidth_bytes_per_s == math.inf else 1 / Fraction(link.bandwidth_bytes_per_s)
    return float(corners[-1][1] + (size - corners[-1][0]) * slope)


@given(RISES, st.integers(0, 300), st.sampled_from([16.0, 64.0, math.inf]))
def test_the_line_runs_over_its_points_and_beyond_at_the_bandwidth(
    rises: list[tuple[int, int]], size: int, bandwidth: float
) -> None:
    """Against fractions: alone, in an array, from the cluster and from the checker's side; at 0 bytes, the latency."""
    link = bent(pw.Link(0.25, bandwidth, link_class="same-host"), rises)
    cluster = pw.Cluster(PAIR, [link])
    assert link.seconds([[size], [0]]).tolist() == [[pytest.approx(by_hand(link, size), rel=1e-12)], [0.25]]
    assert cluster.transfer_s(size, 0, 1) == pytest.approx(by_hand(link, size), rel=1e-12)
    assert cluster.transfer_s(size, 1, 1) == 0.0
    table = cluster.transfer_table([size, 0])
    assert table.shape == (2, 2, 2) and table[0, 1, 0] == cluster.transfer_s(size, 1, 0) and table[1, 0, 1] == 0.25


@settings(max_examples=40, deadline=None)
@given(bent_problems())
def test_points_are_worth_what_a_table_of_the_same_times_is(problem: pw.Problem) -> None:
    """The plan found is legal to the checker, and judge and checker agree with those of the table."""
    result = pw.solve(problem, budget=Budget(iterations=50))
    if result.plan is None:
        return
    tabled = with_table(problem)
    assert verify(problem, result.plan) == ()
    assert verify(tabled, result.plan) == ()
    assert judge(problem, result.plan).value_s == pytest.approx(judge(tabled, result.plan).value_s, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(max_load_problems(most_operators=4, table=False), st.data())
def test_a_copy_of_a_device_is_linked_by_the_same_line(problem: pw.Problem, data: st.DataObject) -> None:
    """Times from and to the copy are those of the device; between the two, those of the rule."""
    links = [bent(k, data.draw(RISES)) for k in problem.cluster.links]
    cluster = pw.Cluster(problem.cluster.devices, links)
    curved = pw.Problem(problem.graph, cluster, problem.times, pw.MaxLoad("any"))
    device = data.draw(st.integers(0, len(problem.cluster) - 1))
    copied, tabled = with_copies(curved, device, 1), with_copies(with_table(curved), device, 1)
    D = len(problem.cluster)
    assert copied.times.transfer_s is not None and tabled.times.transfer_s is not None
    apart = [(i, j) for i in range(D + 1) for j in range(D + 1) if {i, j} != {device, D}]
    for u in range(len(problem.graph.tensors)):
        for i, j in apart:
            assert copied.times.transfer_s[u, i, j] == pytest.approx(tabled.times.transfer_s[u, i, j], rel=1e-12)
    rule = pw.Cluster(copied.cluster.devices, links)
    if problem.cluster.devices[device].kind != "cpu" and rule.rule_of[device, D] >= 0:
        for u, t in enumerate(problem.graph.tensors):
            assert copied.times.transfer_s[u, device, D] == rule.transfer_s(t.size_bytes, device, D)


def test_every_fault_of_points_is_reported() -> None:
    """Bytes that do not ascend from above 0, seconds that fall, too many points, more bytes than files hold."""
    links = [
        pw.Link(1.0, 1.0, between=("a", "b"), points=((0, 2.0), (5, 0.5), (5, math.inf))),
        pw.Link(0.0, 1.0, link_class="same-host", points=tuple((k + 1, 1.0) for k in range(65))),
        pw.Link(0.0, 1.0, link_class="same-host", points=((2**50, 1.0), (10**400, 2.0))),
    ]
    with pytest.raises(InvalidInput) as caught:
        pw.Cluster(PAIR, links)
    assert caught.value.violations == (
        "link a-b: the point at 0 B does not lie beyond 0.0 B; list points by ascending bytes",
        "link a-b: the point at 5 B takes 0.5 s, not a finite time of at least the 2.0 s of less bytes",
        "link a-b: the point at 5 B does not lie beyond 5 B; list points by ascending bytes",
        "link a-b: the point at 5 B takes inf s, not a finite time of at least the 0.5 s of less bytes",
        "link class 'same-host': 65 points are more than the 64 that a link may have; thin them out",
        "link class 'same-host': the point at 1e+300 B lies beyond 1 PiB; leave it out",
    )


@given(RISES, st.booleans())
def test_files_keep_points_and_hashes_count_them(rises: list[tuple[int, int]], one_way: bool) -> None:
    """Cluster and problem files read back equal; the hash changes with the points and is as it was without."""
    straight = pw.Link(0.25, 16.0, between=("a", "b"), one_way=one_way)
    cluster = pw.Cluster(PAIR, [bent(straight, rises)])
    assert cluster_from_text(cluster_to_text(cluster)) == cluster
    graph = pw.OperatorGraph([pw.Operator("v")])
    problem = pw.Problem(graph, cluster, [[1.0, 2.0]])
    assert problem_from_json(problem_to_json(problem)).cluster == cluster
    plain = pw.Problem(graph, pw.Cluster(PAIR, [straight]), [[1.0, 2.0]])
    assert problem_hash(problem) != problem_hash(plain)
    assert "points" not in str(problem_to_json(plain)) and "points" not in cluster_to_text(plain.cluster)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ("[[1 kB]]", r"link 'a-b': points\[0\]: expected `array` of length 2, got 1"),
        ("[[1 kB, 2 MB]]", "link 'a-b': points '2 MB' has the unknown unit 'MB'"),
        ("[[x, 2 us]]", "link 'a-b': points 'x' is not a"),
        ("[[2 kB, 2 us], [1 kB, 3 us]]", "link a-b: the point at 1000 B does not lie beyond 2000 B"),
    ],
)
def test_what_is_wrong_with_points_in_a_file_is_one_line(points: str, message: str) -> None:
    """With the link's name and the value."""
    text = "devices: [{name: a}, {name: b}]\nlinks: [{between: [a, b], bandwidth: 1 GB/s, points: " + points + "}]"
    with pytest.raises(InvalidInput, match=message):
        cluster_from_text(text)


def test_a_table_too_large_to_make_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One tensor between two devices are four times; a limit of three refuses points, not straight links."""
    monkeypatch.setattr(problem_module, "MOST_TABLE_TIMES", 3)
    graph = pw.OperatorGraph([pw.Operator("v"), pw.Operator("w")], [pw.Tensor("t", 0, (1,), 8)])
    straight = pw.Link(0.0, 1.0, link_class="same-host")
    pw.Problem(graph, pw.Cluster(PAIR, [straight]), [[1.0, 1.0], [1.0, 1.0]])
    with pytest.raises(InvalidInput, match="1 x 2 x 2 transfer times, more than the 3 that it may have; leave out"):
        pw.Problem(graph, pw.Cluster(PAIR, [bent(straight, [(1, 1)])]), [[1.0, 1.0], [1.0, 1.0]])
