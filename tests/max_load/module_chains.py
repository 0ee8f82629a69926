"""Random chains of modules: cut operators, and between them branches; with backward mates or without."""

from __future__ import annotations

import numpy as np

from placewright.cluster import Cluster, Device, Link
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.objective import MaxLoad
from placewright.problem import Problem


def module_chain(
    rng: np.random.Generator,
    objective: MaxLoad,
    *,
    most: int = 8,
    D: int = 3,
    backward: bool = False,
    memory: bool = False,
    unlike_links: bool = False,
    channels: bool = False,
    alike: bool = False,
    cpu: bool = False,
) -> Problem:
    """At most so many forward operators: cuts, with one to three branches of an operator, or an edge, between two.

    With ``backward`` each has a mate, and the tensors of the backward pass run the other way.
    """
    edges: list[tuple[int, int]] = []
    cut, n = 0, 1
    while n < most:
        width = min(int(rng.integers(0, 4)), most - n - 1)
        branches = list(range(n, n + width))
        follow = n + width
        edges += [(cut, b) for b in branches] + [(b, follow) for b in branches]
        if not branches or rng.random() < 0.3:
            edges.append((cut, follow))
        cut, n = follow, follow + 1
    size = 2 * n if backward else n
    operators = [Operator(f"v{v}", weight_bytes=int(rng.integers(0, 4)), backward=v >= n) for v in range(size)]
    readers: list[list[int]] = [[] for _ in range(size)]
    for a, b in edges:
        readers[a].append(b)
        if backward:
            readers[2 * n - 1 - b].append(2 * n - 1 - a)
    tensors = [
        Tensor(f"t{v}", v, tuple(sorted(set(row))), int(rng.integers(0, 6))) for v, row in enumerate(readers) if row
    ]
    classes = [(v, 2 * n - 1 - v) for v in range(n)] if backward else []
    held = sum(v.weight_bytes for v in operators)
    devices = [
        Device(
            f"d{i}",
            "cpu" if cpu and i == D - 1 else "gpu",
            memory_bytes=int(rng.integers(held // D, held + 1)) if memory and not alike else None,
            host="AB"[i % 2],
        )
        for i in range(D)
    ]
    if memory and alike:
        devices = [Device(d.name, d.kind, memory_bytes=held // D + 2, host=d.host) for d in devices]
    links = [Link(0.5, 2.0, link_class="same-host", channel="bus" if channels else "")]
    between = Link(1.0, 1.0, link_class="between-hosts", channel="nic" if channels else "")
    links.append(between if unlike_links else Link(0.5, 2.0, link_class="between-hosts"))
    times = rng.integers(1, 9, (size, 1 if alike else D)) * np.ones((1, D))
    return Problem(OperatorGraph(operators, tensors, classes), Cluster(devices, links), times, objective)
