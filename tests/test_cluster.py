"""Devices and links: rules that override each other, channels, transfer times by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from placewright.cluster import Cluster, Device, Link
from placewright.errors import InvalidInput

FOUR = [Device("a0", host="a"), Device("a1", host="a"), Device("b0", host="b"), Device("b1", host="b")]


def test_every_violation_is_reported() -> None:
    """Of devices and of links."""
    with pytest.raises(InvalidInput) as caught:
        Cluster(
            [
                Device("x", memory_bytes=10, reserve_bytes=11),
                Device("x", cpu_share=0.0, launch_overhead_s=math.nan),
                Device("z0", memory_bytes=2**50 + 1),
                Device("y", flops_per_s={"fp32": math.inf}, cut_overhead_s=-1e-6),
            ],
            [
                Link(0.0, 1.0),
                Link(0.0, 1.0, link_class="same-host", between=("x", "y")),
                Link(-1.0, 0.0, link_class="near"),
                Link(math.inf, math.nan, between=("x", "x")),
                Link(0.0, 1.0, between=("x", "z")),
            ],
        )
    complaints = [
        "device 'x': reserve 11 B is not between 0 and its memory of 10 B",
        "device 'x' stands twice",
        "device 'x': launch_overhead nan",
        "device 'x': cpu_share 0.0",
        "device 'z0': memory 1.126e+15 B is above 1 PiB; leave it out for no limit",
        "device 'y': cut_overhead -1e-06",
        "device 'y': flops[fp32] inf",
        "link -: give either a class or a pair",
        "link class 'same-host': give either a class or a pair",
        "link class 'near' is unknown; use one of same-host, between-hosts",
        "link class 'near': latency -1.0 s",
        "link class 'near': bandwidth 0.0 B/s is not above 0",
        "link x-x: a device needs no link to itself",
        "link x-x: latency inf s",
        "link x-x: bandwidth nan B/s",
        "link x-z: there is no device 'z'",
    ]
    for complaint in complaints:
        assert sum(complaint in v for v in caught.value.violations) == 1, complaint
    assert len(caught.value.violations) == len(complaints)


def test_a_cluster_needs_a_device() -> None:
    """An empty one is refused."""
    with pytest.raises(InvalidInput, match="it has no devices"):
        Cluster([])


def test_later_rules_override_and_pairs_override_classes() -> None:
    """A class stated twice: the later holds. A pair holds whether it stands before or after the class."""
    cluster = Cluster(
        FOUR,
        [
            Link(1.0, 1.0, between=("a0", "a1")),
            Link(2.0, 1.0, link_class="same-host"),
            Link(3.0, 1.0, link_class="same-host"),
            Link(4.0, 1.0, link_class="between-hosts"),
            Link(5.0, 1.0, between=("a0", "b0"), one_way=True),
        ],
    )
    assert cluster.latency_s.tolist() == [[0, 1, 5, 4], [1, 0, 4, 4], [4, 4, 0, 3], [4, 4, 3, 0]]


def test_a_pair_without_a_rule_is_unreachable() -> None:
    """Only a0 -> b0 across hosts, and only that way."""
    cluster = Cluster(FOUR, [Link(0.5, 4.0, between=("a0", "b0"), one_way=True)])
    assert cluster.transfer_s(2, 0, 2) == 0.5 + 2 / 4
    assert cluster.transfer_s(2, 2, 0) == math.inf and cluster.transfer_s(0, 0, 1) == math.inf
    assert cluster.transfer_s(99, 3, 3) == 0.0
    assert np.isfinite(cluster.latency_s).sum() == 4 + 1


def test_an_infinite_bandwidth_leaves_the_latency() -> None:
    """bytes / inf = 0."""
    cluster = Cluster(FOUR, [Link(0.25, math.inf, link_class="between-hosts")])
    assert cluster.transfer_s(10**12, 1, 3) == 0.25


def test_channels_are_one_a_host_one_at_either_end_or_one_by_name() -> None:
    """PCIe: one a host. NIC: the sender's and the receiver's. A bridge: exactly the one that is named."""
    cluster = Cluster(
        FOUR,
        [
            Link(0.0, 1.0, link_class="same-host", channel="pcie"),
            Link(0.0, 1.0, link_class="between-hosts", channel="nic"),
            Link(0.0, 1.0, between=("b0", "b1"), channel="bridge"),
        ],
    )
    assert cluster.channels == ("pcie@a", "pcie@b", "nic@a", "nic@b", "bridge")

    def of(source: int, target: int) -> list[str]:
        return [cluster.channels[k] for k in cluster.channels_of[source, target] if k >= 0]

    assert of(0, 1) == of(1, 0) == ["pcie@a"]
    assert of(0, 2) == ["nic@a", "nic@b"] and of(3, 1) == ["nic@b", "nic@a"]
    assert of(2, 3) == of(3, 2) == ["bridge"]  # the pair's rule replaces the class with its channel
    assert of(0, 0) == []


def test_capacity_is_memory_less_reserve() -> None:
    """Without a limit it is infinite."""
    cluster = Cluster([Device("a", memory_bytes=100, reserve_bytes=30), Device("b", reserve_bytes=5)])
    assert cluster.capacity_bytes.tolist() == [70.0, math.inf]
    assert cluster.index == {"a": 0, "b": 1} and len(cluster) == 2
