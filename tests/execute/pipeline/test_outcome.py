"""What a user may ask of many samples, and how what came of it is told."""

from __future__ import annotations

import math
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from placewright.errors import InvalidInput
from placewright.execute.pipeline.options import asked_many, check_many
from placewright.execute.pipeline.outcome import (
    ManySamples,
    Share,
    Trained,
    many_of_text,
    many_text,
    many_to_json,
    steady_s,
)
from placewright.execute.pipeline.routes import plans_of
from placewright.plan import Plan, Schedule
from placewright.report import many_samples_report


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
        ({"samples": 4, "learning_rate": 0.1}, "--learning-rate is for training"),
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
    none = {"in_flight": None, "schedule": None, "optimiser": None, "loss": None, "learning_rate": None}
    assert asked_many(None, engine="placewright", **none) is None  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="--train is for many samples; add --micro-batches N"):
        asked_many(None, engine="placewright", **{**none, "optimiser": "sgd"})  # type: ignore[arg-type]
    assert check_many(4).schedule == "forward"
    assert check_many(4, optimiser="adam").schedule == "1f1b"
    words = check_many(4, optimiser="adam", schedule="gpipe", loss="py:a:b").arguments()
    assert words[:2] == ["--micro-batches", "4"] and words[words.index("--schedule") + 1] == "gpipe"


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
