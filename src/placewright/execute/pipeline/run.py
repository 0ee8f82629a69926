"""Run many samples through a plan: a process for each device of this machine."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from placewright.errors import ExecutionError, InvalidInput
from placewright.execute.checks import TOLERANCE, check_timeout
from placewright.execute.network import find_model
from placewright.execute.pipeline.options import Many
from placewright.execute.pipeline.outcome import ManySamples, many_of_text
from placewright.execute.ranks.launch import launched
from placewright.execute.ranks.network import RANDOM
from placewright.plan import Plan
from placewright.problem import Problem

__all__ = ["run_many"]


def run_many(
    problem: Problem,
    plan: Plan,
    plan_path: Path,
    many: Many,
    *,
    model: str | None = None,
    weights: str | None = None,
    runs: int = 3,
    timeout_s: float = 60.0,
    on_progress: Callable[[str], None] | None = None,
) -> ManySamples:
    """Run micro-batches through a plan, forward or to train, and measure the time per sample.

    Parameters
    ----------
    problem, plan
    plan_path : Path
        The plan's file.
    many : Many
    model, weights, timeout_s
        See :func:`placewright.execute.run_plan`.
    runs : int
        Counted runs of all micro-batches; when training, steps.

    Raises
    ------
    ExecutionError
        If a rank fails, or outputs or gradients differ from the unsplit network's by more than 1e-5 relative.
    InvalidInput
        If the network is no PyTorch network, or can't be run so.
    """
    check_timeout(timeout_s)
    location = model if model is not None else str(find_model(problem, plan_path.parent))
    if not (location.startswith("py:") or location.endswith(".pt2")):
        raise InvalidInput("--micro-batches is for PyTorch networks; leave it out, or plan a .pt2 file or py: function")
    if weights is not None and weights != RANDOM and not (weights and Path(weights).exists()):
        raise InvalidInput(f"--weights {weights!r} is no file and no folder; correct it, or write {RANDOM!r}")
    names = [problem.cluster.devices[i].name for i in plan.devices_used]
    if on_progress is not None:
        on_progress(f"running {many.samples} samples {runs} times in {len(names)} processes")
    arguments = ["--model", location, "--runs", str(runs), *many.arguments()]
    arguments += ["--weights", weights] if weights is not None else []
    outcome = many_of_text(
        launched(plan_path, arguments, runs=(runs + 2) * many.samples, timeout_s=timeout_s, devices=names)
    )
    trained = outcome.trained
    _check("an output", outcome.max_relative_error)
    _check("a gradient", trained.gradient_error if trained is not None else float("nan"))
    return outcome


def _check(what: str, error: float) -> None:
    if not math.isnan(error) and not error <= TOLERANCE:
        raise ExecutionError(
            f"{what} differs from the unsplit network's by {error:.2g} of its largest magnitude, more than "
            f"{TOLERANCE:g}; does the network draw random numbers (dropout), or depend on other samples?"
        )
