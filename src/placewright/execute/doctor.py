"""What this installation and this machine can do, checked one by one."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from placewright.host import available_cores, cpu_name, memory_bytes
from placewright.units import format_bytes

__all__ = ["Check", "doctor"]

CORE = ("numpy", "numba", "rustworkx", "ortools", "highspy", "msgspec", "rich", "typer")
EXTRAS = {
    "onnx": ("onnx", "reading ONNX models"),
    "onnxruntime": ("onnx", "profiling and running ONNX models"),
    "torch": ("torch", "capturing and running PyTorch models"),
    "transformers": ("hf", "capturing networks from transformers configurations, and generating"),
    "starlette": ("serve", "serving a plan over HTTP"),
    "uvicorn": ("serve", "serving a plan over HTTP"),
    "prometheus_client": ("serve", "serving a plan over HTTP"),
}


class Check(NamedTuple):
    """One finding: what was looked at, whether all that needs it works, and what was found or is to be done."""

    name: str
    ok: bool
    detail: str


def doctor() -> list[Check]:
    """Check the packages, this machine, and what the workers need.

    Returns
    -------
    list of Check
        A check that is not ``ok`` says what does not work without it, and what to do.
    """
    return [
        Check("placewright", True, _version("placewright") or "not installed as a package"),
        Check("python", True, f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        *(_core(name) for name in CORE),
        *(_extra(name, *need) for name, need in EXTRAS.items()),
        Check("cores", True, f"{len(available_cores())} of {os.cpu_count()} ({cpu_name()})"),
        Check("memory", True, format_bytes(memory_bytes())),
        _tried("pinning", _pinning),
        _tried("shared memory", _shared_memory),
        _tried("temporary files", _temporary),
        _tried("cache of measured times", _cache),
    ]


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _importable(name: str) -> str | None:
    """Why a package can't be imported; ``None`` when it can."""
    try:
        importlib.import_module(name)
    except Exception as error:  # a broken package may raise anything
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    return None


def _core(name: str) -> Check:
    reason = _importable(name)
    if reason is None:
        return Check(name, True, _version(name) or "version unknown")
    return Check(name, False, f"can't be imported ({reason}); reinstall it with: pip install --force-reinstall {name}")


def _extra(name: str, extra: str, purpose: str) -> Check:
    version = _version(name)
    if version is None:
        return Check(name, False, f"absent; {purpose} needs it: pip install 'placewright[{extra}]'")
    reason = _importable(name)
    if reason is None:
        return Check(name, True, version)
    return Check(name, False, f"{version} can't be imported ({reason}); reinstall: pip install 'placewright[{extra}]'")


def _tried(name: str, check: Callable[[], tuple[bool, str]]) -> Check:
    try:
        return Check(name, *check())
    except OSError as error:
        return Check(name, False, error.strerror or str(error))


def _pinning() -> tuple[bool, str]:
    if hasattr(os, "sched_setaffinity"):
        return True, "workers can be pinned to cores"
    return False, "this operating system can't pin processes; workers share all cores, and their times vary more"


def _shared_memory() -> tuple[bool, str]:
    from placewright.execute.onnx.shared import Shared

    shared = Shared.create(2**20)
    try:
        shared.bytes[-1] = 1
    finally:
        shared.close()
    folder = Path("/dev/shm")
    free = f"; {format_bytes(shutil.disk_usage(folder).free)} free in {folder}" if folder.is_dir() else ""
    return True, f"anonymous, limited by memory alone{free}"


def _temporary() -> tuple[bool, str]:
    with tempfile.TemporaryFile() as file:
        file.write(b"x")
        file.flush()
    folder = Path(tempfile.gettempdir())
    return True, f"{folder} is writable, {format_bytes(shutil.disk_usage(folder).free)} free"


def _cache() -> tuple[bool, str]:
    from placewright.costs.cache import default_folder

    folder = default_folder()
    there = next(p for p in (folder, *folder.parents) if p.exists())
    if there.is_dir() and os.access(there, os.W_OK):
        return True, f"{folder} is writable"
    return False, f"{folder} can't be written, so times are measured anew each time; set PLACEWRIGHT_CACHE to a folder"
