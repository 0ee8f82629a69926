"""A link's time as few straight lines, from measured times; and how far off that is on times that it did not see."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placewright.cluster import Link

__all__ = ["SIZES_BYTES", "LinkFit", "fit_link", "fit_transfer"]

SIZES_BYTES = tuple(64 * 4**k for k in range(11))
"""Of the tensors that are sent to measure a link: 64 B to 64 MiB. Between cores of one machine times stop growing where
a tensor leaves the core's own cache before it is read again: it costs no more to read on another core."""

NEAR = 0.05
"""Every time that is fitted lies within this of the lines, relative to itself."""

MOST_LINES = 6
"""Where more lines would be needed to come that near, the nearest lines of this number are taken."""

Floats = npt.NDArray[np.float64]


class LinkFit(NamedTuple):
    """Lines through measured times.

    Attributes
    ----------
    latency_s, bandwidth_bytes_per_s, points
        As those of :class:`placewright.Link`.
    sizes_bytes, checked_s : array
        What was measured beside what was fitted.
    error : array
        Relative error of the lines at each size, against ``checked_s``.
    straight_error : array
        The same of latency + bytes / bandwidth alone, fitted to the same times.
    """

    latency_s: float
    bandwidth_bytes_per_s: float
    points: tuple[tuple[int, float], ...]
    sizes_bytes: Floats
    checked_s: Floats
    error: Floats
    straight_error: Floats

    def link(self, between: tuple[str, str], *, one_way: bool = False) -> Link:
        """Make the link of two devices."""
        return Link(self.latency_s, self.bandwidth_bytes_per_s, between=between, one_way=one_way, points=self.points)


def fit_link(sizes_bytes: Sequence[int], times_s: npt.ArrayLike, checked_s: npt.ArrayLike | None = None) -> LinkFit:
    """Fit the fewest straight lines that come within 5 % of every time; their corners are at measured sizes.

    Times that fall as the size grows are made level first (isotonic regression of their logarithms), since a link's
    must not. Among corners of one number those whose worst relative error is least are taken: a shortest path over the
    pairs of sizes, O(n^3) for each number of lines.

    Parameters
    ----------
    sizes_bytes : sequence of int
        Ascending, above 0, two at least.
    times_s : array
        Seconds of a transfer of each size, positive.
    checked_s : array, optional
        Other times of the same sizes, which the errors are told of; the fitted ones by default.

    Examples
    --------
    >>> sizes = (1000, 2000, 4000, 8000, 16000)
    >>> fitted = fit_link(sizes, [2e-6, 3e-6, 5e-6, 13e-6, 29e-6])  # 1 us + 1 GB/s, from 4 kB on 0.5 GB/s
    >>> round(fitted.latency_s * 1e6, 6), round(fitted.bandwidth_bytes_per_s / 1e9, 6)
    (1.0, 0.5)
    >>> [(size, round(seconds * 1e6, 6)) for size, seconds in fitted.points]
    [(4000, 5.0)]
    """
    sizes, given = np.asarray(sizes_bytes, dtype=np.float64), np.asarray(times_s, dtype=np.float64)
    checked = given if checked_s is None else np.asarray(checked_s, dtype=np.float64)
    times = _level(given)
    off = _errors_of_lines(sizes, times)
    for lines in range(1, min(MOST_LINES, len(sizes) - 1) + 1):
        corners, worst = _corners(off, lines)
        if worst <= NEAR:
            break
    first, last = corners[:2], corners[-2:]
    slope = (times[first[1]] - times[first[0]]) / (sizes[first[1]] - sizes[first[0]])
    # The line through the first two corners goes on to 0 bytes, but not below no time at all.
    latency = max(0.0, float(times[first[0]] - slope * sizes[first[0]]))
    bent = [*corners[1:-1]] if latency > 0.0 else corners[:-1]
    rise = float(times[last[1]] - times[last[0]])
    bandwidth = float(sizes[last[1]] - sizes[last[0]]) / rise if rise > 0 else math.inf
    points = tuple((int(sizes[k]), float(times[k])) for k in bent)
    fitted = Link(latency, bandwidth, between=("a", "b"), points=points).seconds(sizes)
    straight_s, rate = fit_transfer(sizes_bytes, given)
    return LinkFit(
        latency,
        bandwidth,
        points,
        sizes,
        checked,
        fitted / checked - 1.0,
        (straight_s + sizes / rate) / checked - 1.0,
    )


def fit_transfer(sizes_bytes: Sequence[int], times_s: npt.ArrayLike) -> tuple[float, float]:
    """Fit latency + bytes / bandwidth to measured times, by least squares of the relative errors.

    Parameters
    ----------
    sizes_bytes : sequence of int
    times_s : array
        Of the same length, in seconds, positive.

    Returns
    -------
    latency_s, bandwidth_bytes_per_s : float
        The latency is not below 0; the bandwidth is infinite where the time does not grow with the size.

    Examples
    --------
    >>> latency_s, bandwidth = fit_transfer((1000, 2000, 4000), np.array([2e-6, 3e-6, 5e-6]))
    >>> round(latency_s * 1e6, 6), round(bandwidth / 1e9, 6)  # 1 us + size / (1 GB/s)
    (1.0, 1.0)
    """
    sizes, times = np.asarray(sizes_bytes, dtype=float), np.asarray(times_s, dtype=float)
    rows = np.stack([1.0 / times, sizes / times], axis=1)
    ones = np.ones(len(times))
    latency, per_byte = np.linalg.lstsq(rows, ones, rcond=None)[0]
    # One of the two below 0: the best fit on the boundary has that one at 0.
    if latency < 0:
        latency, per_byte = 0.0, float(rows[:, 1] @ ones / (rows[:, 1] @ rows[:, 1]))
    elif per_byte <= 0:
        latency, per_byte = float(rows[:, 0] @ ones / (rows[:, 0] @ rows[:, 0])), 0.0
    return float(latency), float(1.0 / per_byte) if per_byte > 0 else float("inf")


def _level(times: Floats) -> Floats:
    """Make times that never fall, nearest by the squares of their logarithms: falling neighbours are pooled."""
    blocks: list[tuple[float, int]] = []
    for value in np.log(times).tolist():
        blocks.append((value, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (a, n), (b, m) = blocks[-2:]
            blocks[-2:] = [((a * n + b * m) / (n + m), n + m)]
    level = np.exp([value for value, count in blocks for _ in range(count)])
    return np.asarray(np.maximum.accumulate(level))


def _errors_of_lines(sizes: Floats, times: Floats) -> Floats:
    """(n, n) worst relative error, between the two, of the straight line from one time to a later one."""
    n = len(sizes)
    off = np.full((n, n), np.inf)
    for a in range(n):
        for b in range(a + 1, n):
            line = np.interp(sizes[a : b + 1], sizes[[a, b]], times[[a, b]])
            off[a, b] = float(np.abs(line / times[a : b + 1] - 1.0).max())
    return off


def _corners(off: Floats, lines: int) -> tuple[list[int], float]:
    """Corners of so many lines from the first size to the last whose worst error is least; and that error."""
    n = len(off)
    best = np.full((lines + 1, n), np.inf)
    before = np.zeros((lines + 1, n), dtype=int)
    best[0, 0] = 0.0
    for k in range(1, lines + 1):
        through = np.maximum(best[k - 1][:, None], off)
        before[k], best[k] = through.argmin(axis=0), through.min(axis=0)
    corners = [n - 1]
    for k in range(lines, 0, -1):
        corners.append(int(before[k, corners[-1]]))
    return corners[::-1], float(best[lines, n - 1])
