"""Many samples in processes: over gloo, by torch's pipelining, and as the command runs them; what a user may ask."""

from __future__ import annotations

import math
import os
import re
import socket
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

torch = pytest.importorskip("torch")

from placewright.capture.torch_export import capture_py  # noqa: E402
from placewright.cluster import Cluster, Device, Link  # noqa: E402
from placewright.errors import InvalidInput  # noqa: E402
from placewright.evaluate import judge, plan_for  # noqa: E402
from placewright.execute.pipeline_options import Many, asked_many, check_many  # noqa: E402
from placewright.execute.pipeline_outcome import (  # noqa: E402
    ManySamples,
    Share,
    Trained,
    many_of_text,
    many_text,
    many_to_json,
    steady_s,
)
from placewright.execute.pipeline_routes import plans_of  # noqa: E402
from placewright.execute.pipeline_run import run_many  # noqa: E402
from placewright.io import write_plan  # noqa: E402
from placewright.objective import Throughput  # noqa: E402
from placewright.plan import Copy, Plan, Schedule  # noqa: E402
from placewright.problem import Problem  # noqa: E402
from placewright.report import many_samples_report  # noqa: E402
from placewright.result import Result  # noqa: E402
from tests.cli.commands import call  # noqa: E402

from .pipeline_script import CASES  # noqa: E402
from .test_rank_run import ROOT, torchrun  # noqa: E402

CHAIN = "tests.execute.pipeline_script:chain"


def test_over_gloo_outputs_and_gradients_equal_the_unsplit_networks() -> None:
    """Torch's GPipe and 1F1B on a chain, also one against the order of ranks; ours on copies and a way back."""
    done = torchrun(2, "tests.execute.pipeline_script")
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("case ")]
    assert [int(row[1]) for row in rows] == list(range(len(CASES)))
    assert all(float(row[2]) <= 1e-5 for row in rows)
    assert [row[3:] for row in rows] == [["6", "4"] if name == "copies" else ["6", "6"] for name, _, _ in CASES]


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
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    done = subprocess.run(
        [sys.executable, "-m", "placewright.execute", path, "--model", f"py:{CHAIN}", "--micro-batches", "3"],
        env={**os.environ, "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port},
        capture_output=True,
        text=True,
        timeout=240,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    # A makespan plan of 11 operators of 1 ms: as a pipeline on one device it makes a sample in 11 ms.
    assert re.fullmatch(r"3 samples: \S+ \w+ a sample, predicted 11 ms, error \S+\n", done.stdout), done.stdout
    assert float(done.stdout.split()[-1]) <= 1e-5


def test_other_networks_are_refused(tmp_path: Path) -> None:
    """ONNX networks run one sample; weights must be somewhere."""
    plan = Plan(np.zeros(1), Schedule(np.zeros(1), np.ones(1)), 1.0)
    problem = Problem(capture_py(CHAIN), Cluster([Device("a")]), np.ones((len(capture_py(CHAIN)), 1)))
    with pytest.raises(InvalidInput, match="--micro-batches is for PyTorch networks"):
        run_many(problem, plan, tmp_path / "plan.json", Many(4), model="net.onnx")
    with pytest.raises(InvalidInput, match=r"--weights '.*none' is no file and no folder"):
        run_many(problem, plan, tmp_path / "plan.json", Many(4), model="net.pt2", weights=str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"samples": 0}, "--micro-batches 0 is not from 1 to 100000"),
        ({"samples": 4, "in_flight": 0}, "--in-flight 0 is not at least 1"),
        ({"samples": 4, "optimiser": "lion"}, "--train 'lion' is unknown; use one of sgd, adam"),
        ({"samples": 4, "engine": "deepspeed"}, "--engine 'deepspeed' is unknown"),
        ({"samples": 4, "optimiser": "sgd", "schedule": "zb"}, "--schedule 'zb' is unknown; use one of gpipe, 1f1b"),
        ({"samples": 4, "schedule": "gpipe"}, "--schedule is for training; add --train sgd or --train adam"),
        ({"samples": 4, "loss": "py:a:b"}, "--loss is for training"),
        ({"samples": 4, "optimiser": "sgd", "loss": "a:b"}, "--loss 'a:b' names no function"),
        ({"samples": 4, "optimiser": "sgd", "learning_rate": math.nan}, "--learning-rate nan is not above 0"),
        ({"samples": 4, "optimiser": "sgd", "schedule": "gpipe", "in_flight": 2}, "GPipe keeps all micro-batches"),
    ],
)
def test_what_can_not_be_asked(asked: dict[str, object], said: str) -> None:
    """Numbers out of range, unknown words, and options that need another one."""
    with pytest.raises(InvalidInput, match=said):
        check_many(**asked)  # type: ignore[arg-type]


