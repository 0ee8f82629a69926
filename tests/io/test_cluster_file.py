"""Cluster files: what they mean, what is wrong with them, and that writing and reading agree."""

import json
import math

import msgspec
import pytest
from hypothesis import example, given, settings

from placewright.catalogue import lookup
from placewright.cluster import Cluster, Device, Link
from placewright.errors import InvalidInput
from placewright.io import cluster_from_text, cluster_to_text, read_cluster, write_cluster
from placewright.io.cluster_file import ClusterEntry
from placewright.io.reading import decode_yaml
from tests.io.random_problems import clusters

EXAMPLE = """
devices:
  - {name: "gpu[0-1]", model: rtx-3090, host: box, reserve: 1 GiB}
  - {name: gpu2, model: rtx-3060-12gb, host: box}
  - {name: cpu, kind: cpu, host: box, memory: 64 GiB, flops: {fp32: 1.2 TFLOP/s}, memory_bandwidth: 60 GB/s}
links:
  - {class: same-host, bandwidth: 12 GB/s, latency: 10 us, channel: pcie}
  - {between: [gpu0, gpu1], bandwidth: 50 GB/s, latency: 5 us}
  - {class: between-hosts, bandwidth: 1 GB/s, latency: 50 us, channel: nic}
"""


def refused(text):
    with pytest.raises(InvalidInput) as caught:
        cluster_from_text(text, "file")
    assert "\n" not in str(caught.value)
    return caught.value.violations


def devices(entries, links=""):
    return f"devices:\n{entries}\n" + (f"links:\n{links}\n" if links else "")


def test_the_example_of_the_design():
    """Ranges expand, models come from the catalogue, a pair overrides its class, units are SI inside."""
    cluster = cluster_from_text(EXAMPLE)
    assert [d.name for d in cluster.devices] == ["gpu0", "gpu1", "gpu2", "cpu"]
    card = lookup("rtx-3090")
    assert cluster.devices[1] == card.device("gpu1", "box", reserve_bytes=2**30)
    cpu = Device(
        "cpu", "cpu", host="box", memory_bytes=2**36, flops_per_s={"fp32": 1.2e12}, memory_bandwidth_bytes_per_s=6e10
    )
    assert cluster.devices[3] == cpu
    assert cluster.transfer_s(10**9, 0, 1) == pytest.approx(5e-6 + 1 / 50, rel=1e-12)
    assert cluster.transfer_s(10**9, 0, 3) == pytest.approx(1e-5 + 1 / 12, rel=1e-12)
    assert cluster.channels == ("pcie@box", "nic@box")


def test_explicit_values_win_over_the_catalogue():
    """flops by dtype, everything else as a whole; null memory means no known limit."""
    text = "- {name: g, model: RTX 3090, kind: npu, memory: null, flops: {fp32: 1 TFLOP/s}, launch_overhead: 1 ms}"
    (device,) = cluster_from_text(devices(text)).devices
    card = lookup("rtx-3090")
    assert (device.kind, device.memory_bytes, device.launch_overhead_s) == ("npu", None, 1e-3)
    assert device.flops_per_s == {**card.flops_per_s, "fp32": 1e12}
    assert device.memory_bandwidth_bytes_per_s == card.memory_bandwidth_bytes_per_s


def test_a_thousand_devices_in_one_line():
    """125 hosts of 8: hosts follow the names, and a rule by pairs covers each host's own pairs only."""
    cluster = cluster_from_text(
        devices(
            '  - {name: "node[000-124]-gpu[0-7]", host: "node{0}", memory: 24 GiB, cores: 0-3, threads: 2}',
            "  - {class: between-hosts, bandwidth: 10 Gb/s}\n"
            '  - {between: ["node[000-124]-gpu[0-7]", "node{0}-gpu*"], bandwidth: 300 GB/s}',
        )
    )
    assert len(cluster) == 1000
    assert cluster.devices[-1] == Device(
        "node124-gpu7", host="node124", memory_bytes=24 * 2**30, cores=(0, 1, 2, 3), threads=2
    )
    assert len(cluster.links) == 1 + 125 * 28
    assert cluster.transfer_s(300 * 10**9, 0, 7) == cluster.transfer_s(300 * 10**9, 7, 0) == pytest.approx(1.0)
    assert cluster.transfer_s(10**10, 7, 8) == pytest.approx(8.0)


