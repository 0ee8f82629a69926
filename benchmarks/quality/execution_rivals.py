"""What a plan is measured against: placements that people make today, on the same hosts by the same executor."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

import placewright as pw
from placewright.evaluate import evaluate

__all__ = ["ACCELERATE", "ALONE", "EQUAL", "MEMORY", "TORCH", "rivals"]

ALONE, ACCELERATE, EQUAL, MEMORY = "fastest alone", "accelerate", "equal layers", "by memory"

TORCH = "torch pipelining"
"""The equal layers, run by ``torch.distributed.pipelining`` where they are a plain chain."""

Places = npt.NDArray[np.int64]


def rivals(problem: pw.Problem, module: Any) -> Iterator[tuple[str, Places]]:
    """Yield the name of each placement, and the device of each operator.

    ``fastest alone``: the device on which all operators take least. ``accelerate``: its automatic device map, given
    the devices' memory in their order, less what tensors take when one device has all of them. ``equal layers``:
    operators with weights, in the network's order, cut into as many equal runs as there are devices. ``by memory``:
    cut so that each device's part of the weights is its part of all memory. What that leaves open goes where the
    operator before it is. One that would not fit is left out.
    """
    found: list[tuple[str, Places]] = []
    n, devices = len(problem.graph), len(problem.cluster)
    single = [(float(problem.times.processing_s[:, i].sum()), i) for i in range(devices)]
    for _, i in sorted(single):
        places = np.full(n, i)
        if _fits(problem, places):
            found.append((ALONE, places))
            break
    mapped = _accelerate(problem, module)
    if mapped is not None:
        found.append((ACCELERATE, mapped))
    weights = np.array([v.weight_bytes for v in problem.graph.operators], dtype=np.float64)
    memory = np.array([inf if d.memory_bytes is None else d.memory_bytes for d in problem.cluster.devices])
    for name, sizes, shares in (
        (EQUAL, (weights > 0).astype(np.float64), np.ones(devices)),
        (MEMORY, weights, memory if np.isfinite(memory).all() else np.ones(devices)),
    ):
        done = (np.cumsum(sizes) - sizes / 2) / sizes.sum()
        ends = np.cumsum(shares) / shares.sum()
        wanted = np.minimum(np.searchsorted(ends, done), devices - 1)
        found.append((name, _completed(problem, {k: int(wanted[k]) for k in range(n) if sizes[k]})))
    yield from ((name, places) for name, places in found if _fits(problem, places))


def _fits(problem: pw.Problem, places: Places) -> bool:
    return evaluate(problem, places).feasible


def _completed(problem: pw.Problem, given: Mapping[int, int]) -> Places:
    """Devices of all operators from those of some: of its class, else of the one before it in the network's order."""
    graph = problem.graph
    places = np.full(len(graph), -1)
    for k, i in given.items():
        places[k] = i
    for members in graph.colocation:
        places[list(members)] = next((int(places[v]) for v in members if places[v] >= 0), -1)
    first = next((int(i) for i in places if i >= 0), 0)
    for v in range(len(graph)):
        if places[v] < 0:
            places[v] = places[v - 1] if v else first
    for members in graph.colocation:
        places[list(members)] = places[members[0]]
    return places


def _accelerate(problem: pw.Problem, module: Any) -> Places | None:
    """Place operators by accelerate's device map of their modules; ``None`` where that leaves some to CPU or disk."""
    from accelerate import infer_auto_device_map

    alone = evaluate(problem, np.zeros(len(problem.graph), dtype=np.int64)).devices
    room = max(u.activation_bytes + u.workspace_bytes for u in alone)
    limits = {
        i: max(0, d.memory_bytes - room) for i, d in enumerate(problem.cluster.devices) if d.memory_bytes is not None
    }
    whole = getattr(module, "_no_split_modules", None)
    logging.getLogger("accelerate.utils.modeling").setLevel(logging.ERROR)  # that there are no such GPUs here
    mapped = infer_auto_device_map(module, max_memory=limits, no_split_module_classes=whole)
    if not all(isinstance(place, int) for place in mapped.values()):
        return None
    given = {}
    for k, v in enumerate(problem.graph.operators):
        inside = [p for p in mapped if p == "" or v.name == p or v.name.startswith(f"{p}.")]
        if inside:
            given[k] = int(mapped[max(inside, key=len)])
    return _completed(problem, given)
