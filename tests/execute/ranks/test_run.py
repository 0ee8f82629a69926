"""Distributed runs: the common order never waits for ever, and random placements give the unsplit network's outputs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from placewright.capture.torch_export import capture_program, export_module  # noqa: E402
from placewright.capture.torch_program import take_apart  # noqa: E402
from placewright.errors import DeviceLost, ExecutionError, InvalidInput  # noqa: E402
from placewright.evaluate import judge, plan_for  # noqa: E402
from placewright.execute import run_plan  # noqa: E402
from placewright.execute.ranks.launch import _failure, _limit_s, launch  # noqa: E402
from placewright.execute.ranks.segments import Segment, segments_of  # noqa: E402
from placewright.execute.torch.local import places_of  # noqa: E402
from placewright.io import write_plan  # noqa: E402
from placewright.result import Result  # noqa: E402

from ..small_torch import NETWORKS, branches, problem_of, random_plan  # noqa: E402

ROOT = Path(__file__).resolve().parents[3]


def torchrun(processes: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Start ranks on this machine and wait for them."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "-m"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=240, cwd=ROOT, check=False)


def test_random_placements_on_three_ranks_give_the_unsplit_networks_outputs() -> None:
    """Branches, in-place sums, masks, tied weights, outputs that nobody computes: run twice, equal to the last bit."""
    pytest.importorskip("transformers")
    names = ("branches", "returns", "tiny_gpt2", "tiny_t5")
    done = torchrun(3, "tests.execute.rank_script", *names)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [line.split() for line in done.stdout.splitlines() if line.split()[:1] and line.split()[0] in names]
    assert [row[0] for row in rows] == [name for name in names for _ in range(2)]
    for _, error, segments, messages in rows:
        assert float(error) <= 1e-5
        assert int(segments) > 3
        assert int(messages) > 3


def _ends(segments: dict[int, Sequence[Segment]]) -> bool:
    """Whether all ranks reach their ends: a segment begins when all that it awaits has been sent."""
    at, sent = dict.fromkeys(segments, 0), set[int]()
    moved = True
    while moved:
        moved = False
        for i, row in segments.items():
            while at[i] < len(row) and all(m.tag in sent for m in row[at[i]].awaits):
                sent.update(m.tag for m in row[at[i]].sends)
                at[i] += 1
                moved = True
    return all(at[i] == len(row) for i, row in segments.items())


@pytest.mark.parametrize("seed", range(4))
def test_no_order_of_a_plan_waits_for_ever(seed: int) -> None:
    """Whatever the placement and the planned order, each tensor is sent once to each reader, and all ranks end."""
    rng = np.random.default_rng(seed)
    module, args, kwargs = branches()
    program = export_module(module, args, kwargs)
    parts = take_apart(program)
    problem = problem_of(capture_program(program), 4, rng)
    plan = plan_for(problem, random_plan(problem, rng).device_of)
    assert plan is not None
    segments = segments_of(parts, places_of(parts, problem, plan), problem, plan)
    awaited = [m.tag for row in segments.values() for s in row for m in s.awaits]
    assert sorted(awaited) == sorted(m.tag for row in segments.values() for s in row for m in s.sends)
    assert len(set(awaited)) == len(awaited) > 0
    assert _ends(segments)
    ran = [v.name for row in segments.values() for s in row for v in s.operators]
    assert sorted(ran) == sorted(v.name for v in parts.operators)


def test_a_rank_that_fails_is_named_and_no_process_is_left(tmp_path: Path) -> None:
    """The network's function is unknown: every rank says so, and the launcher passes on one line, as bad input."""
    rng = np.random.default_rng(0)
    module, args, kwargs = NETWORKS["branches"]()
    problem = problem_of(capture_program(export_module(module, args, kwargs)), 2, rng)
    plan = plan_for(problem, random_plan(problem, rng).device_of)
    assert plan is not None
    path = tmp_path / "plan.json"
    write_plan(path, problem, Result(plan), judge(problem, plan))
    with pytest.raises(InvalidInput, match=r"^nowhere\.models:net: there is no module 'nowhere'"):
        launch(path, plan, "py:nowhere.models:net", weights=None, runs=1, timeout_s=20.0, devices=("a", "b"))
    for weights in (str(tmp_path / "none"), ""):
        with pytest.raises(InvalidInput, match="is no file and no folder"):
            run_plan(problem, plan, folder=tmp_path, model="py:nowhere:net", processes=path, weights=weights)


def test_many_long_runs_have_a_limit_that_can_be_waited_for() -> None:
    """10 runs of at most 60 s and 10 minutes to load: 1,200 s; a million are cut to what poll(2) can count in ms."""
    assert _limit_s(10, 60.0) == 1200.0
    assert 1000 * _limit_s(10**6, 86_400.0) < 2**31


def test_what_a_rank_told_is_the_cause() -> None:
    """What it can't use is bad input, a lost device is known by name, all else is a run that failed."""
    failed = _failure("Traceback\nplacewright: rank 0: operator 'x' on 'a' failed: ValueError\n===\n", ["a"])
    assert isinstance(failed, ExecutionError) and str(failed) == "operator 'x' on 'a' failed: ValueError"
    refused = _failure("placewright: rank 0: bad input: 'w' is no file\n====\n", ["a"])
    assert isinstance(refused, InvalidInput) and str(refused) == "'w' is no file"
    assert str(_failure("", ["a"])) == "a process of the plan failed: it said nothing"


SUMMARY = """torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
=====
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 8)
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 7)
  traceback : Signal 9 (SIGKILL) received by PID 7
=====
"""
"""What torchrun says."""


def test_what_a_process_dies_of_is_told() -> None:
    """The signal from torchrun's summary, by the device's name, with what the other ranks saw of it if they could."""
    lost = _failure(SUMMARY, ["a", "b"])
    assert isinstance(lost, DeviceLost) and lost.device == "b"
    assert str(lost) == "rank 1 on 'b' died; it was killed by SIGKILL: was memory short?"
    seen = _failure(
        f"placewright: rank 0: lost device \"b\": rank 1 on 'b' died while it loaded\n{SUMMARY}", ["a", "b"]
    )
    assert str(seen) == "rank 1 on 'b' died while it loaded; it was killed by SIGKILL: was memory short?"
    died = f"Traceback (most recent call last):\n[rank1]: KeyError: 'x'\n{SUMMARY}"
    assert str(_failure(died, ["a", "b"])) == "a process of the plan failed: [rank1]: KeyError: 'x'"
