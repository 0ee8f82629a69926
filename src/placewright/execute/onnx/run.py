"""Run a plan of an ONNX model for measuring: warm up, time, and compare with the unsplit model."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from placewright.errors import ExecutionError, InvalidInput
from placewright.evaluate import evaluate
from placewright.execute.checks import TOLERANCE
from placewright.execute.onnx.first_difference import first_onnx_difference
from placewright.execute.onnx.runner import OnnxRunner
from placewright.execute.onnx.unsplit import Arrays, compare_outputs, random_inputs, run_unsplit
from placewright.measurement import Measurement
from placewright.plan import Plan
from placewright.problem import Problem

__all__ = ["run_onnx_alone", "run_onnx_plan"]


def run_onnx_plan(
    model_path: str | Path,
    problem: Problem,
    plan: Plan,
    *,
    runs: int = 20,
    warmup: int = 5,
    timeout_s: float = 60.0,
    check: bool = True,
    inputs: Mapping[str, npt.NDArray[Any]] | None = None,
    dim_overrides: Mapping[str, int] | None = None,
    name: str = "plan",
) -> tuple[Measurement, Arrays]:
    """Run a plan and measure it.

    Parameters
    ----------
    model_path : str or Path
        The model that the problem was captured from.
    problem : Problem
    plan : Plan
    runs, warmup : int
        Counted runs, and runs before them.
    timeout_s : float
        Of one run, in seconds.
    check : bool
        Compare the outputs, and all tensors that went from device to device, with those of the unsplit model.
    inputs : mapping of input name to array, optional
        Random ones with a fixed seed else.
    dim_overrides : mapping of str to int, optional
        Sizes of the inputs' open dimensions, as at capture; needed only without ``inputs``.
    name : str
        Of the measurement.

    Returns
    -------
    Measurement
        Wall time of each counted run, from the go signal to the finish of the last operator; spans of the run nearest
        to the median.
    dict of output name to array

    Raises
    ------
    ExecutionError
        If a worker fails, or a tensor differs by more than 1e-5 of its largest magnitude.
    """
    if runs < 1 or warmup < 0:
        raise InvalidInput(f"{runs} runs after {warmup} for warming up can't be measured; use at least 1 and 0")
    shapes = {k: tuple(np.shape(v)) for k, v in inputs.items()} if inputs is not None else None
    with OnnxRunner(
        model_path, problem, plan, timeout_s=timeout_s, input_shapes=shapes, dim_overrides=dim_overrides
    ) as runner:
        given = dict(inputs) if inputs is not None else random_inputs(runner.inputs)
        runner.run(given)  # the first run checks shapes and is no measure of anything
        for _ in range(warmup):
            runner.go()
        timed = []
        for _ in range(runs):
            seconds = runner.go()
            timed.append((seconds, runner.spans()))
        outputs, handed_over = runner.outputs(given), runner.handed_over()
    # A network may hide an error (random weights before a softmax); what went from device to device is compared too.
    error = 0.0
    if check:
        whole = run_unsplit(model_path, given, also=tuple(handed_over))
        try:
            error = compare_outputs({**handed_over, **outputs}, whole)
        except ExecutionError as wrong:
            first = first_onnx_difference(model_path, problem, plan, given, timeout_s=timeout_s, tolerance=TOLERANCE)
            raise ExecutionError(f"{wrong}; {first}") from None
    median = statistics.median(seconds for seconds, _ in timed)
    _, spans = min(timed, key=lambda run: abs(run[0] - median))
    measured = Measurement(name, tuple(seconds for seconds, _ in timed), plan.value_s, spans, error)
    return measured, outputs


def run_onnx_alone(
    model_path: str | Path,
    problem: Problem,
    device: int | str,
    *,
    runs: int = 20,
    warmup: int = 5,
    timeout_s: float = 60.0,
    check: bool = True,
    inputs: Mapping[str, npt.NDArray[Any]] | None = None,
    dim_overrides: Mapping[str, int] | None = None,
) -> tuple[Measurement, Arrays]:
    """Run the whole network on one device, by the same worker as a plan's, so that the two compare fairly.

    Parameters
    ----------
    device : int or str
        Index or name. The others as :func:`run_onnx_plan`.

    Raises
    ------
    ExecutionError
        As :func:`run_onnx_plan`.
    InvalidInput
        If there is no such device.
    """
    devices = problem.cluster.devices
    i = problem.cluster.index.get(device, -1) if isinstance(device, str) else device
    if not 0 <= i < len(devices):
        raise InvalidInput(f"device {device!r} is not in the cluster; use one of {', '.join(d.name for d in devices)}")
    alone = np.full(len(problem.graph), i, dtype=np.int32)
    judged = evaluate(problem, alone)
    plan = Plan(alone, judged.schedule, judged.value_s)
    return run_onnx_plan(
        model_path,
        problem,
        plan,
        runs=runs,
        warmup=warmup,
        timeout_s=timeout_s,
        check=check,
        inputs=inputs,
        dim_overrides=dim_overrides,
        name=devices[i].name,
    )
