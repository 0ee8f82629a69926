"""Describing this machine as a cluster."""

from __future__ import annotations

import pytest

from placewright.cluster import Cluster, Device, Link
from placewright.costs import roofline
from placewright.errors import InvalidInput
from placewright.execute.probe import here as module
from placewright.execute.probe.gpus import Gpus
from placewright.execute.probe.here import busy_notes, layout_devices, probe, scaled
from placewright.graph import Operator, OperatorGraph
from placewright.host import available_cores, memory_bytes


@pytest.mark.parametrize(
    ("cores", "count", "sizes", "shares"),
    [
        (1, None, [1], [1.0]),
        (2, None, [1, 1], [1.0, 0.75]),
        (3, 3, [1, 1, 1], [1.0, 0.75, 0.562]),
        (4, None, [2, 1, 1], [1.0, 1.0, 0.75]),
        (6, 2, [4, 2], [1.0, 1.0]),
        (16, None, [10, 4, 2], [1.0, 1.0, 1.0]),
    ],
)
def test_devices_are_unlike_and_use_every_core_once(
    cores: int, count: int | None, sizes: list[int], shares: list[float]
) -> None:
    """Each has about half the cores of the one before it, or a smaller share of as many; names and memory add up."""
    given = tuple(range(10, 10 + cores))
    made = layout_devices(given, 1000 * cores, count)
    assert [len(d.cores) for d in made] == [d.threads for d in made] == sizes
    assert [d.cpu_share for d in made] == shares
    assert [c for d in made for c in d.cores] == list(given)
    assert [d.memory_bytes for d in made] == [1000 * s for s in sizes]
    assert len({d.name for d in made}) == len(made)
    assert {(d.kind, d.host) for d in made} == {("cpu", "local")}


@pytest.mark.parametrize("count", [0, 3, -1])
def test_more_devices_than_cores_are_refused(count: int) -> None:
    """The error names how many were asked for and how many cores there are."""
    with pytest.raises(InvalidInput, match=f"{count} devices were asked for, and this process has 2 cores"):
        layout_devices((0, 1), 1000, count)


def test_every_figure_of_this_machine_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short probe gives finite, positive figures for each device and each pair, within what hardware can be."""
    pytest.importorskip("onnxruntime")
    for name, value in (("RUNS", 4), ("WARMUP", 1), ("MATMUL_SIDE", 128), ("COPY_BYTES", 2**20)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module, "SIZES_BYTES", (64, 4096, 65536))
    monkeypatch.setattr(module.os, "getloadavg", lambda: (1000.0, 0.0, 0.0))
    monkeypatch.setattr(module.os, "cpu_count", lambda: 2)
    lines: list[str] = []
    monkeypatch.setattr(module, "probe_gpus", lambda *_, **__: Gpus())  # those of this machine are no matter here
    probed = probe(on_progress=lines.append)
    made = probed.cluster
    count = len(made)
    assert count == len(layout_devices(available_cores(), memory_bytes()))
    for d in made.devices:
        assert 1e7 < d.flops_per_s["fp32"] < 1e14
        assert 1e7 < d.memory_bandwidth_bytes_per_s < 1e13
        assert 0 < d.launch_overhead_s < 0.1
        assert 0 <= d.cut_overhead_s < 0.1
    assert len(made.links) == count * (count - 1) // 2
    assert all(0 <= link.latency_s < 0.1 and link.bandwidth_bytes_per_s > 1e6 for link in made.links)
    assert [name for name, _ in probed.fits] == ["-".join(link.between) for link in made.links]
    assert len(lines) == count + len(made.links)
    assert len(probed.notes) == 1 and "load average 1000.0 on 2 cores" in probed.notes[0]


@pytest.mark.parametrize(("load", "cores", "told"), [(0.0, 1, 0), (0.9, 2, 0), (1.0, 2, 1), (16.7, 2, 1), (7.9, 16, 0)])
def test_a_busy_machine_is_said_to_be(load: float, cores: int, told: int) -> None:
    """From half a waiting thread a core on, the probe says that its figures may be off."""
    assert len(busy_notes(load, cores)) == told


def test_a_shared_core_is_costed_by_its_share_once() -> None:
    """1 GFLOP at 10 GFLOP/s takes 0.1 s on the whole core, and 0.1 / 0.5 = 0.2 s on half of its time."""
    figures = {"flops_per_s": 10e9, "bandwidth": 1e12, "launch_s": 0.0, "cut_s": 1e-3}
    halves = [scaled(Device(name, kind="cpu", cpu_share=share), figures) for name, share in (("a", 1.0), ("b", 0.5))]
    graph = OperatorGraph([Operator("v", kind="aten.mm", flops=10**9, traffic_bytes=1)])
    whole, half = roofline(graph, Cluster(halves, [Link(0.0, 1e9, link_class="same-host")])).processing_s[0]
    assert half == pytest.approx(2 * whole)
    assert halves[1].cut_overhead_s == pytest.approx(2e-3)  # taken as it stands, so the share is in it
