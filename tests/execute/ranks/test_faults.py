"""Ranks that die, hang, run out of memory or lose connections: all end, name the one to blame, and leave nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from placewright.errors import DeviceLost, ExecutionError, InvalidInput
from placewright.execute.ranks.faults import State, cause_of, error_of, line_of, out_of_memory

ROOT = Path(__file__).resolve().parents[3]
CASES = ("none", "SIGKILL", "SIGSTOP", "loop", "memory", "error", "cut", "wrong")


def waiting(rank: int, source: int, seconds: float = 9.0) -> State:
    return State(rank, f"d{rank}", "waits", f"t{source}", source, seconds)


def test_who_only_waits_is_not_to_blame() -> None:
    """0 waits for 1, which waits for 2, which computes: 2 is named, and what it computes."""
    states = [waiting(0, 1), waiting(1, 2), State(2, "d2", "computes", "conv", seconds=9.5)]
    for me in (0, 1):
        cause = cause_of(states, me, late=True)
        assert cause is not None and cause.device == "d2"
        assert str(cause).startswith("rank 2 on 'd2' was still computing 'conv' after 9.5 s")
    assert cause_of(states, 2, late=True) is None  # nobody holds it up
    assert cause_of(states, 0, late=False) is None  # a connection broke, and nobody was late


def test_who_has_gone_is_named_before_who_is_slow() -> None:
    """A dead process comes before a silent one, that before the chain of those that wait."""
    slow, silent = State(1, "d1", "computes", "a", seconds=9.0), State(2, "d2", "waits", "t", 1, 1.0, silent_s=5.0)
    dead = State(3, "d3", "computes", "b", alive=False)
    first = cause_of([waiting(0, 1), slow, silent, dead], 0, late=True)
    assert str(first) == "rank 3 on 'd3' died while it computed 'b'"
    second = cause_of([waiting(0, 1), slow, silent], 0, late=True)
    assert second is not None and second.device == "d2"
    assert "not been heard of for 5 s while it waited for 't' from 'd1'" in str(second)
    absent = cause_of([waiting(0, 1), State(1, "d1")], 0, late=True)
    assert str(absent) == "rank 1 on 'd1' did not come; was it started?"


def test_a_rank_between_runs_blames_who_has_been_busy_for_longest() -> None:
    """All wait for all before a run begins: the one that still loads is named; a circle of waits names nobody."""
    states = [State(0, "d0", "rests"), State(1, "d1", "loads", seconds=8.0), State(2, "d2", "loads", seconds=2.0)]
    cause = cause_of(states, 0, late=True)
    assert cause is not None and cause.device == "d1" and "still loading after 8 s" in str(cause)
    assert cause_of([waiting(0, 1), waiting(1, 0)], 0, late=True) is None


@pytest.mark.parametrize(
    "error", [DeviceLost("it died", device='a "b": c'), ExecutionError("x: y"), InvalidInput("no")]
)
def test_an_error_passes_from_process_to_process_as_one_line(error: Any) -> None:
    """Its kind, its words, and the device that is lost, whatever that one's name."""
    read = error_of(line_of(error))
    assert type(read) is type(error) and str(read) == str(error)
    assert getattr(read, "device", None) == getattr(error, "device", None)
    assert type(error_of('lost device "unfinished: x')) is ExecutionError


def test_what_counts_as_no_memory() -> None:
    """Python's own error, and the words of torch's allocator."""
    assert out_of_memory(MemoryError())
    assert out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"))
    assert not out_of_memory(RuntimeError("Connection closed by peer"))


@pytest.fixture(scope="module")
def cases() -> dict[str, dict[str, Any]]:
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-m", "tests.execute.fault_script", *CASES],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {row["fault"]: row for row in rows}


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes as Linux shows them")
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("SIGKILL", "lost device \"d1\": rank 1 on 'd1' died while it computed 'frail'"),
        ("SIGSTOP", "lost device \"d1\": rank 1 on 'd1' has not been heard of for"),
        ("loop", "lost device \"d1\": rank 1 on 'd1' was still computing 'frail' after"),
        ("memory", "lost device \"d1\": rank 1 on 'd1' ran out of memory in operator 'frail': "),
        ("error", "operator 'frail' on 'd1' failed: no such token"),
        ("cut", ", which still ran: "),
        ("wrong", "largest magnitude: operator 'frail' on 'd1' is the first whose result differs, by 0.5"),
    ],
)
def test_all_ranks_end_and_say_the_same_cause(cases: dict[str, dict[str, Any]], fault: str, said: str) -> None:
    """Three ranks, of which 0 waits for 2 and 2 for 1: each that can speak names what went wrong on 1; none is left."""
    case = cases[fault]
    assert case["left"] == []
    assert all(code != 0 for code in case["codes"])
    assert case["said"]
    assert all(said in line for line in case["said"])
    speakers = {line.split(":")[1].strip() for line in case["said"]}
    assert {"rank 0", "rank 2"} <= speakers


def test_without_a_fault_nothing_is_said(cases: dict[str, dict[str, Any]]) -> None:
    """The same ranks end well."""
    assert (cases["none"]["codes"], cases["none"]["said"]) == ([0, 0, 0], [])
