"""Offload problems whose optimum is known by hand: chains, and operators that nothing joins."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from placewright.cluster import Cluster, Device, Link
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.objective import Offload
from placewright.problem import Problem


def line(n: int, k: int, held: int, *, p: float, a: float, c: float, joined: bool = True) -> Problem:
    """n operators of p seconds on the CPU and a on each of k accelerators that hold so many; a tensor takes c."""
    graph = OperatorGraph(
        [Operator(f"v{v}", weight_bytes=1) for v in range(n)],
        [Tensor(f"t{v}", v, (v + 1,), 8) for v in range(n - 1)] if joined else [],
    )
    devices = [Device("c", "cpu"), *(Device(f"g{i}", memory_bytes=held) for i in range(k))]
    cluster = Cluster(devices, [Link(c, float("inf"), link_class="same-host")])
    return Problem(graph, cluster, np.array([[p] + [a] * k] * n), Offload())


def chain_value(n: int, k: int, held: int, p: float, a: float, c: float) -> float:
    """Optimum of a chain, where a full accelerator saves more than the 2 c that its call costs: held (p - a) > 2 c.

    Where all operators fit on accelerators, as few as hold them follow each other and 2 c pass between two of them.
    Else one call of each full accelerator: two calls cost 2 c between them, whether CPUs are there or not. The first
    operator and the last are in calls if there are two accelerators, which saves c at either end.
    """
    if k * held >= n:
        return n * a + 2 * c * (-(-n // held) - 1)
    return k * held * a + (n - k * held) * p + (c if k == 1 else (2 * k - 2) * c)


def forms() -> Iterator[tuple[str, Problem, float]]:
    """Name, problem and optimum."""
    for n, k, held in ((5, 1, 2), (6, 1, 6), (5, 2, 3), (6, 2, 2), (6, 3, 2), (6, 2, 3)):
        for c in (0.0, 0.25):
            name = f"chain of {n} on {k} of {held}, c = {c}"
            yield name, line(n, k, held, p=4.0, a=1.0, c=c), chain_value(n, k, held, 4.0, 1.0, c)
    # Loose operators: all on the pool take p; on accelerators alone, one after the other, ceil(n / k) a.
    for n, k, a in ((5, 1, 1.0), (6, 2, 1.0), (3, 3, 1.0)):
        yield f"{n} loose on {k}", line(n, k, n, p=4.0, a=a, c=9.0, joined=False), min(4.0, -(-n // k) * a)
