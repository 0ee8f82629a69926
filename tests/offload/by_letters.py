"""Offload problems written by hand: operators are letters."""

from __future__ import annotations

import numpy as np

from placewright.cluster import Cluster, Device, Link
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.objective import Offload
from placewright.problem import Problem, Times

BUS = Link(0.0, 1.0, link_class="same-host")
"""A tensor of so many bytes takes so many seconds."""


def problem_of(
    seconds, tensors=(), calls=None, *, devices="cgg", links=(BUS,), tied=(), weights=(), memory=None, table=None,
    wishes=(),
):  # fmt: skip
    """Operators a, b, c... with the given seconds (a number for all devices, or one for each) and devices c(pu), g(pu).

    ``tensors``: (producer and readers, bytes), as in ("abc", 2): a makes it, b and c read it. ``memory``: of each
    device, CPUs included.
    """
    names = "abcdefgh"[: len(seconds)]
    weights = weights or [0] * len(names)
    operators = [Operator(x, weight_bytes=w) for x, w in zip(names, weights, strict=True)]
    made = [
        Tensor(f"t{u}", names.index(word[0]), tuple(names.index(x) for x in word[1:]), size)
        for u, (word, size) in enumerate(tensors)
    ]
    graph = OperatorGraph(operators, made, [tuple(names.index(x) for x in word) for word in tied])
    kinds = {"g": "gpu", "c": "cpu"}
    there = [Device(f"{kind}{i}", kinds[kind], memory_bytes=memory) for i, kind in enumerate(devices)]
    rows = [row if isinstance(row, list) else [row] * len(devices) for row in seconds]
    return Problem(
        graph, Cluster(there, links), Times(np.array(rows, dtype=float), table), Offload(calls), wishes, "letters"
    )
