"""Many samples in processes, as the command runs them and by hand."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from placewright.capture.torch_export import capture_py
from placewright.cluster import Cluster, Device, Link
from placewright.errors import InvalidInput
from placewright.evaluate import judge, plan_for
from placewright.execute.pipeline.options import Many, check_many
from placewright.execute.pipeline.run import run_many
from placewright.io import write_plan
from placewright.objective import Throughput
from placewright.plan import Copy, Plan, Schedule
from placewright.problem import Problem
from placewright.result import Result
from tests.cli.commands import call

from ..started_ranks import ranks

CHAIN = "tests.execute.pipeline_script:chain"


def test_copies_are_trained_as_the_command_does_it(tmp_path: Path) -> None:
    """A whole copy on each device, by share; torch can't run that, which is said; losses fall; all is compared."""
    graph = capture_py(CHAIN)
    n = len(graph)
    pair = Cluster([Device("a"), Device("b")], [Link(1e-5, 1e9, link_class="same-host")])
    problem = Problem(graph, pair, np.full((n, 2), 1e-3), Throughput())
    plan = plan_for(problem, np.zeros(n), copies=[Copy(np.zeros(n), 0.75), Copy(np.ones(n), 0.25)])
    assert plan is not None
    path, told = tmp_path / "plan.json", list[str]()
    write_plan(path, problem, Result(plan), judge(problem, plan))
    many = check_many(8, optimiser="sgd", engine="torch", learning_rate=0.1)
    outcome = run_many(problem, plan, path, many, model=f"py:{CHAIN}", runs=2, on_progress=told.append)
    assert told == ["running 8 samples 2 times in 2 processes"]
    assert [(s.device, s.samples) for s in outcome.shares] == [("a", 6), ("b", 2)]
    assert outcome.engine == "placewright" and "samples take several ways" in outcome.note
    # A copy on one device alone is one stage: 1F1B keeps one sample of each route.
    assert outcome.in_flight == 2 and [s.most_kept for s in outcome.shares] == [1, 1]
    assert outcome.predicted_s == pytest.approx(0.75 * n * 1e-3)
    assert outcome.trained is not None and outcome.trained.losses[1] < outcome.trained.losses[0]
    assert outcome.trained.gradient_error <= 1e-5 and outcome.trained.weight_error <= 1e-5
    assert len(outcome.steady_s) == len(outcome.runs_s) == 2 and min(outcome.steady_s) > 0


def test_one_rank_by_hand_tells_its_time(tmp_path: Path) -> None:
    """What torchrun starts, on one device: outputs of all samples are compared, and one line is told."""
    graph = capture_py(CHAIN)
    problem = Problem(graph, Cluster([Device("a")]), np.full((len(graph), 1), 1e-3))
    plan = plan_for(problem, np.zeros(len(graph)))
    assert plan is not None
    path = tmp_path / "plan.json"
    write_plan(path, problem, Result(plan), judge(problem, plan))
    (told,) = ranks(1, "placewright.execute", path, "--model", f"py:{CHAIN}", "--micro-batches", "3")
    # A makespan plan of 11 operators of 1 ms: as a pipeline on one device it makes a sample in 11 ms.
    assert re.fullmatch(r"3 samples: \S+ \w+ a sample, predicted 11 ms, error \S+\n", told), told
    assert float(told.split()[-1]) <= 1e-5


def test_other_networks_are_refused(tmp_path: Path) -> None:
    """ONNX networks run one sample; weights must be somewhere."""
    plan = Plan(np.zeros(1), Schedule(np.zeros(1), np.ones(1)), 1.0)
    problem = Problem(capture_py(CHAIN), Cluster([Device("a")]), np.ones((len(capture_py(CHAIN)), 1)))
    with pytest.raises(InvalidInput, match="--micro-batches is for PyTorch networks"):
        run_many(problem, plan, tmp_path / "plan.json", Many(4), model="net.onnx")
    with pytest.raises(InvalidInput, match=r"--weights '.*none' is no file and no folder"):
        run_many(problem, plan, tmp_path / "plan.json", Many(4), model="net.pt2", weights=str(tmp_path / "none"))


def test_the_command_says_what_goes_together(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Many samples need a process for each device, and draw no report of one; nothing is read before that is said."""
    plan = tmp_path / "plan.json"
    for arguments, said in (
        (["--micro-batches", 4], "--micro-batches needs --processes"),
        (
            ["--micro-batches", 4, "--processes", "--trace", "t.json"],
            "--micro-batches has neither --report nor --trace",
        ),
        (["--micro-batches", 4, "--processes", "--replan"], "--replan is for runs of one sample"),
        (["--processes", "--train", "sgd"], "--train is for many samples; add --micro-batches N"),
    ):
        outcome = call(capfd, "run", plan, *arguments)
        assert outcome.code == 2 and outcome.line.startswith(said)
