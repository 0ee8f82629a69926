"""What this machine offers to worker processes, and how one of them is confined to a part of it."""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from placewright.cluster import Device
from placewright.errors import ExecutionError

__all__ = ["available_cores", "can_limit_share", "confine", "cpu_name", "memory_bytes", "share_limit"]

SHARE_PERIOD_US = 5_000
"""Period of a CPU share: short, so that a limited worker looks slow rather than halting. The kernel's least is 1 ms."""

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def available_cores() -> tuple[int, ...]:
    """CPU cores that this process may run on, ascending."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def memory_bytes() -> int:
    """Bytes of memory that this process may use: the machine's, or its control group's limit when that is lower."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for controller, file in (("memory", "memory.limit_in_bytes"), ("", "memory.max")):
        folder = _own_group(controller)
        # A limit on any group above ours binds too, so every level up to the mount counts.
        for level in _up_to_mount(folder, controller):
            with contextlib.suppress(OSError, ValueError):
                total = min(total, int((level / file).read_text()))
    return total


def cpu_name() -> str:
    """Model of the processor in its maker's words, or the architecture where the machine doesn't tell."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Model", "cpu model") and value.strip():
                return value.strip()
    return platform.processor() or platform.machine()


def confine(device: Device) -> None:
    """Pin the calling process, and the threads that it starts later, to ``device.cores``; set its thread count.

    Call it before numpy or a runtime is loaded: they read the thread variables once.

    Parameters
    ----------
    device : Device
        No pinning without ``cores``, or where the operating system can't pin.

    Raises
    ------
    ExecutionError
        If one of the cores is not available to this process.
    """
    threads = device.threads or len(device.cores)
    if threads:
        os.environ.update(dict.fromkeys(_THREAD_VARIABLES, str(threads)))
    if not device.cores or not hasattr(os, "sched_setaffinity"):
        return
    absent = sorted(set(device.cores) - set(available_cores()))
    if absent:
        raise ExecutionError(
            f"device {device.name!r} is on core {absent[0]}, but this process may use only the cores "
            f"{', '.join(map(str, available_cores()))}; correct its 'cores' or describe this machine with 'probe'"
        )
    os.sched_setaffinity(0, device.cores)


def can_limit_share() -> str | None:
    """Say why a worker's CPU share can't be capped here; ``None`` where it can.

    It is tried, not guessed: a control group with a quota is made and removed.
    """
    parent, version, reason = _quota_parent()
    if parent is None:
        return reason
    try:
        with _group(parent, version, quota_us=SHARE_PERIOD_US):
            return None
    except OSError as error:
        return f"a control group under {parent} can't be made or given a CPU quota: {error.strerror}"


def share_limit(pid: int, share: float) -> AbstractContextManager[None] | None:
    """Cap the CPU time of a process at a share of its cores' time, until the context ends.

    Parameters
    ----------
    pid : int
        The process; all of its threads are capped together.
    share : float
        Above 0 and up to 1, of the time of all cores that the process is pinned to.

    Returns
    -------
    context manager, or None
        ``None`` where :func:`can_limit_share` gives a reason. The control group is removed when the context ends;
        the process returns to its former group.
    """
    if can_limit_share() is not None:
        return None
    return _capped(pid, share)


@contextlib.contextmanager
def _capped(pid: int, share: float) -> Iterator[None]:
    parent, version, reason = _quota_parent()
    if parent is None:
        raise ExecutionError(f"the CPU share of process {pid} can't be limited: {reason}")
    cores = len(os.sched_getaffinity(pid))
    # The kernel refuses a quota below 1 ms, so a small share gets a longer period instead of a larger share.
    period_us = max(SHARE_PERIOD_US, round(1_000 / (share * cores)) + 1)
    with _group(parent, version, round(period_us * share * cores), period_us) as group:
        (group / "cgroup.procs").write_text(str(pid))
        yield


@contextlib.contextmanager
def _group(parent: Path, version: int, quota_us: int, period_us: int = SHARE_PERIOD_US) -> Iterator[Path]:
    group = parent / f"placewright-{os.getpid()}-{secrets.token_hex(4)}"
    group.mkdir()
    try:
        if version == 1:
            (group / "cpu.cfs_period_us").write_text(str(period_us))
            (group / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (group / "cpu.max").write_text(f"{quota_us} {period_us}")
        yield group
    finally:
        _remove(group, parent)


def _remove(group: Path, parent: Path) -> None:
    """Move what is left in the group to its parent, and remove it; a process that is just dying needs a moment."""
    for _ in range(100):
        with contextlib.suppress(OSError):
            for pid in (group / "cgroup.procs").read_text().split():
                with contextlib.suppress(OSError):
                    (parent / "cgroup.procs").write_text(pid)
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.01)
        else:
            return


def _quota_parent() -> tuple[Path | None, int, str]:
    """Folder under which a group with a CPU quota can be made, the version of the interface, or why there is none."""
    first = _own_group("cpu")
    if first is not None:
        if os.access(first, os.W_OK):
            return first, 1, ""
        return None, 1, f"the control group {first} is not writable; it takes root, or a delegated group"
    second = _own_group("")
    if second is None:
        return None, 0, "no control groups are mounted; CPU shares can be limited on Linux only"
    with contextlib.suppress(OSError):
        if "cpu" in (second / "cgroup.subtree_control").read_text().split():
            if os.access(second, os.W_OK):
                return second, 2, ""
            return None, 2, f"the control group {second} is not writable; it takes root, or a delegated group"
    return None, 2, f"the control group {second} does not hand the cpu controller to its children"


def _own_group(controller: str) -> Path | None:
    """Folder of this process's control group: of a version 1 controller, or of version 2 for ``""``."""
    mount = _mount(controller)
    if mount is None:
        return None
    point, root = mount
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            inside = path if root == "/" else path.removeprefix(root)
            folder = point / inside.lstrip("/")
            return folder if folder.is_dir() else point
    return None


def _mount(controller: str) -> tuple[Path, str] | None:
    """Mount point of a controller's hierarchy, and which of its groups is mounted there."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        left, _, right = line.partition(" - ")
        fields, (kind, _, options) = left.split(), right.split(" ", 2)
        if (kind == "cgroup" and controller and controller in options.split(",")) or (
            kind == "cgroup2" and not controller
        ):
            return Path(fields[4]), fields[3]
    return None


def _up_to_mount(folder: Path | None, controller: str) -> Iterator[Path]:
    mount = _mount(controller)
    if folder is None or mount is None:
        return
    while True:
        yield folder
        if folder == mount[0] or folder == folder.parent:
            return
        folder = folder.parent
