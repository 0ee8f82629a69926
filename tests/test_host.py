"""What the machine offers, and confining a process to a part of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from placewright.cluster import Device
from placewright.errors import ExecutionError
from placewright.host import available_cores, can_limit_share, confine, cpu_name, memory_bytes, share_limit


def test_cores_and_memory_are_this_machines() -> None:
    """Cores are those of the affinity mask, and memory is at most what the machine has."""
    assert set(available_cores()) == os.sched_getaffinity(0)
    assert list(available_cores()) == sorted(available_cores())
    assert 2**20 < memory_bytes() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert cpu_name()


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


def groups() -> list[str]:
    """Control groups that were made here."""
    return [str(p) for root in (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")) for p in root.glob("placewright-*")]


@pytest.mark.skipif(can_limit_share() is not None, reason="this machine does not let a CPU share be capped")
def test_a_share_is_capped_and_given_back() -> None:
    """Half of one core is a quota of half the period on the process's group, which is gone afterwards."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        os.sched_setaffinity(process.pid, available_cores()[:1])
        limit = share_limit(process.pid, 0.5)
        assert limit is not None
        with limit:
            (group,) = groups()
            assert str(process.pid) in (Path(group) / "cgroup.procs").read_text().split()
            if (Path(group) / "cpu.max").exists():
                quota, period = map(int, (Path(group) / "cpu.max").read_text().split())
            else:
                quota, period = (int((Path(group) / f"cpu.cfs_{n}_us").read_text()) for n in ("quota", "period"))
            assert quota == period / 2
        assert groups() == []
        process.communicate(b"\n")
    assert process.returncode == 0


@pytest.mark.skipif(can_limit_share() is not None, reason="this machine does not let a CPU share be capped")
def test_a_cap_ends_though_its_process_is_gone() -> None:
    """The control group is removed after the process was killed, and after an error inside."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        limit = share_limit(process.pid, 0.01)
        assert limit is not None
        with pytest.raises(ZeroDivisionError), limit:
            process.kill()
            raise ZeroDivisionError
    assert groups() == []
