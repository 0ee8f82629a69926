"""Run a plan by the engine of its source: ONNX Runtime in worker processes, or torch in this one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from placewright.errors import ExecutionError, InvalidInput
from placewright.measurement import Measurement
from placewright.plan import Plan
from placewright.problem import Problem

__all__ = ["TOLERANCE", "check_hash", "check_single", "check_timeout", "find_model", "load_torch", "run_plan"]

TOLERANCE = 1e-5
"""Largest difference of an output from the unsplit network's, relative to that output's largest magnitude."""

LONGEST_S = 86_400.0
"""Longest that a run may be given."""


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
        if weights is not None:
            raise InvalidInput("--weights is for --processes; leave it out, or add that")
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


def check_timeout(timeout_s: float) -> None:
    """Refuse a limit for a run within which nothing can run, or that is none.

    Raises
    ------
    InvalidInput
        If it is not above 0, or longer than a day.
    """
    if not 0 < timeout_s <= LONGEST_S:
        raise InvalidInput(f"--timeout {timeout_s:g} s is not above 0 and at most a day; write for example '60s'")


def find_model(problem: Problem, folder: Path) -> Path:
    """Return the network's file at or below ``folder``; a path in a plan file is never followed out of it."""
    source = problem.graph.source
    if source is not None and source.format == "py":
        raise InvalidInput(
            f"the network is made by the function {source.location!r}, which is not called unasked; "
            f"give --model py:{source.location} to call it"
        )
    if source is None or source.format not in ("onnx", "pt2"):
        raise InvalidInput("the plan names no network to run; give it with --model PATH")
    root = folder.resolve()
    for candidate in (root / source.location, root / Path(source.location).name):
        try:
            real = candidate.resolve()
            if real.is_relative_to(root) and real.is_file():
                return real
        except (OSError, ValueError, RuntimeError):  # a name too long, with a NUL, or a circle of links
            continue
    raise InvalidInput(
        f"the network {source.location!r} is not in the plan's folder {str(folder)!r}; give it with --model PATH"
    )


def check_single(plan: Plan) -> None:
    """Refuse a plan in which something runs several times side by side.

    Raises
    ------
    InvalidInput
    """
    if len(plan.copies) > 1:
        raise InvalidInput(
            f"the plan has {len(plan.copies)} copies of the network side by side, which one sample cannot show; run "
            "many with --processes --micro-batches N, or plan for the makespan"
        )
    if plan.replicas:
        raise InvalidInput(
            "the plan has stages on several devices at once, which one sample can't show; run many with --processes "
            "--micro-batches N, or plan without --replicate"
        )


def check_hash(problem: Problem, path: Path) -> None:
    """Refuse another file than the one that was planned.

    Raises
    ------
    InvalidInput
        If it is absent, or has another hash.
    """
    source = problem.graph.source
    if not path.is_file():
        raise InvalidInput(f"model {str(path)!r} is not a file; correct --model")
    if source is None or not source.sha256:
        return
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != source.sha256:
        raise InvalidInput(
            f"model {str(path)!r} has the hash {found[:12]}, and the plan was made for {source.sha256[:12]}; plan again"
        )


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


def load_torch(problem: Problem, location: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return a module or program with real weights and its inputs: the function's own, or random ones for a file."""
    if location.startswith("py:"):
        from placewright.capture.torch_spec import load_py

        return load_py(location.removeprefix("py:"))
    path = Path(location)
    check_hash(problem, path)
    import torch
    from torch.utils import _pytree as pytree

    from placewright.capture.torch_pt2 import read_pt2

    program = read_pt2(path, weights=True)
    named = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    torch.manual_seed(0)
    flat = []
    for name in program.graph_signature.user_inputs:
        value = named[str(name)].meta["val"]
        if not isinstance(value, torch.Tensor):
            flat.append(value)
            continue
        shape = [int(extent) for extent in value.shape]
        floating = value.dtype.is_floating_point
        # Whole numbers are indices as a rule: 0 and 1 lie in every table.
        flat.append(torch.randn(shape).to(value.dtype) if floating else torch.randint(0, 2, shape).to(value.dtype))
    args, kwargs = pytree.tree_unflatten(flat, program.call_spec.in_spec)
    return program, tuple(args), dict(kwargs)
