"""Run a plan of an ONNX model for measuring: warm up, time, and compare with the unsplit model."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from placewright.capture.onnx_file import load_model
from placewright.errors import ExecutionError, InvalidInput
from placewright.evaluate import evaluate
from placewright.execute.onnx.runner import OnnxRunner
from placewright.execute.onnx.split import Value
from placewright.execute.onnx.worker import session_options
from placewright.measurement import Measurement
from placewright.plan import Plan
from placewright.problem import Problem

__all__ = ["TOLERANCE", "compare_outputs", "random_inputs", "run_onnx_alone", "run_onnx_plan", "run_unsplit"]

TOLERANCE = 1e-5
"""Largest difference of an output from the unsplit model's, relative to that output's largest magnitude."""

Arrays = dict[str, npt.NDArray[Any]]


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
            from placewright.execute.onnx.first_difference import first_onnx_difference

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


def random_inputs(values: tuple[Value, ...], seed: int = 0) -> Arrays:
    """Make an input for each value: standard normal for floating-point types, else 0 and 1, which any table holds.

    Parameters
    ----------
    values : tuple of Value
    seed : int
    """
    import onnx

    rng = np.random.default_rng(seed)
    made: Arrays = {}
    for v in values:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(v.element_type)
        drawn = rng.standard_normal(v.shape) if _floating(dtype) else rng.integers(0, 2, v.shape)
        made[v.name] = np.asarray(drawn).astype(dtype)
    return made


def run_unsplit(model_path: str | Path, inputs: Mapping[str, npt.NDArray[Any]], also: tuple[str, ...] = ()) -> Arrays:
    """Run the whole model in one session of this process.

    Parameters
    ----------
    model_path : str or Path
    inputs : mapping of input name to array
    also : tuple of str
        Values inside the network that are returned beside its outputs.

    Raises
    ------
    ExecutionError
        If ONNX Runtime can't run the model.
    """
    import onnxruntime

    model, _ = load_model(model_path)  # refuses external data outside the model's folder
    present = {o.name for o in model.graph.output}
    for name in also:
        if name not in present:
            model.graph.output.add(name=name)
    options = session_options(1, str(Path(model_path).resolve().parent))
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        names = [o.name for o in session.get_outputs()]
        wanted = {i.name for i in session.get_inputs()}
        made = session.run(names, {k: v for k, v in inputs.items() if k in wanted})
    except Exception as error:
        line = " ".join(str(error).split())
        raise ExecutionError(f"ONNX Runtime can't run the unsplit model {Path(model_path).name!r}: {line}") from error
    return dict(zip(names, made, strict=True))


def compare_outputs(made: Mapping[str, npt.NDArray[Any]], wanted: Mapping[str, npt.NDArray[Any]]) -> float:
    """Largest difference relative to the largest magnitude of the same tensor, over all tensors.

    Raises
    ------
    ExecutionError
        If it is above 1e-5, naming the tensor; if shapes or the places of NaN and infinity differ; if a
        tensor holds nothing but NaN and infinity, so that there is nothing to compare.

    Examples
    --------
    >>> compare_outputs({"y": np.array([1000.0, 2.0])}, {"y": np.array([1000.0, 2.0078125])})  # 2**-7 / 1000
    7.8125e-06
    """
    worst = 0.0
    for name, reference in wanted.items():
        a, b = np.asarray(made[name]), np.asarray(reference)
        if a.shape != b.shape:
            raise ExecutionError(f"tensor {name!r} has the shape {list(a.shape)}, the unsplit model's {list(b.shape)}")
        if a.size == 0:
            continue
        a, b = a.astype(np.float64), b.astype(np.float64)
        finite = np.isfinite(b)
        if not finite.any():
            raise ExecutionError(
                f"tensor {name!r} of the unsplit model is NaN or infinite throughout, so a comparison shows nothing; "
                "give inputs that the model was made for, or run without the check"
            )
        if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(a[finite]).all():
            raise ExecutionError(
                f"tensor {name!r} has NaN or infinity where the unsplit model's has not, or other ones"
            )
        scale = np.abs(b[finite]).max()
        difference = np.abs(a[finite] - b[finite]).max()
        error = float(difference / scale) if scale > 0 else float(difference)
        if error > TOLERANCE:
            raise ExecutionError(
                f"tensor {name!r} differs from the unsplit model's by {error:.2g} of its largest magnitude, "
                f"more than {TOLERANCE:g}; the plan's run is wrong, please report it with the model"
            )
        worst = max(worst, error)
    return worst


def _floating(dtype: np.dtype[Any]) -> bool:
    return np.issubdtype(dtype, np.floating) or dtype.name.startswith(("bfloat", "float"))
