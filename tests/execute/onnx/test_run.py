"""Measuring a plan, and comparing its outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from placewright.errors import ExecutionError, InvalidInput
from placewright.evaluate import evaluate
from placewright.execute.onnx.run import run_onnx_alone, run_onnx_plan
from placewright.execute.onnx.split import Value
from placewright.execute.onnx.unsplit import random_inputs, run_unsplit

from ..small_onnx import LIGHT, branching, cluster, plan_of, problem_of, saved


def test_a_measurement_holds_what_was_asked_for(tmp_path: Path) -> None:
    """As many runs as asked for, the plan's own value as the prediction, spans that end with their run."""
    model = branching()
    problem = problem_of(model, cluster(2))
    plan = plan_of(problem, [k % 2 for k in range(len(problem.graph))])
    path = saved(model, tmp_path)
    measured, outputs = run_onnx_plan(path, problem, plan, runs=7, warmup=1)
    assert len(measured.runs_s) == 7
    assert measured.predicted_s == plan.value_s
    assert max(s.finish_s for s in measured.spans) == pytest.approx(measured.median_s, rel=1e-9)
    assert {s.device for s in measured.spans} == {"cpu0", "cpu1"}
    assert measured.max_relative_error <= 1e-5
    wanted = run_unsplit(path, random_inputs((Value("x", TensorProto.FLOAT, (4, 8), 128),)))
    np.testing.assert_allclose(outputs["y3"], wanted["y3"], rtol=1e-5)


def test_alone_means_one_call_on_one_device(tmp_path: Path) -> None:
    """A device alone is predicted by the judge and runs the whole network as one call."""
    model = branching()
    problem = problem_of(model, cluster(2))
    measured, _ = run_onnx_alone(saved(model, tmp_path), problem, "cpu1", runs=3, warmup=0)
    assert (measured.name, len(measured.spans)) == ("cpu1", 1)
    assert measured.predicted_s == evaluate(problem, [1] * len(problem.graph)).value_s
    with pytest.raises(InvalidInput, match="device 'gpu' is not in the cluster; use one of cpu0, cpu1"):
        run_onnx_alone(tmp_path / "model.onnx", problem, "gpu")


def test_a_real_network_that_is_split(tmp_path: Path) -> None:
    """SqueezeNet of the onnx wheel, its branches on two workers, gives the unsplit network's output."""
    import onnx

    path = LIGHT / "light_squeezenet.onnx"
    problem = problem_of(onnx.load(path), cluster(2))
    place = [int("expand3x3" in v.name or k % 7 == 0) for k, v in enumerate(problem.graph.operators)]
    measured, _ = run_onnx_plan(path, problem, plan_of(problem, place), runs=2, warmup=0)
    assert 0 <= measured.max_relative_error <= 1e-5
    assert len(measured.spans) > 10


def test_runs_must_be_counted(tmp_path: Path) -> None:
    """No runs can't be measured."""
    model = branching(layers=1)
    problem = problem_of(model, cluster(1))
    with pytest.raises(InvalidInput, match="0 runs"):
        run_onnx_plan(saved(model, tmp_path), problem, plan_of(problem, [0] * 6), runs=0)


def test_random_numbers_give_other_outputs_and_that_is_said(tmp_path: Path) -> None:
    """A network that draws random numbers fails the check, with the output named, and runs without it."""
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["noise"], name="noise"),
        helper.make_node("Add", ["x", "noise"], ["y"], name="add"),
    ]
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [64]) for n in ("x", "y")]
    opset = [helper.make_opsetid("", 18)]
    model = helper.make_model(helper.make_graph(nodes, "g", info[:1], info[1:]), ir_version=9, opset_imports=opset)
    problem = problem_of(model, cluster(1))
    path = saved(model, tmp_path)
    with pytest.raises(ExecutionError, match=r"'y' differs from .*; operator 'noise' on 'cpu0' is the first whose"):
        run_onnx_plan(path, problem, plan_of(problem, [0, 0]), runs=1)
    assert run_onnx_plan(path, problem, plan_of(problem, [0, 0]), runs=1, check=False)[1]["y"].shape == (64,)


def test_what_is_handed_over_is_compared_too(tmp_path: Path) -> None:
    """Random numbers that the output does not show are found where they go from device to device."""
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["noise"], name="noise"),
        helper.make_node("Softmax", ["noise"], ["y"], name="softmax"),
    ]
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [5, 1]) for n in ("x", "y")]
    opset = [helper.make_opsetid("", 18)]
    model = helper.make_model(helper.make_graph(nodes, "g", info[:1], info[1:]), ir_version=9, opset_imports=opset)
    path, problem = saved(model, tmp_path), problem_of(model, cluster(2))
    measured, outputs = run_onnx_plan(path, problem, plan_of(problem, [0, 0]), runs=1)
    assert measured.max_relative_error == 0 and outputs["y"].tolist() == [[1.0]] * 5
    with pytest.raises(ExecutionError, match=r"'noise' differs from .* operator 'noise' on 'cpu0' is the first"):
        run_onnx_plan(path, problem, plan_of(problem, [0, 1]), runs=1)
