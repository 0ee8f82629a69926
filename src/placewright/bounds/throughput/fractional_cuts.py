"""The largest load when units may be divided among unlike devices, and what is cut must travel."""

from __future__ import annotations

import logging

import numpy as np

from placewright.algorithm import Budget, OnProgress, ignore
from placewright.bounds.throughput.cut_program import CutProgram, too_large
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.result import Result
from placewright.rounding import rounded_down

__all__ = ["fractional_cuts"]

log = logging.getLogger(__name__)

SHARE = 0.15
"""Of the budget, for the linear program."""


def fractional_cuts(
    problem: Problem,
    *,
    budget: Budget,
    rng: np.random.Generator,
    incumbent: Plan | None = None,
    on_progress: OnProgress = ignore,
) -> Result:
    """Bound the time per sample by computing and by the transfers that dividing units forces.

    Guarantee: a linear program whose variables are averages over the copies of a plan (program, and why it is a bound:
    :class:`placewright.bounds.throughput.cut_program.CutProgram`); what is returned is computed from its multipliers,
    and holds for any. Contiguity and synchronisation are left out, memory holds units in part. Never below the
    ``fractional-load`` bound but for tolerances; met with two devices where those three don't matter.
    Complexity: one linear program (HiGHS) of about messages x devices^2 variables; 0 beyond 400,000 of them.

    Source: ours.
    When to use: always, up to 400,000 variables.

    Examples
    --------
    Two operators on two devices, each made for one of them, and a tensor between them that takes 3 s: shares of the
    devices for both operators alike, as nothing is gained by sending.

    >>> from placewright import Cluster, Device, Link, Operator, OperatorGraph, Problem, Tensor, Throughput
    >>> graph = OperatorGraph([Operator("a"), Operator("b")], [Tensor("x", 0, (1,), 3)])
    >>> pair = Cluster([Device("d0"), Device("d1")], [Link(0.0, 1.0, link_class="same-host")])
    >>> problem = Problem(graph, pair, [[1.0, 3.0], [3.0, 1.0]], Throughput())
    >>> result = fractional_cuts(problem, budget=Budget(10), rng=np.random.default_rng(0))
    >>> round(result.lower_bound_s, 6)  # half of the samples on each: 4 / 2
    2.0
    """
    reason = too_large(problem)
    if reason is not None:
        log.info("no fractional-cuts bound: %s", reason)
        return Result(solver="fractional-cuts")
    if budget.spent or not problem.allowed.any(axis=1).all():
        return Result(solver="fractional-cuts")
    found = CutProgram(problem).solve(budget, SHARE)
    lower = 0.0 if found is None else rounded_down(found.lower_bound_s)
    return Result(lower_bound_s=lower, bounds={"fractional-cuts": lower} if lower else {}, solver="fractional-cuts")
