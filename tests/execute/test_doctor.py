"""What the installation can do."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from placewright.execute import doctor as module
from placewright.execute.doctor import doctor


def test_versions_are_those_installed() -> None:
    """Each package stands once, with the version of its metadata."""
    found = {check.name: check for check in doctor()}
    assert len(found) == len(doctor())
    for name in ("numpy", "ortools", "highspy"):
        assert found[name] == (name, True, importlib.metadata.version(name))
    assert found["cores"].ok and found["memory"].detail.endswith("GiB")
    assert found["shared memory"].ok


def test_what_is_absent_comes_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """An extra that is not installed is not ok, and its detail is the command that installs it."""
    monkeypatch.setattr(module, "EXTRAS", {"nowhere_to_be_found": ("onnx", "testing")})
    found = {check.name: check for check in doctor()}
    _, ok, detail = found["nowhere_to_be_found"]
    assert not ok
    assert detail == "absent; testing needs it: pip install 'placewright[onnx]'"


def test_a_broken_package_is_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that can't be imported is a finding with its reason."""
    monkeypatch.setattr(module, "CORE", ("nowhere_to_be_found",))
    found = {check.name: check for check in doctor()}
    assert not found["nowhere_to_be_found"].ok
    assert "ModuleNotFoundError" in found["nowhere_to_be_found"].detail


def test_a_cache_that_can_not_be_written_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder that is or can be made is ok; one below a file is not."""
    monkeypatch.setenv("PLACEWRIGHT_CACHE", str(tmp_path / "new" / "folder"))
    assert {c.name: c.ok for c in doctor()}["cache of measured times"]
    (tmp_path / "file").touch()
    monkeypatch.setenv("PLACEWRIGHT_CACHE", str(tmp_path / "file" / "folder"))
    assert not {c.name: c.ok for c in doctor()}["cache of measured times"]
