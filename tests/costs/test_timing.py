"""The measuring loop, on a clock that the test owns."""

from collections.abc import Callable, Iterator
from itertools import chain, repeat

import pytest

from placewright.costs.timing import LEAST_RUNS, MOST_RUNS, WARM_UP, measure


class Clock:
    """Advances only when a call says how long it took."""

    def __init__(self, durations: Iterator[float]) -> None:
        self.now = 0.0
        self.durations = durations
        self.calls = 0

    def __call__(self) -> float:
        return self.now

    def work(self) -> None:
        self.calls += 1
        self.now += next(self.durations)


def run(
    durations: Iterator[float], *, threads: int = 1, before: Callable[[], object] | None = None
) -> tuple[float, int]:
    clock = Clock(durations)
    sample = measure(clock.work, clock=clock, threads=threads, before=before)
    return sample.seconds, clock.calls


def test_stable_calls_need_no_more_than_the_least_runs() -> None:
    """Two warm-up calls, which may be slow, are not counted; five equal ones settle the median."""
    seconds, calls = run(chain([9.0, 9.0], repeat(1e-3)))
    assert (seconds, calls) == (pytest.approx(1e-3), WARM_UP + LEAST_RUNS)


def test_unstable_calls_are_repeated_until_enough_time_was_spent() -> None:
    """Calls of 5 and 15 ms in turn don't settle: ten of them fill 0.1 s."""
    seconds, calls = run(chain([0.0, 0.0], (k for _ in range(50) for k in (5e-3, 15e-3))))
    assert calls == WARM_UP + 10
    assert 5e-3 <= seconds <= 15e-3


def test_short_unstable_calls_end_at_the_most_runs() -> None:
    """Calls of microseconds can't fill the time, so their number is limited."""
    _, calls = run(chain([0.0, 0.0], (k for _ in range(500) for k in (1e-6, 3e-6))))
    assert calls == WARM_UP + MOST_RUNS


def test_one_disturbed_call_does_not_move_the_median() -> None:
    """Of five calls one takes a thousand times as long."""
    seconds, _ = run(chain([0.0, 0.0, 1e-3, 1e-3, 1.0], repeat(1e-3)))
    assert seconds == pytest.approx(1e-3)


def test_with_several_threads_the_fastest_quarter_counts() -> None:
    """On the wall clock three of four calls are disturbed by others: the undisturbed quarter gives the time."""
    seconds, _ = run(chain([0.0, 0.0], (k for _ in range(100) for k in (1e-3, 4e-3, 7e-3, 9e-3))), threads=2)
    assert seconds == pytest.approx(1e-3)


def test_what_is_done_before_a_call_is_not_timed() -> None:
    """Preparation runs before every call, warm-up included, and its duration is not in the result."""
    clock = Clock(repeat(1e-3))
    prepared = []

    def before() -> None:
        prepared.append(clock.now)
        clock.now += 5.0

    sample = measure(clock.work, clock=clock, before=before)
    assert sample.seconds == pytest.approx(1e-3)
    assert len(prepared) == clock.calls == WARM_UP + LEAST_RUNS
