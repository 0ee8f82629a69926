"""What is known of kernels before they run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from placewright._kernel import warm


def test_a_kernel_on_disk_was_compiled_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the file that numba keeps it was not; where nothing is compiled there is nothing to wait for."""
    kernel = SimpleNamespace(__name__="anneal_calls", stats=SimpleNamespace(cache_path=str(tmp_path)))
    monkeypatch.setattr(warm, "anneal_calls", kernel)
    assert not warm.compiled_before("offload")
    (tmp_path / "calls.anneal_calls-12.py311.nbi").touch()
    assert warm.compiled_before("offload")
    monkeypatch.setattr(warm, "anneal_calls", SimpleNamespace(__name__="anneal_calls"))
    assert warm.compiled_before("offload")
