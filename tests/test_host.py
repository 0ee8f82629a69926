"""What the machine offers, and confining a process to a part of it."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from placewright.cluster import Device
from placewright.errors import ExecutionError
from placewright.host import available_cores, cache_bytes, confine, cpu_name, gpu_name, is_here, memory_bytes, rest


def test_cores_and_memory_are_this_machines() -> None:
    """Cores are those of the affinity mask, and memory is at most what the machine has."""
    assert set(available_cores()) == os.sched_getaffinity(0)
    assert list(available_cores()) == sorted(available_cores())
    assert 2**20 < memory_bytes() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert cpu_name()


def test_only_cpu_cores_of_this_process_are_here() -> None:
    """Not a core that is not there, not one of several, not a GPU, and not a CPU without cores."""
    core = available_cores()[0]
    assert is_here(Device("d", kind="cpu", cores=(core,)))
    for kind, cores in (("cpu", (4095,)), ("cpu", (core, 4095)), ("cpu", ()), ("gpu", (core,))):
        assert not is_here(Device("d", kind=kind, cores=cores))


def test_a_rest_is_as_long_as_the_share_asks() -> None:
    """10 ms of computing at a share of 1/2 end 20 ms after they began, at the earliest; at 1 nothing is waited for."""
    began_s = time.monotonic() - 0.01
    rest(began_s, 0.5)
    assert time.monotonic() - began_s >= 0.02
    rest(time.monotonic(), 1.0)


def test_a_confined_process_stays_on_its_cores() -> None:
    """Affinity and thread count of a process, and of what it starts later, are the device's."""
    core = available_cores()[-1]
    script = (
        "import os, subprocess, sys; from placewright.cluster import Device; from placewright.host import confine;"
        f"confine(Device('d', cores=({core},), threads=3));"
        "print(sorted(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'], flush=True);"
        "subprocess.run([sys.executable, '-c', 'import os; print(sorted(os.sched_getaffinity(0)))'])"
    )
    made = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert made.stdout.split("\n")[:2] == [f"[{core}] 3", f"[{core}]"]


def test_a_core_that_is_not_there_is_named() -> None:
    """The error names the device, the core and the cores that there are; nothing is pinned."""
    before = os.sched_getaffinity(0)
    with pytest.raises(ExecutionError, match="device 'd' is on core 4095, but this process may use only the cores"):
        confine(Device("d", cores=(4095,)))
    assert os.sched_getaffinity(0) == before


def test_a_gpu_is_here_when_the_driver_knows_it_by_number_and_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two cards by the driver's files; a third number, another model, another host and another name are not here."""
    for bus, model in (("0000:01:00.0", "NVIDIA GeForce RTX 3090"), ("0000:02:00.0", "NVIDIA A100-SXM4-80GB")):
        (tmp_path / bus).mkdir()
        (tmp_path / bus / "information").write_text(f"Model: \t {model}\nIRQ: 12\n")
    monkeypatch.setattr("placewright.host._GPUS", tmp_path)
    assert gpu_name(Device("gpu0")) == gpu_name(Device("gpu0", model="rtx-3090")) == "NVIDIA GeForce RTX 3090"
    assert is_here(Device("gpu1", model="a100-sxm-80gb"))
    for absent in (
        Device("gpu2"),
        Device("gpu0", model="h100-sxm-80gb"),
        Device("gpu0", host="there"),
        Device("fast"),
        Device("gpu0", kind="npu"),
    ):
        assert not gpu_name(absent) and not is_here(absent)


def test_the_last_cache_is_as_large_as_caches_are() -> None:
    """From the machine's files, or the usual size."""
    assert 2**18 <= cache_bytes() <= 2**31


def test_a_process_that_keeps_what_it_frees_gets_no_fresh_pages() -> None:
    """16 MiB, 4096 pages, are written ten times and freed each time; only the first time faults."""
    code = (
        "import ctypes, resource; from placewright.host import keep_freed_memory; keep_freed_memory()\n"
        "c = ctypes.CDLL(None); c.malloc.restype = ctypes.c_void_p\n"
        "def write():\n"
        "    p = c.malloc(1 << 24); ctypes.memset(p, 1, 1 << 24); c.free(ctypes.c_void_p(p))\n"
        "write(); before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "for _ in range(10): write()\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) * resource.getpagesize() < 1 << 24
