"""Accelerators filled one after the other along an order of the network."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from placewright.algorithm import Budget, OnProgress, ignore
from placewright.offloads import offloads_of
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.judged import judged
from placewright.solvers.offload.blocks import depth_first_blocks

__all__ = ["greedy"]


def greedy(
    problem: Problem,
    *,
    budget: Budget,
    rng: np.random.Generator,
    incumbent: Plan | None = None,
    on_progress: OnProgress = ignore,
) -> Result:
    """Fill the accelerators in turn along a depth-first topological order (arXiv 2006.16423, appendix F).

    Blocks (colocation classes, those united that edges tie in cycles) are taken in the order; the one that does not fit
    on the accelerator at hand opens the next one, and when none is left all that follow stay on CPUs. A block that the
    accelerator at hand can't run or could not hold even when empty goes to CPUs, too. Where the placement needs more
    calls than the objective allows it is no plan, and its value is returned as ``rejected_s``.

    Where it differs from the published program: that one meets blocks in the order of a hash table; here the block that
    became ready last is next, and of several at once the one that is read from last, which gives the published values
    of the published files. Unlike accelerators are taken in the order of the cluster; a block that has no CPU to run on
    goes to the first accelerator with room for it.

    Guarantee: none.
    Complexity: O(operators + tensors).
    Source: Tarnawski et al. 2020 (arXiv 2006.16423, appendix F).
    When to use: to compare with the paper; for a first plan.

    Examples
    --------
    >>> from placewright import Cluster, Device, Link, Offload, Operator, OperatorGraph, Problem, Tensor
    >>> graph = OperatorGraph([Operator(v, weight_bytes=6) for v in "ab"], [Tensor("x", 0, (1,), 8)])
    >>> box = Cluster([Device("g", memory_bytes=8), Device("c", kind="cpu")], [Link(0, 8, link_class="same-host")])
    >>> two = Problem(graph, box, [[1.0, 9.0], [1.0, 9.0]], Offload())
    >>> greedy(two, budget=Budget(), rng=np.random.default_rng(0)).value_s  # a on g: 1, x: 1, b: 9
    11.0
    """
    begun, device = budget.elapsed_s, _fill(problem)
    if (device < 0).any():
        return Result(solver="offload-greedy", runtime_s=budget.elapsed_s - begun)
    found = judged(problem, device, Provenance("offload-greedy"))
    return replace(found, runtime_s=budget.elapsed_s - begun)


def _fill(problem: Problem) -> npt.NDArray[np.int32]:
    """(n,) devices; -1 where there is none."""
    o = offloads_of(problem)
    A, device = len(o.accelerator), o.cpu_device.copy()
    room, at = o.capacity.astype(np.float64).copy(), 0
    for block in depth_first_blocks(problem):
        size, needed = o.size[block].sum(), bool((device[block] < 0).any())
        runs = np.asarray(np.isfinite(o.acc_s[block]).all(axis=0))
        if at < A and runs[at] and size <= o.capacity[at]:
            if size > room[at]:
                at += 1
            if at < A and runs[at] and size <= room[at]:
                room[at] -= size
                device[block] = o.accelerator[at]
                continue
        if needed:
            held = np.flatnonzero(runs & (size <= room))
            if len(held):
                room[held[0]] -= size
                device[block] = o.accelerator[held[0]]
    return device
