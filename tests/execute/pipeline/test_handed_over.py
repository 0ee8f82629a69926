"""Chains that torch's pipelining runs, and what our own executor runs in its place, over gloo."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from ..pipeline_script import CASES
from ..started_ranks import ranks


def test_over_gloo_outputs_and_gradients_equal_the_unsplit_networks() -> None:
    """Torch's GPipe and 1F1B on a chain, also one against the order of ranks; ours on copies and a way back."""
    first, _ = ranks(2, "tests.execute.pipeline_script")
    rows = [line.split() for line in first.splitlines() if line.startswith("case ")]
    assert [int(row[1]) for row in rows] == list(range(len(CASES)))
    assert all(float(row[2]) <= 1e-5 for row in rows)
    assert [row[3:] for row in rows] == [["6", "4"] if name == "copies" else ["6", "6"] for name, _, _ in CASES]
