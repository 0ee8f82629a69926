"""The clock of budgets stands still while kernels are compiled."""

from __future__ import annotations

import pytest

from placewright import clock
from placewright.algorithm import Budget


def test_what_passes_while_the_clock_stands_still_is_no_part_of_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1 + 2 + 4 + 8 + 16 seconds those between the first stop and the last go are left out: 1 + 16 remain."""
    wall = [100.0]
    monkeypatch.setattr(clock.time, "monotonic", lambda: wall[0])
    budget = Budget(60.0)
    wall[0] += 1.0
    with clock.standing_still():
        wall[0] += 2.0
        with clock.standing_still():
            wall[0] += 4.0
        wall[0] += 8.0
        assert budget.elapsed_s == pytest.approx(1.0)
    wall[0] += 16.0
    assert budget.elapsed_s == pytest.approx(17.0)
    assert budget.left_s == pytest.approx(43.0)
