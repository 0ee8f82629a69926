"""Control groups that hold a host's processes to a share of one core: of version 1 and of version 2."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from benchmarks.testbed.description import Host

__all__ = ["Group", "mounted"]

ROOT = Path("/sys/fs/cgroup")

LEAST_QUOTA_US = 1000
"""What the kernel takes at least; the shortest period is what it then is a share of."""

MOST_WEIGHT = {1: ("cpu.shares", "262144"), 2: ("cpu.weight", "10000")}
"""A host goes before whatever else the machine does, within its share."""

PRIORITY = 1
"""Of processes in real time."""

ENDING_S = 5.0


def mounted(root: Path = ROOT) -> int:
    """Version of the control groups here that know of ``cpu`` and ``cpuset``; 0: there are none."""
    if (root / "cpu").is_dir() and (root / "cpuset").is_dir():
        return 1
    with contextlib.suppress(OSError):
        if {"cpu", "cpuset"} <= set((root / "cgroup.controllers").read_text().split()):
            return 2
    return 0


class Group:
    """The group of one host.

    With version 1, and a kernel that keeps quotas of real-time groups, processes run in real time within their quota:
    what else the machine does takes nothing of it. Otherwise a quota of ordinary time holds them, which is exact on a
    quiet machine alone: who was held back does not get the core at once from an ordinary process that has it.

    Parameters
    ----------
    name : str
    host : Host
    root : Path
        Where control groups are mounted.
    """

    def __init__(self, name: str, host: Host, root: Path = ROOT) -> None:
        self.host, self.version = host, mounted(root)
        kinds = ("cpu", "cpuset") if self.version == 1 else ("",)
        self.folders = [root / kind / name for kind in kinds]
        self._above = [folder.parent for folder in self.folders]
        self.in_real_time = self.version == 1 and host.share < 1 and (root / "cpu" / "cpu.rt_runtime_us").exists()

    def make(self) -> None:
        """Create it with its limits."""
        if self.version == 2:
            (self._above[0] / "cgroup.subtree_control").write_text("+cpu +cpuset")
        for folder in self.folders:
            folder.mkdir()
        try:
            self._write(self.limits())
        except OSError:
            if not self.in_real_time:
                raise
            self.in_real_time = False  # all real-time quotas together are more than the kernel allows
            self._write(self.limits())

    def limits(self) -> list[tuple[str, str]]:
        """Files of the group and what they hold, in the order in which they must be written."""
        share = self.host.share
        period_us = round(LEAST_QUOTA_US / share)
        limits = [MOST_WEIGHT[self.version], ("cpuset.cpus", str(self.host.core))]
        if self.version == 1:
            limits.append(("cpuset.mems", "0"))
        if share == 1:
            return limits
        if self.version == 2:
            return [*limits, ("cpu.max", f"{LEAST_QUOTA_US} {period_us}")]
        kind = "rt" if self.in_real_time else "cfs"
        quota = "cpu.rt_runtime_us" if self.in_real_time else "cpu.cfs_quota_us"
        return [*limits, (f"cpu.{kind}_period_us", str(period_us)), (quota, str(LEAST_QUOTA_US))]

    def join(self, process: int) -> None:
        """Put a process with all of its threads into it."""
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(process))
        if self.in_real_time:
            _schedule(process, os.SCHED_FIFO, PRIORITY)

    def leave(self, process: int) -> None:
        """Take a process out of it."""
        if self.in_real_time:
            _schedule(process, os.SCHED_OTHER, 0)
        for above in self._above:
            (above / "cgroup.procs").write_text(str(process))

    def entering(self) -> str:
        """Shell commands by which a shell enters it."""
        joins = [f"echo $$ > {folder}/cgroup.procs" for folder in self.folders]
        return " && ".join([*joins, *([f"chrt -f -p {PRIORITY} $$"] if self.in_real_time else [])])

    def _write(self, limits: list[tuple[str, str]]) -> None:
        for file, text in limits:
            folder = self.folders[-1] if file.startswith("cpuset.") else self.folders[0]
            (folder / file).write_text(text)

    def processes(self) -> list[int]:
        """List the processes that are in it."""
        try:
            return [int(line) for line in (self.folders[0] / "cgroup.procs").read_text().split()]
        except OSError:
            return []

    def remove(self) -> None:
        """Kill what is in it, and remove it."""
        until = time.monotonic() + ENDING_S
        while (left := self.processes()) and time.monotonic() < until:
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.02)
        for folder in self.folders:
            for _ in range(50):  # it is busy until the kernel has let the last process go
                with contextlib.suppress(FileNotFoundError):
                    try:
                        folder.rmdir()
                    except OSError as error:
                        if isinstance(error, FileNotFoundError):
                            raise
                        time.sleep(0.05)
                        continue
                break


def _schedule(process: int, policy: int, priority: int) -> None:
    """Give all threads of a process a way of being scheduled; those that they start later have it too."""
    for thread in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setscheduler(int(thread.name), policy, os.sched_param(priority))
