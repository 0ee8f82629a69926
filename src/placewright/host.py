"""What this machine offers to worker processes, and how one of them is confined to a part of it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from placewright.cluster import Device
from placewright.errors import ExecutionError

__all__ = [
    "available_cores",
    "cache_bytes",
    "confine",
    "cpu_name",
    "end_with_parent",
    "gpu_name",
    "gpu_number",
    "has_cores",
    "is_here",
    "keep_freed_memory",
    "memory_bytes",
    "rest",
    "running_kernel",
]

USUAL_CACHE_BYTES = 32 << 20
"""Of a last-level cache where the machine doesn't tell."""

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_PR_SET_PDEATHSIG = 1
_GPUS = Path("/proc/driver/nvidia/gpus")
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_THRESHOLD_BYTES = 32 << 20  # glibc takes no more
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def available_cores() -> tuple[int, ...]:
    """CPU cores that this process may run on, ascending."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def is_here(device: Device) -> bool:
    """Whether a device can be measured: it is CPU cores that this process may use, or a GPU of this machine."""
    return has_cores(device) or bool(gpu_name(device))


def has_cores(device: Device) -> bool:
    """Whether a device is CPU cores that this process may use."""
    return device.kind == "cpu" and bool(device.cores) and set(device.cores) <= set(available_cores())


def gpu_number(device: Device) -> int:
    """Which of torch's GPUs a device is: 1 for ``gpu1``, as ``placewright probe`` names it; -1 for none."""
    digits = device.name.removeprefix("gpu") if device.kind == "gpu" and device.name.startswith("gpu") else ""
    return int(digits) if digits.isascii() and digits.isdigit() else -1


def gpu_name(device: Device) -> str:
    """Name of the GPU of this machine that a device is; empty where it is none.

    It is a ``gpu`` on the host ``local`` with a number for which the driver knows a GPU. Where it states a model, the
    machine has a GPU in whose name the model's number stands (``3090`` of ``rtx-3090``).
    """
    known = _gpu_names()
    if device.host != "local" or not 0 <= gpu_number(device) < len(known):
        return ""
    number = next((part for part in device.model.lower().split("-") if any(c.isdigit() for c in part)), "")
    return known[gpu_number(device)] if any(number in name.lower() for name in known) else ""


def _gpu_names() -> tuple[str, ...]:
    """Names of the GPUs that NVIDIA's driver on Linux knows, in the order of their bus."""
    names = []
    for file in sorted(_GPUS.glob("*/information")):
        with contextlib.suppress(OSError):
            lines = [line.partition(":") for line in file.read_text(errors="replace").splitlines()]
            names += [value.strip() for key, _, value in lines if key.strip() == "Model"]
    return tuple(names)


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


def running_kernel() -> str:
    """Name of the kernel that runs here, which no other one has, nor this machine's after its next start.

    Processes to which it is the same share the clock of ``time.monotonic``. Where the system doesn't tell it is the
    host's name, which two machines may have in common.
    """
    with contextlib.suppress(OSError):
        return _BOOT.read_text(encoding="ascii").strip()
    return socket.gethostname()


def cpu_name() -> str:
    """Model of the processor in its maker's words, or the architecture where the machine doesn't tell."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Model", "cpu model") and value.strip():
                return value.strip()
    return platform.processor() or platform.machine()


def cache_bytes(core: int = 0) -> int:
    """Bytes of the largest cache of a core: the last level, which it may share with others."""
    sizes = [USUAL_CACHE_BYTES]
    for file in Path(f"/sys/devices/system/cpu/cpu{core}/cache").glob("index*/size"):
        with contextlib.suppress(OSError, ValueError):
            sizes.append(int(file.read_text().strip().removesuffix("K")) << 10)
    return max(sizes[1:], default=sizes[0])


def keep_freed_memory() -> None:
    """Have this process's allocator keep what is freed, up to blocks of 32 MiB, instead of handing it back.

    A result that is put into fresh pages waits for each of them to be cleared: about 0.2 ms for a MiB, more than what
    a small convolution takes to compute it. Whether pages are fresh depends on what was freed before, so the same
    operator would take another time in another network. Does nothing where the C library has no such switch.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _LARGEST_THRESHOLD_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def rest(began_s: float, pace: float) -> None:
    """Stay idle until computing has taken no more than its share of the time since it began, by ``time.monotonic``."""
    until = began_s + (time.monotonic() - began_s) / pace
    while (left := until - time.monotonic()) > 0:
        # A sleep ends late by some 0.1 ms: the rest of the rest is spent asking for the time.
        time.sleep(left - 2e-4 if left > 4e-4 else 0)


def end_with_parent() -> None:
    """Have the kernel kill this process when the one that started it ends; it works on one that is stopped, too."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


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
