"""Lines through measured times of transfers."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.cluster import Cluster, Device, Link
from placewright.execute.probe.link_fit import NEAR, fit_link, fit_transfer

SIZES = tuple(64 * 4**k for k in range(11))


def test_a_straight_link_needs_one_line() -> None:
    """2 us + size / (5 GB/s), exactly: no points, no error, and the same figures as the straight fit."""
    fit = fit_link(SIZES, 2e-6 + np.array(SIZES) / 5e9)
    assert fit.points == ()
    assert (fit.latency_s, fit.bandwidth_bytes_per_s) == pytest.approx((2e-6, 5e9))
    assert np.abs(fit.error).max() < 1e-9 and np.abs(fit.straight_error).max() < 1e-9


def test_a_bent_link_is_found_where_one_line_fails() -> None:
    """Eager up to 16 KiB (1 us + 4 GB/s), then a handshake of 9 us more at 10 GB/s: concave, then convex."""
    sizes = np.array(SIZES)
    times = np.where(sizes <= 2**14, 1e-6 + sizes / 4e9, 10e-6 + sizes / 10e9)
    fit = fit_link(SIZES, times)
    assert np.abs(fit.error).max() <= NEAR < 0.2 < np.abs(fit.straight_error).max()
    assert fit.latency_s == pytest.approx(1e-6, rel=0.05)
    assert fit.bandwidth_bytes_per_s == pytest.approx(10e9, rel=0.05)
    assert 1 <= len(fit.points) <= 3


TIMES = st.lists(st.sampled_from([1.0, 1.02, 1.3, 2.0, 5.0]), min_size=3, max_size=6).map(np.cumprod)


@given(TIMES)
def test_no_fewer_corners_come_as_near(times: np.ndarray) -> None:
    """Against every choice of inner corners; and the link says what the lines say."""
    n = len(times)
    sizes = SIZES[:n]

    def worst(inner: tuple[int, ...]) -> float:
        at = [0, *inner, n - 1]
        line = np.interp(sizes, [sizes[k] for k in at], [times[k] for k in at])
        return float(np.abs(line / times - 1.0).max())

    need = next(k for k in range(n) if min(worst(c) for c in combinations(range(1, n - 1), k)) <= NEAR)
    fit = fit_link(sizes, times)
    # The corner at the smallest size is written where its line would cross 0 s before 0 bytes.
    assert len(fit.points) - (fit.latency_s == 0.0) == need
    assert np.abs(fit.error).max() <= NEAR + 1e-9
    cluster = Cluster([Device("a"), Device("b")], [fit.link(("a", "b"))])
    assert [cluster.transfer_s(size, 0, 1) for size in sizes] == pytest.approx(list((fit.error + 1) * times))


def test_times_that_fall_are_made_level() -> None:
    """4, 1, 4, 16 us: the first two become their geometric mean, 2 us; what is told of is the error on other times."""
    fit = fit_link(SIZES[:4], [4e-6, 1e-6, 4e-6, 16e-6], [2e-6, 2e-6, 4e-6, 8e-6])
    assert fit.link(("a", "b")).seconds([64, 256]).tolist() == pytest.approx([2e-6, 2e-6])
    assert fit.error.tolist() == pytest.approx([0, 0, 0, 1], abs=1e-9)


def test_the_straight_fit_recovers_a_link() -> None:
    """Times of 2 us + size / (5 GB/s), each off by at most 5 %, give both figures back within 10 %."""
    sizes = SIZES[:8]
    exact = 2e-6 + np.array(sizes) / 5e9
    noisy = exact * np.array([1.05, 0.95, 1.02, 0.97, 1.03, 0.96, 1.05, 0.98])
    assert fit_transfer(sizes, exact) == pytest.approx((2e-6, 5e9))
    assert fit_transfer(sizes, noisy) == pytest.approx((2e-6, 5e9), rel=0.1)


def test_fits_stay_physical() -> None:
    """Times that fall with the size give an infinite bandwidth; times below the line through 0 give no latency."""
    falling, rising = [3e-6, 2e-6, 1e-6], [0.5e-6, 1.5e-6, 4e-6]
    latency, bandwidth = fit_transfer((100, 200, 400), np.array(falling))
    assert math.isinf(bandwidth) and 1e-6 < latency < 3e-6
    latency, bandwidth = fit_transfer((100, 200, 400), np.array(rising))
    assert latency == 0 and 1e8 < bandwidth < 2e8
    level, steep = fit_link((100, 200, 400), falling), fit_link((100, 200, 400), rising)
    assert math.isinf(level.bandwidth_bytes_per_s) and level.points == ()
    assert steep.latency_s == 0.0 and steep.points[0] == (100, pytest.approx(0.5e-6))
    assert isinstance(steep.link(("a", "b"), one_way=True), Link) and steep.link(("a", "b"), one_way=True).one_way
