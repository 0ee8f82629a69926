"""What each process of a distributed run does: load its part of the plan, run it with the others, report."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placewright.errors import ExecutionError, InvalidInput, MissingExtra
from placewright.execute.dispatch import find_model, load_torch
from placewright.host import available_cores, confine
from placewright.io import read_plan
from placewright.measurement import Measurement, Span
from placewright.plan import Plan
from placewright.problem import Problem

if TYPE_CHECKING:
    from placewright.execute.rank_run import Outcome, RankRun

__all__ = ["BAD_INPUT", "RANDOM", "measurement_of", "measurement_text", "run_rank"]

RANDOM = "random"
"""In place of a folder of weights: values drawn from each weight's name, the same on every rank."""

BAD_INPUT = "bad input: "
"""What a rank says before what it can't use, so that whoever started it knows that nothing has failed."""

WARM_UP = 2
"""Runs that are not counted."""


def run_rank(
    plan_path: Path, *, model: str | None = None, weights: str | None = None, runs: int = 20, timeout_s: float = 60.0
) -> Measurement | None:
    """Run this process's part of a plan; the processes were started by ``torchrun``, one for each device in use.

    Rank k has the k-th device that the plan uses. Every rank captures the network, keeps the weights that its own
    operators read, and runs these in the planned order; a tensor is sent, without waiting, as soon as it is there.

    Parameters
    ----------
    plan_path : Path
    model : str, optional
        ``py:package.module:function`` or a ``.pt2`` file; by default the file beside the plan.
    weights : str, optional
        For a network that is built on meta: a ``.safetensors`` file, a folder of shards, or ``random``. Each rank reads
        only what its operators need.
    runs : int
        Counted runs.
    timeout_s : float
        After which a rank that waits for another gives up.

    Returns
    -------
    Measurement or None
        On rank 0. The largest relative error is NaN where the unsplit network can't be run for want of weights.

    Raises
    ------
    InvalidInput
        If the number of processes is not that of devices in use, or the network is not the planned one.
    ExecutionError
        If an operator fails, or another rank is lost.
    """
    file = read_plan(plan_path)
    problem, plan = file.problem, file.plan
    used = plan.devices_used
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if world != len(used):
        names = ", ".join(problem.cluster.devices[i].name for i in used)
        raise InvalidInput(
            f"the plan uses {len(used)} devices ({names}) and {world} processes were started; start one for each: "
            f"torchrun --nproc-per-node {len(used)}"
        )
    device = problem.cluster.devices[used[rank]]
    confine(device)
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        raise MissingExtra("torch", "torch", "running a PyTorch network") from None
    torch.set_num_threads(device.threads or len(device.cores) or max(1, len(available_cores()) // world))
    torch.manual_seed(0)
    try:
        dist.init_process_group("gloo", timeout=timedelta(seconds=timeout_s))
        location = model if model is not None else str(find_model(problem, plan_path.parent))
        network = _Network(problem, plan, location, weights)
        with torch.no_grad():
            mine = network.rank(used, rank)
            return _measured(mine, network, plan, rank, runs)
    except RuntimeError as error:
        if isinstance(error, ExecutionError):
            raise
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ExecutionError(f"rank {rank} ({device.name!r}) lost another rank or ran out of memory: {first}") from None
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


class _Network:
    """The network on every rank: its program, its inputs, and its weights as far as they are asked for."""

    def __init__(self, problem: Problem, plan: Plan, location: str, weights: str | None) -> None:
        import torch
        from torch.export import ExportedProgram

        from placewright.capture.torch_export import export_module
        from placewright.capture.torch_program import take_apart
        from placewright.execute.rank_weights import RankWeights, random_inputs, shards_of
        from placewright.execute.torch_local import flat_inputs, places_of

        self.problem, self.plan = problem, plan
        self.model, args, kwargs = load_torch(problem, location)
        self.args, self.kwargs = random_inputs((args, kwargs))
        program = self.model
        if not isinstance(program, ExportedProgram):
            on_meta = any(t.is_meta for t in (*self.model.parameters(), *self.model.buffers()))
            program = export_module(self.model, *((args, kwargs) if on_meta else (self.args, self.kwargs)))
        parts = take_apart(program, fold=any(v.folded for v in problem.graph.operators))
        shards = {} if weights is None or weights == RANDOM else shards_of(Path(weights))
        self.parts = replace(parts, weights=RankWeights(parts.weights, shards, drawn=weights == RANDOM))
        self.whole = not any(w.tensor.is_meta and w.tensor.numel() for w in parts.weights.values())
        self.inputs = dict(zip(parts.inputs, flat_inputs(program, self.args, self.kwargs), strict=True))
        self.places = places_of(parts, problem, plan)
        self.place = torch.device("cpu")

    def rank(self, used: Sequence[int], rank: int) -> RankRun:
        """Make what a rank runs."""
        from placewright.execute.rank_run import RankRun
        from placewright.execute.rank_segments import segments_of
        from placewright.execute.torch_run import held_by

        own = used[rank]
        segments = segments_of(self.parts, self.places, self.problem, self.plan)
        held = held_by(self.parts, self.places, own, self.place, returned=rank == 0)
        device = self.problem.cluster.devices[own]
        rank_of = {i: k for k, i in enumerate(used)}
        return RankRun(
            self.parts, segments, rank_of, own, device.name, held, self.inputs, self.place, pace=device.cpu_share
        )

    def error(self, outputs: dict[int, Any]) -> float:
        """Largest relative difference from the unsplit network; NaN where that can't be run."""
        from placewright.execute.torch_local import relative_error, unsplit_outputs

        if not self.whole:
            return float("nan")
        split = [outputs[k] for k in range(len(self.parts.outputs))]
        return relative_error(split, unsplit_outputs(self.model, self.args, self.kwargs))


def _measured(mine: RankRun, network: _Network, plan: Plan, rank: int, runs: int) -> Measurement | None:
    """Run, first for the outputs, then to warm up, then counted; gather what all ranks saw."""
    import torch.distributed as dist

    dist.barrier()
    first = mine.run()
    world = dist.get_world_size()
    gathered: list[Any] = [None] * world
    dist.gather_object(first.outputs, gathered if rank == 0 else None)
    error = network.error({k: v for row in gathered for k, v in row.items()}) if rank == 0 else 0.0
    counted: list[Outcome] = []
    for k in range(WARM_UP + runs):
        dist.barrier()
        outcome = mine.run()
        if k >= WARM_UP:
            counted.append(replace(outcome, outputs={}))
    dist.gather_object((socket.gethostname(), counted), gathered if rank == 0 else None)
    dist.barrier()  # nobody closes a connection that another one still reads from
    if rank:
        return None
    one_host = len({host for host, _ in gathered}) == 1
    rows = list(zip(*(outcomes for _, outcomes in gathered), strict=True))
    seconds = [_seconds(row, one_host) for row in rows]
    middle = sorted(range(runs), key=seconds.__getitem__)[(runs - 1) // 2]
    begun = min(o.began_s for o in rows[middle])
    spans = tuple(
        Span(s.device, s.name, s.kind, s.start_s + shift, s.finish_s + shift)
        for o in rows[middle]
        for shift in [o.began_s - begun if one_host else 0.0]
        for s in o.spans
    )
    return Measurement("plan", tuple(seconds), plan.value_s, spans, error)


def _seconds(outcomes: Sequence[Outcome], one_host: bool) -> float:
    """From the first rank's start to the last one's end; on several hosts, whose clocks differ, the longest rank's."""
    if one_host:
        return max(o.ended_s for o in outcomes) - min(o.began_s for o in outcomes)
    return max(o.ended_s - o.began_s for o in outcomes)


def measurement_text(measured: Measurement) -> str:
    """Write a measurement for the process that started the ranks."""
    return json.dumps(asdict(measured))


def measurement_of(text: str) -> Measurement:
    """Read what :func:`measurement_text` wrote."""
    content = json.loads(text)
    spans = tuple(Span(**span) for span in content.pop("spans"))
    return Measurement(**{**content, "runs_s": tuple(content["runs_s"]), "spans": spans})
