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

    def make(self) -> None:
        """Create it with its limits."""
        if self.version == 2:
            (self._above[0] / "cgroup.subtree_control").write_text("+cpu +cpuset")
        for folder in self.folders:
            folder.mkdir()
        for file, text in self.limits():
            next(f for f in (self.folders if file.startswith("cpu.") else self.folders[::-1])).joinpath(file).write_text(text)

    def limits(self) -> list[tuple[str, str]]:
        """Files of the group and what they hold, in the order in which they must be written."""
        share = self.host.share
        period_us = round(LEAST_QUOTA_US / share)
        limits = [MOST_WEIGHT[self.version], ("cpuset.cpus", str(self.host.core))]
        if self.version == 1:
            limits.append(("cpuset.mems", "0"))
        if share < 1:
            limits += (
                [("cpu.cfs_period_us", str(period_us)), ("cpu.cfs_quota_us", str(LEAST_QUOTA_US))]
                if self.version == 1
                else [("cpu.max", f"{LEAST_QUOTA_US} {period_us}")]
            )
        return limits

    def join(self, process: int) -> None:
        """Put a process with all of its threads into it."""
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(process))

    def leave(self, process: int) -> None:
        """Take a process out of it."""
        for above in self._above:
            (above / "cgroup.procs").write_text(str(process))

    def processes(self) -> list[int]:
        """Processes that are in it."""
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
