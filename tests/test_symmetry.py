"""Symmetry: every exchange that is claimed keeps the problem as it is, and none of single devices is missed."""

from __future__ import annotations

from itertools import combinations, permutations
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import placewright as pw
from placewright.symmetry import _Search, symmetry_of


def keeps(problem: pw.Problem, image: tuple[int, ...], renaming: bool = True) -> bool:
    """Whether a permutation of the devices is an automorphism, by its definition; channels may change names."""
    cluster = problem.cluster
    renamed = {} if renaming else {c: c for c in range(-1, len(cluster.channels))}
    for i, x in enumerate(image):
        a, b = cluster.devices[i], cluster.devices[x]
        if a.capacity_bytes != b.capacity_bytes or (a.kind == "cpu") != (b.kind == "cpu"):
            return False
        if (problem.times.processing_s[:, i] != problem.times.processing_s[:, x]).any():
            return False
    for i, j in permutations(range(len(image)), 2):
        x, y = image[i], image[j]
        if cluster.transfer_s(0.0, i, j) != cluster.transfer_s(0.0, x, y):
            return False
        if np.isfinite(cluster.latency_s[i, j]) and cluster.transfer_s(1e9, i, j) != cluster.transfer_s(1e9, x, y):
            return False
        for a, b in zip(cluster.channels_of[i, j].tolist(), cluster.channels_of[x, y].tolist(), strict=True):
            if renamed.setdefault(a, b) != b:
                return False
    return len(set(renamed.values())) == len(renamed) and renamed.get(-1, -1) == -1


def orbits(problem: pw.Problem) -> list[set[int]]:
    """Orbits of the group of all automorphisms, by trying every permutation."""
    D = len(problem.cluster)
    kept = [image for image in permutations(range(D)) if keeps(problem, image)]
    return [{image[i] for image in kept} for i in range(D)]


def problem_of(devices: list[pw.Device], links: list[pw.Link], times: list[float]) -> pw.Problem:
    graph = pw.OperatorGraph([pw.Operator("v")])
    return pw.Problem(graph, pw.Cluster(devices, links), [times], "max-load")


@st.composite
def clusters(draw: st.DrawFn) -> pw.Problem:
    """One to six devices on up to three hosts, few different figures, rules of every sort."""
    D = draw(st.integers(1, 6))
    devices = [
        pw.Device(
            f"d{i}",
            kind=draw(st.sampled_from(["gpu", "gpu", "gpu", "cpu"])),
            host=draw(st.sampled_from("abc")),
            memory_bytes=draw(st.sampled_from([8, 8, 8, 9])),
        )
        for i in range(D)
    ]
    channel = st.sampled_from(["", "bus"])
    links = [
        pw.Link(0.0, draw(st.sampled_from([1e9, 4e9])), link_class="same-host", channel=draw(channel)),
        pw.Link(1.0, 1e9, link_class="between-hosts", channel=draw(channel)),
    ]
    for i, j in combinations(range(D), 2):
        if draw(st.integers(0, 4)) == 0:
            pair, one_way = (f"d{i}", f"d{j}"), draw(st.booleans())
            links.append(pw.Link(0.0, 4e9, between=pair, channel=draw(channel), one_way=one_way))
    times = [draw(st.sampled_from([1.0, 1.0, 2.0])) for _ in range(D)]
    return problem_of(devices, links, times)


@given(clusters())
@settings(max_examples=150, deadline=None)
def test_exchanges_are_automorphisms_and_none_of_two_devices_is_missed(problem: pw.Problem) -> None:
    """Each claimed exchange is one by definition; two devices are of one class just when exchanging them is one."""
    found, D = symmetry_of(problem), len(problem.cluster)
    for swap in found.exchanges():
        assert keeps(problem, tuple(swap.tolist()))
    for i, j in combinations(range(D), 2):
        image = list(range(D))
        image[i], image[j] = j, i
        alike = found.device_class[i] == found.device_class[j]
        assert keeps(problem, tuple(image), renaming=False) <= alike <= keeps(problem, tuple(image))
    real = orbits(problem)
    assert all(found.orbit[i] != found.orbit[j] or j in real[i] for i, j in combinations(range(D), 2))


@given(clusters())
@settings(max_examples=100, deadline=None)
def test_sums_of_links_keep_nothing_apart_that_is_alike(problem: pw.Problem) -> None:
    """Classes are the same where every pair of groups is tried, which the sums are there to save."""
    with patch.object(_Search, "_alike_outside", lambda _, group_of: np.ones((max(group_of) + 1,) * 2, dtype=bool)):
        tried = _Search(problem).found().levels
    for level, other in zip(_Search(problem).found().levels, tried, strict=True):
        assert (level.members, level.class_of.tolist()) == (other.members, other.class_of.tolist())


