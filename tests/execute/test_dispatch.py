"""Which engine runs a plan, and where its network is looked for."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from placewright.cluster import Cluster, Device
from placewright.errors import ExecutionError, InvalidInput
from placewright.execute.dispatch import run_plan
from placewright.graph import Operator, OperatorGraph, Source
from placewright.plan import Plan, Schedule
from placewright.problem import Problem

if TYPE_CHECKING:
    import torch


def problem(source: Source | None) -> Problem:
    graph = OperatorGraph([Operator("a")], name="net", source=source)
    return Problem(graph, Cluster([Device("d")]), [[1.0]])


PLAN = Plan(np.zeros(1), Schedule(np.zeros(1), np.ones(1)), 1.0)


def test_code_is_not_called_because_a_plan_names_it(tmp_path: Path) -> None:
    """The user must say so, and is told how."""
    with pytest.raises(InvalidInput, match="is not called unasked; give --model py:nets:make to call it"):
        run_plan(problem(Source("py", "nets:make")), PLAN, folder=tmp_path)
    with pytest.raises(InvalidInput, match="names no network to run; give it with --model"):
        run_plan(problem(None), PLAN, folder=tmp_path)


def test_a_model_with_another_hash_is_refused(tmp_path: Path) -> None:
    """Both hashes are named by their beginnings."""
    model = tmp_path / "net.onnx"
    model.write_bytes(b"new")
    old, new = (hashlib.sha256(b).hexdigest()[:12] for b in (b"old", b"new"))
    given = problem(Source("onnx", "net.onnx", hashlib.sha256(b"old").hexdigest()))
    with pytest.raises(InvalidInput, match=f"has the hash {new}, and the plan was made for {old}; plan again"):
        run_plan(given, PLAN, folder=tmp_path)
    with pytest.raises(InvalidInput, match=r"gone\.onnx' is not a file; correct --model"):
        run_plan(given, PLAN, folder=tmp_path, model="gone.onnx")


def make() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """What ``py:tests.execute.test_dispatch:make`` names."""
    from tests.execute.small_torch import branches

    module, args, _ = branches()
    return module, args


MAKE = "tests.execute.test_dispatch:make"


def torch_plan() -> tuple[Problem, Plan]:
    from placewright.capture.torch_export import capture_py
    from tests.execute.small_torch import problem_of, random_plan

    given = problem_of(capture_py(MAKE), 2, np.random.default_rng(0))
    return given, replace(random_plan(given, np.random.default_rng(1)), value_s=0.125)


def test_a_function_is_run_in_one_process(tmp_path: Path) -> None:
    """As many runs as asked for, the plan's own prediction, outputs equal to the unsplit network's."""
    pytest.importorskip("torch")
    given, plan = torch_plan()
    told: list[str] = []
    (measured,) = run_plan(given, plan, folder=tmp_path, model=f"py:{MAKE}", runs=3, on_progress=told.append)
    assert measured.name == "plan" and len(measured.runs_s) == 3 and measured.predicted_s == 0.125
    assert measured.max_relative_error <= 1e-5
    assert told == ["running the plan 3 times in one process"]


def test_outputs_that_differ_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where they are not a number."""
    pytest.importorskip("torch")
    from placewright.execute.torch import local as torch_local

    given, plan = torch_plan()
    for error in (2e-5, float("nan"), float("inf")):
        outcome = SimpleNamespace(max_relative_error=error, runs_s=(1.0,))
        monkeypatch.setattr(torch_local, "run_torch_local", lambda *_, outcome=outcome, **__: outcome)
        with pytest.raises(ExecutionError, match="an output differs from the unsplit network's by"):
            run_plan(given, plan, folder=tmp_path, model=f"py:{MAKE}")


@pytest.mark.parametrize(("given", "flag"), [({"replanning": True}, "--replan"), ({"weights": "w"}, "--weights")])
def test_one_process_is_asked_for_nothing_that_needs_several(tmp_path: Path, given: dict[str, Any], flag: str) -> None:
    """Refused before the network is loaded, not taken and forgotten."""
    with pytest.raises(InvalidInput, match=f"{flag} is for --processes; leave it out, or add that"):
        run_plan(problem(None), PLAN, folder=tmp_path, model="py:nowhere:net", **given)


@pytest.mark.parametrize("seconds", [0.0, 86_401.0, float("inf"), float("nan")])
def test_a_limit_within_which_nothing_runs_is_refused(tmp_path: Path, seconds: float) -> None:
    """Nor is one that never comes: a rank that waits for another must give up some day."""
    with pytest.raises(InvalidInput, match=r"--timeout .* is not above 0 and at most a day"):
        run_plan(problem(None), PLAN, folder=tmp_path, timeout_s=seconds)


def test_a_plan_with_replicas_is_refused(tmp_path: Path) -> None:
    """Its value is that of stages side by side, which nothing here runs."""
    with pytest.raises(InvalidInput, match="stages on several devices at once"):
        run_plan(problem(None), replace(PLAN, replicas=((0, 1),)), folder=tmp_path)
