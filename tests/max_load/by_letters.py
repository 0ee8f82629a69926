"""Max-load problems written by hand: operators are letters."""

from __future__ import annotations

import numpy as np

from placewright.cluster import Cluster, Device, Link
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.objective import MaxLoad
from placewright.problem import Problem, Times

BUS = Link(0.0, 1.0, link_class="same-host")
"""A tensor of so many bytes takes so many seconds."""


def problem_of(
    seconds, tensors=(), options=(), *, devices="ggg", links=(BUS,), tied=(), backward="", weights=(), table=None
):
    """Operators a, b, c... with the given seconds (on all devices, or a row of them) and devices g(pu) or c(pu).

    ``tensors``: (producer and readers, bytes), as in ("abc", 2): a makes it, b and c read it.
    """
    names = "abcdefgh"[: len(seconds)]
    weights = weights or [0] * len(names)
    operators = [Operator(x, weight_bytes=w, backward=x in backward) for x, w in zip(names, weights, strict=True)]
    made = [
        Tensor(f"t{u}", names.index(word[0]), tuple(names.index(x) for x in word[1:]), size)
        for u, (word, size) in enumerate(tensors)
    ]
    graph = OperatorGraph(operators, made, [tuple(names.index(x) for x in word) for word in tied])
    kinds = {"g": "gpu", "c": "cpu"}
    cluster = Cluster([Device(f"{kind}{i}", kinds[kind]) for i, kind in enumerate(devices)], links)
    rows = [row if isinstance(row, list) else [row] * len(devices) for row in seconds]
    return Problem(graph, cluster, Times(np.array(rows, dtype=float), table), MaxLoad(**dict(options)))
