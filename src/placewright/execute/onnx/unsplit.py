"""The unsplit model's run, and the comparison of what a plan makes with what it makes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from placewright.capture.onnx_file import load_model
from placewright.errors import ExecutionError
from placewright.execute.checks import TOLERANCE
from placewright.execute.onnx.split import Value
from placewright.execute.onnx.worker import session_options

__all__ = ["Arrays", "compare_outputs", "random_inputs", "relative_difference", "run_unsplit"]

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]


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
        error = relative_difference(a, b)
        if error > TOLERANCE:
            raise ExecutionError(
                f"tensor {name!r} differs from the unsplit model's by {error:.2g} of its largest magnitude, "
                f"more than {TOLERANCE:g}; the plan's run is wrong, please report it with the model"
            )
        worst = max(worst, error)
    return worst


def relative_difference(made: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> float:
    """Largest difference relative to the largest magnitude; ``inf`` where shapes or non-finite places differ.

    Examples
    --------
    >>> relative_difference(np.array([4.0, 1.0]), np.array([4.0, 2.0]))
    0.25
    """
    if made.shape != wanted.shape:
        return math.inf
    a, b = made.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(a[finite]).all():
        return math.inf
    difference = float(np.abs(a[finite] - b[finite]).max(initial=0.0))
    scale = float(np.abs(b[finite]).max(initial=0.0))
    return difference / scale if scale > 0 else difference


def _floating(dtype: np.dtype[Any]) -> bool:
    return np.issubdtype(dtype, np.floating) or dtype.name.startswith(("bfloat", "float"))