def test_sums_of_links_tell_groups_apart_that_face_a_third_one_unlike() -> None:
    """Hosts a, b, c of two devices: a and b are linked fast, so c is no like of either, and those two are alike."""
    devices = [pw.Device(f"{host}{k}", host=host) for host in "abc" for k in (0, 1)]
    links = [pw.Link(0.0, 9e9, link_class="same-host"), pw.Link(0.0, 1e9, link_class="between-hosts")]
    links += [pw.Link(0.0, 4e9, between=(f"a{k}", f"b{m}")) for k in (0, 1) for m in (0, 1)]
    search = _Search(problem_of(devices, links, [1.0] * 6))
    apart = ~search._alike_outside(np.array([0, 0, 1, 1, 2, 2], dtype=np.int32))
    assert apart.tolist() == [[False, False, True], [False, False, True], [True, True, False]]


@given(st.integers(1, 3), st.integers(1, 3), st.sampled_from(["", "nic"]), st.sampled_from(["", "pcie"]), st.booleans())
@settings(max_examples=40, deadline=None)
def test_all_orbits_of_servers_are_found(a: int, b: int, nic: str, pcie: str, paired: bool) -> None:
    """Hosts of two kinds, a pair of devices each joined by a bridge or not: orbits are those of all automorphisms."""
    devices = [pw.Device(f"a{h}{k}", host=f"a{h}") for h in range(a) for k in (0, 1)]
    devices += [pw.Device(f"b{h}", host=f"b{h}") for h in range(b)]
    links = [
        pw.Link(0.0, 4e9, link_class="same-host", channel=pcie),
        pw.Link(1.0, 1e9, link_class="between-hosts", channel=nic),
    ]
    if paired:
        links += [pw.Link(0.0, 9e9, between=(f"a{h}0", f"a{h}1")) for h in range(a)]
    problem = problem_of(devices[:7], links, ([1.0] * (2 * a) + [2.0] * b)[:7])
    found = symmetry_of(problem).orbit
    assert [{j for j in range(len(found)) if found[j] == x} for x in found] == orbits(problem)


def test_servers_of_one_device_are_of_one_class_among_larger_ones() -> None:
    """Three hosts with a device each and two with two, all behind their own ports: two classes of hosts."""
    devices = [pw.Device(name, host=name[0]) for name in ("a0", "b0", "c0", "d0", "d1", "e0", "e1")]
    links = [pw.Link(0.0, 4e9, link_class="same-host"), pw.Link(1.0, 1e9, link_class="between-hosts", channel="nic")]
    hosts = symmetry_of(problem_of(devices, links, [1.0] * 7)).levels[1]
    assert hosts.classes == ((0, 1, 2), (3, 4))


def test_devices_that_face_each_other_in_two_hosts_are_matched_as_they_are_linked() -> None:
    """Two hosts whose devices are bridged crosswise in one of them: a matching in order is none, another one is."""
    devices = [pw.Device(f"{h}{k}", host=h) for h in "ab" for k in range(4)]
    links = [
        pw.Link(0.0, 1e9, link_class="same-host"),
        pw.Link(1.0, 1e9, link_class="between-hosts"),
        *(pw.Link(0.0, 9e9, between=pair) for pair in (("a0", "a1"), ("a2", "a3"), ("b0", "b2"), ("b1", "b3"))),
    ]
    found = symmetry_of(problem_of(devices, links, [1.0] * 8))
    hosts = next(level for level in found.levels if len(level.members) == 2)
    assert hosts.class_of.tolist() == [0, 0]
    assert hosts.members == ((0, 1, 2, 3), (4, 6, 5, 7))
    bridges = next(level for level in found.levels if len(level.members) == 4)
    assert bridges.class_of.tolist() == [0, 0, 1, 1] and len(set(found.orbit.tolist())) == 1


@pytest.mark.parametrize("table", [False, True])
def test_a_table_of_transfer_times_is_seen(table: bool) -> None:
    """Devices that rules for links make alike are told apart by a table that favours one of them."""
    graph = pw.OperatorGraph([pw.Operator("v"), pw.Operator("w")], [pw.Tensor("t", 0, (1,), 8)])
    cluster = pw.Cluster([pw.Device(x) for x in "abc"], [pw.Link(0.0, 1e9, link_class="same-host")])
    given = np.ones((1, 3, 3))
    given[0, 0, 1] = 0.5
    times = pw.Times(np.ones((2, 3)), given if table else None)
    assert len(set(symmetry_of(pw.Problem(graph, cluster, times)).device_class.tolist())) == (3 if table else 1)
