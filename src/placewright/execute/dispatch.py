"""Run a plan by the engine of its source: ONNX Runtime in worker processes, or torch in this one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from placewright.errors import ExecutionError, InvalidInput
from placewright.execute.checks import TOLERANCE, check_single, check_timeout
from placewright.execute.network import check_hash, find_model, load_torch
from placewright.measurement import Measurement
from placewright.plan import Plan
from placewright.problem import Problem

__all__ = ["run_plan"]


def run_plan(
    problem: Problem,
    plan: Plan,
    *,
    folder: Path,
    model: str | None = None,
    runs: int = 20,
    alone: bool = True,
    timeout_s: float = 60.0,
    processes: Path | None = None,
    weights: str | None = None,
    replanning: bool = False,
    on_progress: Callable[[str], None] | None = None,
) -> list[Measurement]:
    """Run a plan for real, check its outputs, and measure it.

    Parameters
    ----------
    problem, plan
    folder : Path
        Where the plan file lies: without ``model``, the network is looked for there and below, nowhere else.
    model : str, optional
        Path of the network, or ``py:package.module:function``, which runs that function.
    runs : int
        Counted runs.
    alone : bool
        Also run the network on each device alone, as far as it fits (ONNX only).
    timeout_s : float
        Of one run.
    processes : Path, optional
        The plan's file: a PyTorch network then runs in a process for each device, not in this one.
    weights : str, optional
        With ``processes``: see :func:`placewright.execute.ranks.main.run_rank`.
    replanning : bool
        Whether a device that is lost is planned around: one process loses all of them at once, and is refused.

    Returns
    -------
    list of Measurement
        The plan's first.

    Raises
    ------
    ExecutionError
        If a worker fails, or outputs differ from the unsplit network's by more than 1e-5 relative.
    InvalidInput
        If the network is not found, or not the one that was planned.
    """
    check_timeout(timeout_s)
    check_single(plan)
    tell = on_progress or (lambda line: None)
    location = model if model is not None else str(find_model(problem, folder))
    if location.startswith("py:") or location.endswith(".pt2"):
        if processes is not None:
            from placewright.execute.ranks.launch import launch
            from placewright.execute.ranks.network import RANDOM

            if weights is not None and weights != RANDOM and not (weights and Path(weights).exists()):
                raise InvalidInput(f"--weights {weights!r} is no file and no folder; correct it, or write {RANDOM!r}")
            tell(f"running the plan {runs} times in {len(plan.devices_used)} processes")
            names = [problem.cluster.devices[i].name for i in plan.devices_used]
            return [launch(processes, plan, location, weights=weights, runs=runs, timeout_s=timeout_s, devices=names)]
        for name, given in (("--weights", weights is not None), ("--replan", replanning)):
            if given:
                raise InvalidInput(f"{name} is for --processes; leave it out, or add that")
        return [_torch(problem, plan, location, runs, tell)]
    if processes is not None or weights is not None:
        raise InvalidInput("an ONNX network runs in a process for each device anyway; leave --processes, --weights out")
    check_hash(problem, Path(location))
    from placewright.execute.onnx.run import run_onnx_alone, run_onnx_plan

    tell(f"running the plan {runs} times")
    measured = [run_onnx_plan(location, problem, plan, runs=runs, timeout_s=timeout_s)[0]]
    for i, device in enumerate(problem.cluster.devices):
        if alone and problem.allowed[:, i].all() and len(plan.devices_used) > 1:
            tell(f"running {device.name} alone {runs} times")
            measured.append(run_onnx_alone(location, problem, i, runs=runs, timeout_s=timeout_s)[0])
    return measured


def _torch(problem: Problem, plan: Plan, location: str, runs: int, tell: Callable[[str], None]) -> Measurement:
    """Run in one process: equality is checked; the wall time is that of the parts one after the other."""
    from placewright.execute.torch.local import run_torch_local

    program, args, kwargs = load_torch(problem, location)
    tell(f"running the plan {runs} times in one process")
    outcome = run_torch_local(program, args, problem, plan, kwargs=kwargs, runs=runs)
    if not outcome.max_relative_error <= TOLERANCE:
        from placewright.execute.torch.first_difference import difference_in_process, told

        found = difference_in_process(program, args, kwargs, problem, plan, TOLERANCE)
        raise ExecutionError(told(found, outcome.max_relative_error))
    return Measurement("plan", outcome.runs_s, plan.value_s, (), outcome.max_relative_error)
