"""Linear programs run whatever pool of threads HiGHS has in this thread already."""

from __future__ import annotations

from collections.abc import Iterator

import highspy
import pytest

from placewright.highs import new_highs


@pytest.fixture(params=[1, 2, 3])
def pool(request: pytest.FixtureRequest) -> Iterator[int]:
    """A pool of so many threads, as a user's own call of HiGHS leaves it."""
    highspy.Highs.resetGlobalScheduler(True)
    theirs = highspy.Highs()
    theirs.setOptionValue("output_flag", False)
    theirs.setOptionValue("threads", request.param)
    theirs.addVar(1.0, 2.0)
    assert theirs.run() == highspy.HighsStatus.kOk
    yield request.param
    highspy.Highs.resetGlobalScheduler(True)


def test_a_pool_that_is_there_already_does_not_matter(pool: int) -> None:
    """HiGHS refuses other numbers of threads than the pool has; ours asks for none."""
    ours = new_highs()
    ours.addVar(1.0, 2.0)
    ours.changeColCost(0, 3.0)
    assert ours.run() == highspy.HighsStatus.kOk
    assert ours.getInfo().objective_function_value == 3.0
    other = highspy.Highs()
    other.setOptionValue("output_flag", False)
    other.setOptionValue("threads", pool + 1)
    other.addVar(1.0, 2.0)
    assert other.run() == highspy.HighsStatus.kError  # what the test is about
