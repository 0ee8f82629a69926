"""What a plan makes is compared with what the unsplit model makes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from placewright.errors import ExecutionError
from placewright.execute.onnx.split import Value
from placewright.execute.onnx.unsplit import compare_outputs, random_inputs


def test_random_inputs_fit_their_types() -> None:
    """Floating-point inputs are normal, whole numbers and flags are 0 and 1, and a seed gives the same again."""
    types = (TensorProto.FLOAT, TensorProto.BFLOAT16, TensorProto.INT64, TensorProto.BOOL)
    values = tuple(Value(f"v{t}", t, (50,), 0) for t in types)
    real, brain, whole, flag = random_inputs(values).values()
    assert real.dtype == np.float32
    assert brain.dtype.name == "bfloat16"
    assert len(np.unique(real)) == 50 and len(np.unique(brain)) > 20
    assert set(whole.tolist()) == {0, 1} and set(flag.tolist()) == {False, True}
    assert random_inputs(values)["v1"].tolist() == real.tolist() != random_inputs(values, seed=1)["v1"].tolist()


def test_errors_are_relative_to_the_outputs_magnitude() -> None:
    """0.005 of 1000 is 5e-6 and passes; 0.02 of 1000 is 2e-5 and does not; outputs of 0 are compared as they are."""
    wanted = {"y": np.array([1000.0, -1.0])}
    assert compare_outputs({"y": np.array([1000.0, -1.005])}, wanted) == pytest.approx(5e-6)
    with pytest.raises(ExecutionError, match=r"tensor 'y' differs .* by 2e-05"):
        compare_outputs({"y": np.array([1000.02, -1.0])}, wanted)
    assert compare_outputs({"y": np.array([1e-6])}, {"y": np.zeros(1)}) == 1e-6


def test_outputs_that_are_no_numbers() -> None:
    """NaN in the same places is equal, elsewhere an error; an output of nothing else can't be compared."""
    nan, inf = np.nan, np.inf
    assert compare_outputs({"y": np.array([nan, inf, 1.0])}, {"y": np.array([nan, inf, 1.0])}) == 0
    for made in ([nan, 2.0, 1.0], [nan, -inf, 1.0], [nan, inf, nan]):
        with pytest.raises(ExecutionError, match="tensor 'y' has NaN or infinity"):
            compare_outputs({"y": np.array(made)}, {"y": np.array([nan, inf, 1.0])})
    with pytest.raises(ExecutionError, match="tensor 'y' of the unsplit model is NaN or infinite throughout"):
        compare_outputs({"y": np.array([nan])}, {"y": np.array([nan])})
    with pytest.raises(ExecutionError, match="tensor 'y' has the shape"):
        compare_outputs({"y": np.zeros((1, 2))}, {"y": np.zeros(2)})
