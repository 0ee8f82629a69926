"""By how much the clocks of ranks differ that run on different hosts."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
import torch.distributed as dist

from placewright.host import running_kernel

__all__ = ["Clocks", "compare_clocks"]

ROUNDS = 20
"""Questions to each rank; the one that was answered fastest counts."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """By how much each rank's ``time.monotonic`` is ahead of rank 0's.

    Attributes
    ----------
    ahead_s : tuple of float
    error_s : float
        No figure is further off: the answer came within the round trip, and is taken to be from the middle of it.
    """

    ahead_s: tuple[float, ...]
    error_s: float


def compare_clocks() -> Clocks:
    """Compare this rank's clock with rank 0's; every rank must call it, and all get the same.

    On one host nothing is asked. Else rank 0 asks each in turn for the time (Cristian, *Probabilistic clock
    synchronization*, 1989): an answer t between t0 and t1 puts that clock t - (t0 + t1) / 2 ahead, give or take half of
    t1 - t0.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    kernels: list[object] = [None] * world
    dist.all_gather_object(kernels, running_kernel())
    ahead, error = [0.0] * world, 0.0
    for r in (r for r in range(1, world) if kernels[r] != kernels[0]):
        if rank == 0:
            half, ahead[r] = min(_asked(r) for _ in range(ROUNDS))
            error = max(error, half)
        elif rank == r:
            for _ in range(ROUNDS):
                _answer()
    shared: list[object] = [(tuple(ahead), error)]
    dist.broadcast_object_list(shared, src=0)
    (found,) = shared
    assert isinstance(found, tuple)
    return Clocks(*found)


def _asked(rank: int) -> tuple[float, float]:
    """Half of a round trip, and how far the answer is ahead of its middle."""
    told = torch.zeros(1, dtype=torch.float64)
    begun = time.monotonic()
    dist.send(told, rank)
    dist.recv(told, rank)
    ended = time.monotonic()
    return (ended - begun) / 2, float(told) - (begun + ended) / 2


def _answer() -> None:
    told = torch.zeros(1, dtype=torch.float64)
    dist.recv(told, 0)
    told[0] = time.monotonic()
    dist.send(told, 0)
