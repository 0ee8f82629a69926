"""Lanes for intervals that overlap."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from placewright.report.lanes import lanes_of

intervals = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)).map(lambda t: (t[0], t[0] + t[1])), max_size=30)


@given(intervals)
def test_no_lane_holds_two_intervals_that_overlap_and_no_lane_is_too_many(given_intervals):
    """The number of lanes equals the largest number of intervals that are open at once, counted instant by instant."""
    lanes = lanes_of(given_intervals)
    for k, (s, f) in enumerate(given_intervals):
        for j, (t, g) in enumerate(given_intervals[:k]):
            assert lanes[k] != lanes[j] or f <= t or g <= s
    depth = max((sum(s <= t < f for s, f in given_intervals) for t in range(30)), default=0)
    assert max(lanes, default=-1) + 1 == depth


def test_an_interval_without_length_takes_a_lane_and_frees_it():
    """Operators of zero time neither crash nor push their followers into another lane."""
    assert lanes_of([(1.0, 1.0), (1.0, 2.0), (0.0, 1.0)]) == [0, 0, 0]
