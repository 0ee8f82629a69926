"""Describing this machine as a cluster."""

from __future__ import annotations

import math

import numpy as np
import pytest

from placewright.errors import InvalidInput
from placewright.execute import probe as module
from placewright.execute.probe import fit_transfer, layout_devices, probe
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


def test_the_fit_recovers_a_link() -> None:
    """Times of 2 us + size / (5 GB/s), each off by at most 5 %, give both figures back within 10 %."""
    sizes = tuple(64 * 4**k for k in range(8))
    exact = 2e-6 + np.array(sizes) / 5e9
    noisy = exact * np.array([1.05, 0.95, 1.02, 0.97, 1.03, 0.96, 1.05, 0.98])
    assert fit_transfer(sizes, exact) == pytest.approx((2e-6, 5e9))
    assert fit_transfer(sizes, noisy) == pytest.approx((2e-6, 5e9), rel=0.1)


def test_the_fit_stays_physical() -> None:
    """Times that fall with the size give an infinite bandwidth; times below the line through 0 give no latency."""
    latency, bandwidth = fit_transfer((100, 200, 400), np.array([3e-6, 2e-6, 1e-6]))
    assert math.isinf(bandwidth) and 1e-6 < latency < 3e-6
    latency, bandwidth = fit_transfer((100, 200, 400), np.array([0.5e-6, 1.5e-6, 4e-6]))
    assert latency == 0 and 1e8 < bandwidth < 2e8


def test_every_figure_of_this_machine_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short probe gives finite, positive figures for each device and each pair, within what hardware can be."""
    pytest.importorskip("onnxruntime")
    for name, value in (("RUNS", 3), ("WARMUP", 1), ("MATMUL_SIDE", 128), ("COPY_BYTES", 2**20)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module, "SIZES_BYTES", (64, 4096, 65536))
    lines: list[str] = []
    made = probe(on_progress=lines.append)
    count = len(made)
    assert count == len(layout_devices(available_cores(), memory_bytes()))
    for d in made.devices:
        assert 1e7 < d.flops_per_s["fp32"] < 1e14
        assert 1e7 < d.memory_bandwidth_bytes_per_s < 1e13
        assert 0 < d.launch_overhead_s < 0.1
        assert 0 <= d.cut_overhead_s < 0.1
    assert len(made.links) == count * (count - 1) // 2
    assert all(0 <= link.latency_s < 0.1 and link.bandwidth_bytes_per_s > 1e6 for link in made.links)
    assert len(lines) == count + len(made.links)
