"""Measuring the devices of torch, with CPUs in the place of GPUs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from placewright.execute.probe import gpus as module
from placewright.execute.probe.gpus import Gpus, probe_gpus, torch_device_figures


def shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RUNS", 4), ("WARMUP", 1), ("SIDE", {"cpu": 64}), ("COPY_BYTES", {"cpu": 2**16})):
        monkeypatch.setattr(module, name, value)


def test_figures_of_a_torch_device_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """All within what hardware can be; memory is left to the caller where torch does not tell it."""
    pytest.importorskip("torch")
    shortened(monkeypatch)
    figures = torch_device_figures("cpu")
    assert figures.keys() == {"flops_per_s", "memory_bandwidth_bytes_per_s", "launch_overhead_s"}
    assert 1e6 < figures["flops_per_s"]["fp32"] < 1e14
    assert 1e5 < figures["memory_bandwidth_bytes_per_s"] < 1e13 and 0 < figures["launch_overhead_s"] < 0.1


def test_every_pair_is_a_link_each_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs and the RAM of the host: six directions, measured one by one."""
    torch = pytest.importorskip("torch")
    shortened(monkeypatch)
    monkeypatch.setattr(module, "SIZES_BYTES", (64, 4096))
    found = SimpleNamespace(is_available=lambda: True, device_count=lambda: 2)
    monkeypatch.setattr(torch, "cuda", found)
    monkeypatch.setattr(module, "torch_device_figures", lambda place: {"memory_bytes": 8})
    monkeypatch.setattr(module, "_copies_s", lambda source, target, size: [size * 1e-9] * 4)
    lines: list[str] = []
    gpus = probe_gpus("cpu0", on_progress=lines.append)
    assert [d.name for d in gpus.devices] == ["gpu0", "gpu1"] and gpus.devices[0].memory_bytes == 8
    pairs = [("cpu0", "gpu0"), ("cpu0", "gpu1"), ("gpu0", "cpu0"), ("gpu0", "gpu1"), ("gpu1", "cpu0"), ("gpu1", "gpu0")]
    assert [link.between for link in gpus.links] == pairs and all(link.one_way for link in gpus.links)
    assert [name for name, _ in gpus.fits] == [f"{a}->{b}" for a, b in pairs]
    assert len(lines) == 2 + 6


def test_without_a_gpu_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch says."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch, "cuda", SimpleNamespace(is_available=lambda: False))
    assert probe_gpus("cpu0") == Gpus()


def test_a_copy_is_timed_as_often_as_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within one device of the CPU nothing is waited for; four runs are four times."""
    pytest.importorskip("torch")
    shortened(monkeypatch)
    times = module._copies_s("cpu", "cpu", 4096)
    assert len(times) == 4 and all(0 < t < 1 for t in times)
