"""What states of schedules know of the resources that transfers occupy: when each is free again.

With R resources a forward state has R + L D further numbers: when each resource is free; and of each live tensor and
device the device that the tensor is to be sent from, plus one (0: it is there, or takes no time). A transfer joins the
queues of its resources with its first reader, as in :func:`placewright._kernel.schedule.decode` by readers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import inner

__all__ = ["enqueue", "pass_on"]

Ints = npt.NDArray[np.int32]


@inner
def enqueue(g: Any, v: int, i: int, old: Ints, slot: Ints, LA: int, new: Ints, at: int) -> int:
    """Put what v reads from elsewhere behind what its resources have; return when all of it is there.

    ``new[at:at + g.queues]`` is left holding when each resource is free. ``old`` has 1 + D + 2 LA D numbers before.
    """
    D, R = g.processing.shape[1], g.queues
    free, arrivals = 1 + D + 2 * LA * D, 1 + D + LA * D
    for m in range(R):
        new[at + m] = old[free + m]
    there = 0
    for k in range(g.read_ptr[v], g.read_ptr[v + 1]):
        u = g.read[k]
        source = old[free + R + slot[u] * D + i] - 1
        if source < 0:
            continue
        length = g.transfer[u, source, i]
        end = old[arrivals + slot[u] * D + i]
        for x in range(4):
            m = g.resources[source, i, x]
            if m >= 0:
                end = max(end, new[at + m] + length)
        for x in range(4):
            m = g.resources[source, i, x]
            if m >= 0:
                new[at + m] = end
        there = max(there, end)
    return there


@inner
def pass_on(g: Any, v: int, i: int, old: Ints, slot: Ints, LA: int, new: Ints, flat: Ints, live0: int, L: int) -> None:
    """Say of each live tensor where it comes from, after v on i made some and read others."""
    D, R = g.processing.shape[1], g.queues
    before, after = 1 + D + 2 * LA * D + R, 1 + D + 2 * L * D
    for m in range(R):
        flat[1 + D + L * D + m] = new[after + m]
    for k in range(L):
        u = g.live[live0 + k]
        reads = False
        for z in range(g.read_ptr[v], g.read_ptr[v + 1]):
            reads = reads or g.read[z] == u
        for j in range(D):
            if g.producer[u] == v:
                source = i + 1 if j != i and g.transfer[u, i, j] > 0 else 0
            elif reads and j == i:
                source = 0
            else:
                source = old[before + slot[u] * D + j]
            new[after + R + k * D + j] = source
