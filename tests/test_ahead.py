"""Processes that compile ahead of a solve: begun when a kernel is missing, gone when the solve ends."""

from __future__ import annotations

import subprocess
import sys

import pytest

from placewright import ahead
from placewright._kernel import compiling
from placewright._kernel.warm import AHEAD, PARTS

pytestmark = pytest.mark.skipif(not compiling.can_lock(), reason="no locks on files")

WAITS = "import sys; sys.stdin.buffer.read()"


def test_processes_begin_with_the_first_kernel_that_is_missing_and_end_with_the_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four cores, three of them idle, and only as many parts as the objective has; a second kernel begins none."""
    begun: list[tuple[str, int, subprocess.Popen[bytes]]] = []

    def process(objective: str, first: int) -> subprocess.Popen[bytes]:
        begun.append((objective, first, subprocess.Popen([sys.executable, "-c", WAITS], stdin=subprocess.PIPE)))
        return begun[-1][2]

    monkeypatch.setattr(ahead, "available_cores", lambda: (0, 1, 2, 3))
    monkeypatch.setattr(ahead, "_process", process)
    with ahead.compiling_ahead("offload"):
        assert not begun
        compiling.tell_of_missing()
        compiling.tell_of_missing()
        assert [(objective, first) for objective, first, _ in begun] == [("offload", 1)]
        assert begun[0][2].poll() is None
    assert begun[0][2].poll() == 0
    compiling.tell_of_missing()
    assert len(begun) == 1


def test_on_one_core_nothing_is_compiled_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """There it would only take time from the solve."""
    monkeypatch.setattr(ahead, "available_cores", lambda: (0,))
    monkeypatch.setattr(ahead, "_process", lambda *_: pytest.fail("a process was begun"))
    with ahead.compiling_ahead("makespan"):
        compiling.tell_of_missing()


def test_a_process_that_compiles_ahead_ends_with_its_parent() -> None:
    """Its input ends with the one that began it, however that ended; it leaves at once, and without a complaint."""
    process = ahead._process("makespan", 2)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait() == 0


@pytest.mark.parametrize("objective", sorted(PARTS))
def test_what_is_compiled_ahead_is_a_part_that_the_solve_comes_to_later(objective: str) -> None:
    """The solve begins with part 0; each process begins with a part of its own."""
    firsts = AHEAD[objective]
    assert len(set(firsts)) == len(firsts)
    assert all(0 < first < len(PARTS[objective]) for first in firsts)
