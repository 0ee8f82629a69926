"""The measuring loop that every back-end shares: warm up, repeat until the median is stable, stop in time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Sample", "measure"]

WARM_UP = 2
LEAST_RUNS = 5
MOST_RUNS = 100
ENOUGH_S = 0.1
TOLERANCE = 0.01
MOST_S = 20.0
WALL_SHARE = 1.0
"""Of the time that is waited: ``enough_s`` x this for the calls and what is done before them."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What repeated runs of one thing took.

    Attributes
    ----------
    seconds : float
        The median.
    spread : float
        Standard error of the median, relative to it, estimated from the quartiles.
    runs : int
        Runs that count.
    """

    seconds: float
    spread: float
    runs: int


def measure(
    call: Callable[[], object],
    *,
    threads: int = 1,
    before: Callable[[], object] | None = None,
    enough_s: float = ENOUGH_S,
    clock: Callable[[], float] | None = None,
) -> Sample:
    """Time a call.

    After two calls that don't count, at least 5 and at most 100 are timed. It ends when the median's standard error is
    below 1 %, or the timed calls have taken ``enough_s`` together, or that with what is done before them.

    Parameters
    ----------
    call : callable
    threads : int
        1: the calling thread's CPU time is the clock, which other processes on a busy machine hardly disturb. More: the
        wall clock, and only the fastest quarter of the calls counts, since what disturbs makes a call slower.
    before : callable, optional
        Done before each call, not timed: puts the caches into the state that the network would leave them in.
    enough_s : float
    clock : callable, optional
        Seconds; instead of the two above.

    Examples
    --------
    >>> ticks = iter([0, 7, 10, 12, 20, 22, 30, 32, 40, 42])
    >>> measure(lambda: None, clock=lambda: float(next(ticks)), enough_s=0.0)
    Sample(seconds=2.0, spread=0.0, runs=5)
    """
    clock = clock or (time.thread_time if threads == 1 else time.perf_counter)
    for _ in range(WARM_UP):
        if before is not None:
            before()
        call()
    taken: list[float] = []
    opened = time.monotonic()
    while True:
        if before is not None:
            before()
        start = clock()
        call()
        taken.append(clock() - start)
        if len(taken) < LEAST_RUNS:
            if time.monotonic() - opened > MOST_S:
                break
            continue
        sample = _summary(taken, threads)
        late = time.monotonic() - opened >= WALL_SHARE * enough_s
        if sample.spread <= TOLERANCE or sum(taken) >= enough_s or late or len(taken) >= MOST_RUNS:
            return sample
    return _summary(taken, threads)


def _summary(taken: list[float], threads: int) -> Sample:
    counted = sorted(taken) if threads == 1 else sorted(taken)[: (len(taken) + 3) // 4]
    median = statistics.median(counted)
    if len(counted) < 2 or median <= 0:  # 1: not stable yet
        return Sample(median, 0.0 if median <= 0 else 1.0, len(counted))
    low, _, high = statistics.quantiles(counted, n=4, method="inclusive")
    # 1.2533 sigma / sqrt(n) for the median of a normal sample, with sigma = (quartile distance) / 1.349.
    return Sample(median, 0.929 * (high - low) / (len(counted) ** 0.5 * median), len(counted))
