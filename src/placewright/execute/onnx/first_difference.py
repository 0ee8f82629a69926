"""Which operator of an ONNX network is the first whose result differs from the unsplit network's, and by how much.

It is looked for only after a tensor differed: the plan is run once more by its workers, with all that operators make
handed over, and compared with the unsplit network's, operator by operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from placewright.capture.onnx_nodes import node_order, writes
from placewright.errors import ExecutionError
from placewright.execute.onnx.runner import OnnxRunner
from placewright.execute.onnx.unsplit import relative_difference, run_unsplit
from placewright.plan import Plan
from placewright.problem import Problem

__all__ = ["first_onnx_difference"]


def first_onnx_difference(
    model_path: str | Path,
    problem: Problem,
    plan: Plan,
    inputs: Mapping[str, npt.NDArray[Any]],
    *,
    timeout_s: float,
    tolerance: float,
) -> str:
    """Say which operator is the first, in a topological order, whose result differs by more than a tolerance.

    Parameters
    ----------
    model_path, problem, plan
    inputs : mapping of input name to array
    timeout_s : float
        Of the run.
    tolerance : float
    """
    shapes = {name: tuple(np.shape(value)) for name, value in inputs.items()}
    try:
        with OnnxRunner(model_path, problem, plan, timeout_s=timeout_s, input_shapes=shapes, give_out=True) as runner:
            runner.run(inputs)
            split, made = runner.split, runner.handed_over()
        wanted = run_unsplit(model_path, inputs, also=tuple(made))
    except ExecutionError as error:  # a value that can't be given out, say
        return f"which operator is the first can't be said: {error}"
    owner = {k: (v, c.device) for c in split.calls for v in c.operators for k in split.nodes_of[v]}
    for k in (k for k in node_order(split.model) if k in owner):
        off = max(
            (relative_difference(made[n], wanted[n]) for n in writes(split.model.graph.node[k]) if n in made),
            default=0.0,
        )
        if off > tolerance:
            v, i = owner[k]
            operator, device = problem.graph.operators[v].name, problem.cluster.devices[i].name
            return f"operator {operator!r} on {device!r} is the first whose result differs, by {off:.2g}"
    return "no operator's result differs where all are given out: what ONNX Runtime fuses makes the difference"