def test_options_of_many_samples_need_their_number() -> None:
    """Without it, and without any of them, one sample runs; a training order is 1F1B unless another is asked for."""
    none = {"in_flight": None, "schedule": None, "optimiser": None, "loss": None, "learning_rate": 0.01}
    assert asked_many(None, engine="placewright", **none) is None  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="--train is for many samples; add --micro-batches N"):
        asked_many(None, engine="placewright", **{**none, "optimiser": "sgd"})  # type: ignore[arg-type]
    assert check_many(4).schedule == "forward"
    assert check_many(4, optimiser="adam").schedule == "1f1b"
    words = check_many(4, optimiser="adam", schedule="gpipe", loss="py:a:b").arguments()
    assert words[:2] == ["--micro-batches", "4"] and words[words.index("--schedule") + 1] == "gpipe"


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


def test_too_many_ways_through_replicas_are_refused() -> None:
    """Stages on 16, 9 and 25 devices would make 3,600 ways."""
    stages = [tuple(range(0, 16)), tuple(range(16, 25)), tuple(range(25, 50))]
    plan = Plan(np.array([0, 16, 25]), Schedule(np.zeros(3), np.ones(3)), 1.0, replicas=tuple(stages))
    with pytest.raises(InvalidInput, match="stages with 16, 9, 25 replicas make 3600 ways through them"):
        plans_of(plan)
    assert len(plans_of(replace(plan, replicas=(stages[1],)))) == 9


OUTCOME = ManySamples(
    8, 2, "1f1b", "placewright", 0.001, (0.004, 0.002, 0.003), (0.04, 0.02, 0.03), math.nan,
    (Share("a", 8, 0.0015, 2), Share("b", 8, math.nan, 1)), Trained("adam", (3.0, 2.5, 2.0), 1e-7, 0.01), "A note.",
)  # fmt: skip


def shown(outcome: ManySamples) -> str:
    with StringIO() as file:
        Console(width=400, file=file).print(many_samples_report(outcome))
        return file.getvalue()


def test_the_report_says_what_was_measured_and_compared() -> None:
    """Median and range, prediction, losses, what differs and why; what could not be compared is not called equal."""
    text = shown(OUTCOME)
    assert "A note." in text and "8 samples trained in the order 1F1B, at most 2 in flight." in text
    assert "3 ms a sample, forward and backward, filling and draining included (median of 3 runs, 2 ms to 4 ms)" in text
    assert "Mean loss, with a step of adam after each run: 3 -> 2." in text
    assert "Gradients equal the unsplit network's (largest relative difference 1e-07)" in text
    assert "differ by 0.01 of their largest, since adam divides" in text
    text = shown(replace(OUTCOME, schedule="forward", trained=None, engine="torch"))
    assert "3 ms a sample in steady state (median of 3 runs, 2 ms to 4 ms); predicted 1 ms." in text
    assert "run by torch.distributed.pipelining" in text and "were not compared" in text
    unequal = replace(OUTCOME, trained=Trained("sgd", (3.0,), math.nan, math.nan))
    assert "gradients were not compared" in shown(unequal)


def test_an_outcome_is_read_as_it_was_written() -> None:
    """Between processes as it is; for programs what is not a number is null."""
    assert repr(many_of_text(many_text(OUTCOME))) == repr(OUTCOME)
    content = many_to_json(OUTCOME)
    assert content["max_relative_error"] is None and content["shares"][1]["busy_s"] is None
    assert content["median_s"] == 0.003 and content["trained"]["gradient_error"] == 1e-7


def test_steady_state_leaves_out_the_filling() -> None:
    """Ends at 5, 6, 8, 9: after two samples, 3 s for two; of two samples at most one is filling."""
    assert steady_s(0.0, [8.0, 5.0, 6.0, 9.0], 2) == 1.5
    assert steady_s(0.0, [8.0, 5.0, 6.0, 9.0], 0) == 9 / 4
    assert steady_s(1.0, [4.0, 6.0], 7) == 2.0
    assert steady_s(1.0, [4.0], 7) == 3.0
