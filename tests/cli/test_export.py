"""``placewright export``: text to standard output or a file, losses to standard error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from placewright.cluster import Cluster, Device, Link
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.io import problem_to_json
from placewright.problem import Problem
from tests.cli.commands import Call, written


@pytest.fixture
def plan(placewright: Call, tmp_path: Path) -> Path:
    """Two halves of a layer that are each fast on a device of their own, so that they are apart in every good plan."""
    graph = OperatorGraph(
        [Operator(name, weight_bytes=8) for name in ("h.0.a", "h.0.b", "h.1.a")],
        [Tensor("t0", 0, (1,), 8), Tensor("t1", 1, (2,), 8)],
    )
    cluster = Cluster([Device("a"), Device("b")], [Link(1e-3, 1e9, link_class="same-host")])
    problem = Problem(graph, cluster, np.array([[1.0, 2.0], [2.0, 1.0], [2.0, 1.0]]))
    path = tmp_path / "plan.json"
    file = written(tmp_path, problem_to_json(problem))
    assert placewright("plan", file, "--solver", "heft", "--budget", "1", "-o", path).code == 0
    return path


def test_the_nearest_plan_is_written_and_its_loss_said(placewright: Call, plan: Path, tmp_path: Path) -> None:
    """1 + 0.001 + 1 + 1 s apart; with the layer whole on b 2 + 1 + 1 s: a third more; the file has the same text."""
    shown = placewright("export", plan, "--format", "vllm")
    assert shown.code == 0
    assert shown.out.endswith(
        "VLLM_PP_LAYER_PARTITION=2 vllm serve MODEL --pipeline-parallel-size 1 --tensor-parallel-size 1\n"
    )
    assert "whole layers in a row of accelerators: 4 s instead of 3 s (+33.3%), the best that it can say" in shown.err
    again = placewright("export", plan, "--format", "vllm", "-o", tmp_path / "vllm.sh", "--budget", "1s")
    assert (again.code, again.out) == (0, "")
    assert (tmp_path / "vllm.sh").read_text() == shown.out
    assert placewright("export", plan, "--format", "vllm", "-o", "-").out == shown.out  # where there is a pipe


def test_a_reader_is_told_once(placewright: Call, plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal the comment says what is lost; JSON has no comments, so standard error says it there too."""
    monkeypatch.setattr("placewright.cli.plans.sys.stdout.isatty", lambda: True, raising=False)
    shown = placewright("export", plan, "--format", "vllm")
    assert shown.out.count("instead of 3 s") == 1
    assert "instead of 3 s" not in shown.err
    shown = placewright("export", plan, "--format", "accelerate")
    assert "instead of 3 s" in shown.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["onnx-models"], "--format onnx-models is several files; name a folder for them with -o FOLDER"),
        (["onnx-models", "-o", "plan.json"], "is several files, and 'plan.json' is no folder; name another"),
        (
            ["onnx-models", "-o", "parts"],
            "onnx-models goes by the nodes of an ONNX file, and this plan was made of none",
        ),
    ],
)
def test_formats_that_are_folders(placewright: Call, plan: Path, arguments: list[str], complaint: str) -> None:
    """One line, exit code 2, where no folder is named or there is no model to part."""
    refused = placewright("export", plan.name, "--format", *arguments)
    assert refused.code == 2
    assert complaint in refused.line


def test_whatif_prints_what_a_further_device_brings(placewright: Call, tmp_path: Path) -> None:
    """One sentence a wish on standard output, or one JSON object; a model that is not known is one line."""
    graph = OperatorGraph([Operator("a"), Operator("b")])
    cluster = Cluster([Device("gpu", model="rtx-3090")], [Link(0.0, 1e9, link_class="same-host")])
    file = written(tmp_path, problem_to_json(Problem(graph, cluster, [[1.0], [1.0]])))
    assert placewright("plan", file, "--budget", "1", "-o", "plan.json").code == 0
    shown = placewright("whatif", "plan.json", "--add", "rtx-3090", "--budget", "2")
    assert shown.code == 0
    assert shown.out == (
        "one more rtx-3090: 1 s instead of 2 s (-50.0%; proved to be the best); it would hold 1 operator and 0 B\n"
    )
    as_json = placewright("whatif", "plan.json", "--add", "rtx-3090", "--budget", "2", "--json").json
    assert as_json["whatif"][0]["after_s"] == 1.0
    assert "did you mean" in placewright("whatif", "plan.json", "--add", "rtx-3900").line