def test_between_takes_ranges_and_wildcards():
    """All pairs of two ends, without a device's pair with itself, each pair once; one-way pairs in both roles."""
    three = '  - {name: "g[0-2]"}\n  - {name: cpu}'

    def pairs(rule):
        return [link.between for link in cluster_from_text(devices(three, f"  - {{bandwidth: 1, {rule}}}")).links]

    assert pairs('between: ["g[0-2]", "g*"]') == [("g0", "g1"), ("g0", "g2"), ("g1", "g2")]
    assert pairs('between: ["g[0-1]", "g[0-1]"], one_way: true') == [("g0", "g1"), ("g1", "g0")]
    assert pairs('between: [cpu, "g?"]') == [("cpu", "g0"), ("cpu", "g1"), ("cpu", "g2")]


def test_a_name_with_brackets_can_be_meant_literally():
    """[[ is a plain bracket in a name; between knows the exact name of a device."""
    cluster = cluster_from_text(
        devices('  - {name: "g[[0]"}\n  - {name: g0}', '  - {between: ["g[0]", g0], bandwidth: 1}')
    )
    assert [d.name for d in cluster.devices] == ["g[0]", "g0"]
    assert cluster.links[0].between == ("g[0]", "g0")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "top level: expected `object`, got `null`"),
        ("devices: 3", "devices: expected `array`, got `int`"),
        ("devices: []", "it has no devices"),
        ("devices: []\nlnks: []", "top level: unknown key 'lnks'; did you mean 'links'?"),
        ("schema: placewright/cluster/2\ndevices: []", "schema: invalid enum value 'placewright/cluster/2'"),
        (devices("- 3"), "device 1: expected `object`, got `int`"),
        (devices("- {name: a, memroy: 1}"), "device 'a': unknown key 'memroy'; did you mean 'memory'?"),
        (devices("- {name: a, memory: 1 XB}"), "device 'a': memory '1 XB' has the unknown unit 'XB'"),
        (devices("- {name: a, memory: .nan}"), "device 'a': memory nan is not a number of at least 0"),
        (devices("- {name: a, memory: .inf}"), "device 'a': memory inf is infinite"),
        (devices("- {name: a, memory: -1}"), "device 'a': memory -1 is not a number of at least 0"),
        (devices("- {name: a, memory: true}"), "device 'a': memory: expected"),
        (devices("- {name: a, memory: 1 GiB, reserve: 2 GiB}"), "device 'a': reserve 2147483648 B is not between"),
        (devices("- {name: a, memory: 1e400}"), "device 'a': memory '1e400' is infinite"),
        (devices("- {name: a, flops: 3}"), "device 'a': flops: expected `object`, got `int`"),
        (devices("- {name: a, flops: {fp32: fast}}"), "device 'a': flops fp32 'fast' is not a number with a unit"),
        (devices("- {name: a, cpu_share: 2}"), "device 'a': cpu_share 2"),
        (devices("- {name: a, threads: -1}"), "device 'a': threads: expected `int` >= 0"),
        (devices("- {name: a, cores: [0, 0]}"), "device 'a': cores [0, 0] are not distinct"),
        (devices("- {name: a, model: rtx-3900}"), "device 'a': model 'rtx-3900' is not in the hardware catalogue"),
        (devices("- {name: a, host: 'h{0}'}"), "device 'a': 'h{0}' refers to range 0"),
        (devices("- {name: a}\n- {name: a}"), "device 'a' stands twice"),
        (devices("- {name: 'g[0-1]'}\n- {name: g1}"), "device 'g1' stands twice"),
        (
            devices("- {name: 'g[0-4000]'}\n- {name: 'h[0-99]'}"),
            "device 'h[0-99]': 'h[0-99]' stands for more than 95 names",
        ),
        (devices("- {name: 'g[0-4095]'}\n- {name: h}"), "there are more than 4096 devices"),
        (devices("- {name: a}", "- {bandwidth: 1}"), "link 1: has neither or both of 'class' and 'between'"),
        (devices("- {name: a}", "- {class: near, bandwidth: 1}"), "link 'near': class: invalid enum value 'near'"),
        (
            devices("- {name: a}", "- {class: same-host}"),
            "link 'same-host': object missing required field `bandwidth`",
        ),
        (devices("- {name: a}", "- {class: same-host, bandwidth: 0}"), "bandwidth 0.0 B/s is not above 0"),
        (
            devices("- {name: a}", "- {class: same-host, bandwidth: 1, latency: .inf}"),
            "latency inf s is not a finite number",
        ),
        (
            devices("- {name: a10}", "- {between: [a10, a11], bandwidth: 1}"),
            "link 'a10-a11': there is no device 'a11'; did you mean 'a10'?",
        ),
        (devices("- {name: a}", "- {between: [a, a], bandwidth: 1}"), "a device needs no link to itself"),
        (devices("- {name: a}", "- {between: ['a*', 'b*'], bandwidth: 1}"), "stands for no pair of two devices"),
        (devices("- {name: a}", "- {between: [a], bandwidth: 1}"), "between: expected `array` of length 2"),
        (devices("- {name: 'a[0-999]'}", "- {between: ['*', '*'], bandwidth: 1}"), "stands for too many pairs"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(text, message):
    """Thing, value and remedy of every kind of fault."""
    assert any(message in line for line in refused(text)), refused(text)


def test_all_faults_of_a_file_are_reported():
    """Three devices and a link are wrong: four lines."""
    text = devices("- {name: a, memory: x}\n- {name: b}\n- {nme: c}\n- {name: d, model: none}", "- {class: x}")
    assert len(refused(text)) == 4


def test_files_are_read_by_their_suffix_and_named_in_messages(tmp_path):
    """JSON and YAML hold the same cluster; a fault names the file."""
    content = decode_yaml(EXAMPLE.encode(), "example")
    (tmp_path / "c.json").write_text(json.dumps(content))
    (tmp_path / "c.yaml").write_text(EXAMPLE)
    assert read_cluster(tmp_path / "c.json") == read_cluster(tmp_path / "c.yaml") == cluster_from_text(EXAMPLE)
    (tmp_path / "bad.json").write_text('{"devices": [NaN]}')
    with pytest.raises(InvalidInput, match=r"cluster file '.*bad.json': is not valid JSON"):
        read_cluster(tmp_path / "bad.json")
    (tmp_path / "twice.json").write_text('{"devices": [{"name": "a"}, {"name": "a"}]}')
    with pytest.raises(InvalidInput, match=r"cluster file '.*twice.json': device 'a' stands twice"):
        read_cluster(tmp_path / "twice.json")


def test_units_are_written_only_where_they_are_exact():
    """16 GiB is; 16 GiB + 1 B and a third of a second are not, and stay plain numbers."""
    text = cluster_to_text(
        Cluster(
            [Device("a", memory_bytes=2**34), Device("b", memory_bytes=2**34 + 1, cut_overhead_s=1 / 3)],
            [Link(0.0, math.inf, link_class="same-host")],
        )
    )
    assert text.splitlines() == [
        "devices:",
        "  - {name: a, memory: 16 GiB}",
        "  - {name: b, memory: 17179869185, cut_overhead: 0.3333333333333333}",
        "links:",
        "  - {class: same-host, bandwidth: inf}",
    ]


def test_a_device_of_the_catalogue_is_written_as_its_model():
    """With what differs from it; a model that is not there, or has figures that the device lacks, is left out."""
    card = lookup("rtx-3090").device("g", reserve_bytes=2**30)
    assert cluster_to_text(Cluster([card])) == "devices:\n  - {name: g, model: rtx-3090, reserve: 1 GiB}\n"
    assert "model" not in cluster_to_text(Cluster([Device("g", model="abacus")]))
    lacking = Device("g", model="rtx-3090", memory_bytes=5)
    assert cluster_to_text(Cluster([lacking])) == "devices:\n  - {name: g, memory: 5}\n"


@settings(max_examples=100, deadline=None)
@example(Cluster([Device("a\u2028b")], name="\x85"))
@given(clusters())
def test_what_is_written_is_read_back_equal(cluster):
    """Any names, hosts, figures and rules; and the text obeys the schema as it is."""
    text = cluster_to_text(cluster)
    assert cluster_from_text(text) == cluster
    msgspec.convert(decode_yaml(text.encode(), "written"), ClusterEntry)


def test_write_cluster_writes_that_text(tmp_path):
    """The file holds the text, and reads back."""
    cluster = cluster_from_text(EXAMPLE)
    write_cluster(tmp_path / "c.yaml", cluster)
    assert (tmp_path / "c.yaml").read_text() == cluster_to_text(cluster)
    assert read_cluster(tmp_path / "c.yaml") == cluster
