"""Random small problems for tests: graphs with several readers, unlike devices, cuts, pins, classes, memory."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from placewright.cluster import Cluster, Device, Link
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.objective import Makespan
from placewright.problem import Problem, Times

WEIGHT = 10**6
"""Weights are multiples of this and tensors far smaller, so that activations never decide whether a placement fits."""


@st.composite
def problems(
    draw: st.DrawFn, most_operators: int = 8, most_devices: int = 3, contention: str | None = None, memory: bool = True
) -> Problem:
    """Problems of up to 8 operators and 3 devices with times that are small multiples of 1/8 (exact in binary)."""
    n = draw(st.integers(1, most_operators))
    D = draw(st.integers(1, most_devices))
    eighth = st.integers(0, 40).map(lambda k: k / 8)
    tensors = []
    for u in range(n - 1):
        for copy in range(draw(st.integers(0, 2)) if u % 3 == 0 else 1):
            readers = draw(st.sets(st.integers(u + 1, n - 1), max_size=3))
            if readers:
                tensors.append(
                    Tensor(
                        f"t{u}.{copy}", u, tuple(sorted(readers)), draw(st.integers(0, 64)), output=draw(st.booleans())
                    )
                )
    heavy = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    operators = [Operator(f"v{k}", weight_bytes=w * WEIGHT) for k, w in enumerate(heavy)]
    classes = []
    if n >= 3 and draw(st.booleans()):
        classes = [draw(st.lists(st.integers(0, n - 1), min_size=2, max_size=3, unique=True))]
    graph = OperatorGraph(operators, tensors, classes)

    limits: list[int | None] = [None] * D
    if memory and draw(st.booleans()):
        limits = [draw(st.integers(1, max(1, sum(heavy)))) * WEIGHT + WEIGHT // 2 for _ in range(D)]
    devices = [
        Device(f"d{i}", memory_bytes=limits[i], cut_overhead_s=draw(st.sampled_from([0.0, 0.0, 0.25, 0.5])))
        for i in range(D)
    ]
    latency = draw(eighth)
    links = [Link(latency / 4, draw(st.sampled_from([16.0, 64.0])), link_class="same-host", channel="bus")]
    if D > 1 and draw(st.booleans()):
        links.append(Link(latency, 32.0, between=("d0", "d1"), one_way=draw(st.booleans())))
    if draw(st.integers(0, 3)):
        links[0] = Link(links[0].latency_s, links[0].bandwidth_bytes_per_s, link_class="same-host")
    times = [[draw(eighth) for _ in range(D)] for _ in range(n)]
    for v in range(n):
        if draw(st.integers(0, 5)) == 0:
            times[v][draw(st.integers(0, D - 1))] = float("inf")
    cut = [[draw(st.sampled_from([0.0, 0.25, 0.5, 1.0])) for _ in range(D)] for _ in range(n)]
    own_cuts = draw(st.integers(0, 3)) == 0
    return Problem(
        graph,
        Cluster(devices, links),
        Times(np.array(times), cut_s=np.array(cut) if own_cuts else None),
        Makespan(contention or draw(st.sampled_from(["none", "link", "port"]))),  # type: ignore[arg-type]
    )
