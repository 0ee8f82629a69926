"""What each process of a distributed run does: load its part of the plan, run it with the others, report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placewright.errors import ExecutionError
from placewright.execute.checks import TOLERANCE
from placewright.execute.network import find_model
from placewright.execute.ranks.join import joined
from placewright.execute.ranks.network import RankNetwork
from placewright.io import read_plan
from placewright.measurement import Measurement, Span
from placewright.plan import Plan

if TYPE_CHECKING:
    from placewright.execute.ranks.clocks import Clocks
    from placewright.execute.ranks.run import Outcome, RankRun

__all__ = ["measurement_of", "measurement_text", "run_rank"]

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
    with joined(problem, plan, timeout_s) as rank:
        import torch

        location = model if model is not None else str(find_model(problem, plan_path.parent))
        network = RankNetwork(problem, plan, location, weights)
        with torch.no_grad():
            mine = network.rank(plan.devices_used, rank)
            return _measured(mine, network, plan, rank, runs)


def _measured(mine: RankRun, network: RankNetwork, plan: Plan, rank: int, runs: int) -> Measurement | None:
    """Run, first for the outputs, then to warm up, then counted; gather what all ranks saw."""
    import torch.distributed as dist

    from placewright.execute.ranks.clocks import compare_clocks
    from placewright.execute.ranks.doing import DOING
    from placewright.execute.ranks.spans import merged, seen

    DOING.now("rests")
    dist.barrier()
    first = mine.run()
    world = dist.get_world_size()
    gathered: list[Any] = [None] * world
    dist.gather_object(first.outputs, gathered if rank == 0 else None)
    error = network.error({k: v for row in gathered for k, v in row.items()}) if rank == 0 else 0.0
    _compare(network, rank, error)
    counted: list[Outcome] = []
    for k in range(WARM_UP + runs):
        dist.barrier()
        outcome = mine.run()
        if k >= WARM_UP:
            counted.append(replace(outcome, outputs={}))
    clocks = compare_clocks()
    dist.gather_object([(o.began_s, o.ended_s) for o in counted], gathered if rank == 0 else None)
    chosen: list[Any] = [None]
    seconds: list[float] = []
    if rank == 0:
        seconds = _seconds(gathered, clocks)
        chosen = [sorted(range(runs), key=seconds.__getitem__)[(runs - 1) // 2]]
    dist.broadcast_object_list(chosen, src=0)
    names = {i: d.name for i, d in enumerate(network.problem.cluster.devices)}
    own = seen(mine.segments, counted[chosen[0]], names, plan.devices_used[rank])
    dist.gather_object(own, gathered if rank == 0 else None)
    dist.barrier()  # nobody closes a connection that another one still reads from
    if rank:
        return None
    spans = merged(gathered, clocks.ahead_s, names)
    return Measurement("plan", tuple(seconds), plan.value_s, spans, error, clocks.error_s)


def _compare(network: RankNetwork, rank: int, error: float) -> None:
    """Refuse outputs that are not the unsplit network's; every rank must call it, and rank 0 knows the error."""
    import torch.distributed as dist

    wrong = [error > TOLERANCE]  # where there is nothing to compare with, the error is NaN
    dist.broadcast_object_list(wrong, src=0)
    if wrong[0]:
        from placewright.execute.torch.first_difference import difference_between_ranks, told

        found = difference_between_ranks(network, rank, TOLERANCE)
        if rank == 0:
            raise ExecutionError(told(found, error))
        dist.barrier()  # until rank 0 has said it


def _seconds(rows: Sequence[Sequence[tuple[float, float]]], clocks: Clocks) -> list[float]:
    """Of each run the time from the first rank's start to the last one's end."""
    made = []
    for run in zip(*rows, strict=True):
        ends = [(b - ahead, e - ahead) for (b, e), ahead in zip(run, clocks.ahead_s, strict=True)]
        made.append(max(e for _, e in ends) - min(b for b, _ in ends))
    return made


def measurement_text(measured: Measurement) -> str:
    """Write a measurement for the process that started the ranks."""
    return json.dumps(asdict(measured))


def measurement_of(text: str) -> Measurement:
    """Read what :func:`measurement_text` wrote."""
    content = json.loads(text)
    spans = tuple(Span(**{**span, "operators": tuple(span["operators"])}) for span in content.pop("spans"))
    return Measurement(**{**content, "runs_s": tuple(content["runs_s"]), "spans": spans})
