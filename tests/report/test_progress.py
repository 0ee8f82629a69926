"""The line that shows a search: what it says, and that it ends before others speak."""

from __future__ import annotations

import io
import itertools
import math

import pytest

from placewright.algorithm import Progress
from placewright.report import progress as module
from placewright.report.progress import ProgressLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten seconds pass between two looks at the clock."""
    ticks = itertools.count(0.0, 10.0)
    monkeypatch.setattr(module.time, "monotonic", lambda: next(ticks))


def test_a_step_of_a_search_off_a_terminal_is_a_line() -> None:
    """Value 4 s, bound 3 s: the gap is a quarter."""
    stream = io.StringIO()
    ProgressLine(stream)(Progress("heft", 4.0, 3.0, 1.25))
    assert stream.getvalue() == "   1.2 s  heft                best 4 s  bound 3 s  gap 25.00%\n"


def test_before_there_is_a_plan_there_is_no_gap() -> None:
    """An infinite value is said in words."""
    stream = io.StringIO()
    ProgressLine(stream)(Progress("cp-sat", math.inf, 0.002, 0.0))
    assert stream.getvalue().endswith("best none yet  bound 2 ms\n")


def test_on_a_terminal_the_line_is_rewritten_and_ended_before_another() -> None:
    """Escape codes go to terminals alone, and a message starts on a line of its own."""
    stream = Terminal()
    line = ProgressLine(stream)
    line(Progress("heft", 4.0, 4.0, 0.0))
    line.step("second")
    line.tell("message")
    assert stream.getvalue().endswith("gap 0.00%\r\x1b[2Ksecond\nmessage\n")
    line.close()
    assert stream.getvalue().endswith("message\n")


def test_steps_that_come_too_fast_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second apart, off a terminal: every second line is kept, since two seconds must pass; messages always are."""
    ticks = itertools.count(0.0, 1.0)
    monkeypatch.setattr(module.time, "monotonic", lambda: next(ticks))
    stream = io.StringIO()
    line = ProgressLine(stream)
    for k in range(5):
        line.step(f"step {k}")
    line.tell("message")
    assert stream.getvalue() == "step 0\nstep 2\nstep 4\nmessage\n"


def test_the_first_report_of_another_solver_is_never_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of a second apart, off a terminal: one line of each solver, so that it is seen which one runs."""
    ticks = itertools.count(0.0, 0.1)
    monkeypatch.setattr(module.time, "monotonic", lambda: next(ticks))
    stream = io.StringIO()
    line = ProgressLine(stream)
    for name in ("heft", "heft", "annealing", "annealing", "heft"):
        line(Progress(name, 4.0, 3.0, 0.0))
    assert [row.split()[2] for row in stream.getvalue().splitlines()] == ["heft", "annealing", "heft"]
