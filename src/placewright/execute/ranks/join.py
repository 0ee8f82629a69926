"""How a process takes its place among the ranks of a plan."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from placewright.errors import ExecutionError, InvalidInput, MissingExtra, PlacewrightError
from placewright.host import available_cores, confine, end_with_parent, keep_freed_memory
from placewright.plan import Plan
from placewright.problem import Problem

__all__ = ["joined"]


@contextmanager
def joined(problem: Problem, plan: Plan, timeout_s: float) -> Iterator[int]:
    """Confine this process to its device, and join the others that ``torchrun`` has started; gives its rank.

    Rank k has the k-th device that the plan uses. What is raised inside is told to the other ranks, and what torch's
    communication raises becomes the cause, in one line; see :mod:`placewright.execute.ranks.watch`.

    Parameters
    ----------
    problem, plan
    timeout_s : float
        After which a rank that waits for another gives up.

    Raises
    ------
    InvalidInput
        If the number of processes is not that of devices in use.
    ExecutionError
        If another rank is lost: a :class:`placewright.DeviceLost` where it is known which.
    """
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
    keep_freed_memory()
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        raise MissingExtra("torch", "torch", "running a PyTorch network") from None
    torch.set_num_threads(device.threads or len(device.cores) or max(1, len(available_cores()) // world))
    torch.manual_seed(0)
    from torch.distributed.rendezvous import rendezvous

    from placewright.execute.ranks.watch import Watch

    end_with_parent()
    limit = timedelta(seconds=timeout_s)
    try:
        store = next(rendezvous("env://", timeout=limit))[0]
    except RuntimeError as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ExecutionError(f"rank {rank} on {device.name!r} did not find rank 0's host: {first}") from None
    with Watch(store.clone(), rank, [problem.cluster.devices[i].name for i in used], timeout_s) as watch:
        try:
            dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=limit)
            yield rank
        except (RuntimeError, MemoryError, PlacewrightError) as error:
            raise watch.explained(error) from None
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()
