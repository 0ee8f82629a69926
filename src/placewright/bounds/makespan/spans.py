"""The longest path whose steps are spans: what lies between two operators takes its time, with all its branches."""

from __future__ import annotations

import logging

import numpy as np

from placewright.algorithm import Budget, OnProgress, ignore
from placewright.bounds.makespan.span import Reach
from placewright.bounds.makespan.span_path import longest_path, steps_of
from placewright.bounds.makespan.span_times import SpanTimes, bound_along
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.result import Result
from placewright.rounding import rounded_down

__all__ = ["spans"]

log = logging.getLogger(__name__)

MOST_OPERATORS = 20_000
"""Operators up to which the bound is tried: a set of them is kept for each, a bit an operator."""

MOST_PAIRS = 10_000_000
"""Operators times pairs of devices up to which the bound is tried: a span is searched for each pair of its ends."""

LARGEST_SPAN = 2_000
"""Most operators inside a span."""

NODES = 2_000
"""Most nodes of the search for one span and one pair of devices."""

WORK = 12_000_000
"""Most nodes times operators times (devices + 4) for all spans together: about a second. What is left then is bounded
by its paths."""


def spans(
    problem: Problem,
    *,
    budget: Budget,
    rng: np.random.Generator,
    incumbent: Plan | None = None,
    on_progress: OnProgress = ignore,
) -> Result:
    """Bound the makespan by a path of spans.

    The span of u and v holds the operators that are below u and above v. Whatever else is done, they and the
    transfers among them come after u and before v. So, with f[v, j] a bound of the time at which v on j has been
    processed, and V[u, v, i, j] one of the time that the span takes by itself with u on i and v on j,

    f[v, j] = max(critical path, max over steps (u, v) of min over i of f[u, i] + V[u, v, i, j]).

    Steps are taken along a longest path: from an operator to the next that everything below the first passes, or the
    last that everything above the second passed, and to the next on the path. V comes from a best-first search over
    the placements of the span (:func:`placewright._kernel.span_search.least_time`), so it knows that branches on one
    device follow each other and that branches on two pay for the transfers; and, for wide spans, from the load that
    devices have between heads and tails (:func:`placewright._kernel.energy.least_energy`).

    Guarantee: holds for every contention, colocation and memory. A span's device, links and classes are a part of the
    real ones and nothing outside it is counted; equal spans are searched once, and devices that can be swapped are
    tried once. Beyond 20,000 operators: no bound, with a reason in the log.

    Complexity: O(n E / 64) for what lies between; then a second at most.
    Source: ours; the idea of cutting a network where all paths pass is DiviML's (arXiv 2308.00127), which
    :class:`placewright.solvers.makespan.modular_split.ModularSplit` turns into plans.
    When to use: always, up to 20,000 operators; it meets the plan of most real networks.

    Examples
    --------
    Two branches of 2 s between two operators of 1 s; to send a tensor takes 3 s. The longest path is 4 s, each device
    could do 3 s, but what is sent costs 3 + 2 + 3 s.

    >>> from placewright import Cluster, Device, Link, Operator, OperatorGraph, Tensor
    >>> tensors = [Tensor("x", 0, (1, 2), 9), Tensor("y", 1, (3,), 9), Tensor("z", 2, (3,), 9)]
    >>> graph = OperatorGraph([Operator(v) for v in "abcd"], tensors)
    >>> pair = Cluster([Device("g0"), Device("g1")], [Link(0, 3, link_class="same-host")])
    >>> problem = Problem(graph, pair, [[1.0, 1.0], [2.0, 2.0], [2.0, 2.0], [1.0, 1.0]])
    >>> round(spans(problem, budget=Budget(), rng=np.random.default_rng(0)).lower_bound_s, 6)
    6.0
    """
    if len(problem.graph) > MOST_OPERATORS or not problem.allowed.any(axis=1).all():
        log.info("no bound by spans: more than %d operators, or one that may run nowhere", MOST_OPERATORS)
        return Result(solver="spans")
    if problem.times.processing_s.size * len(problem.cluster) > MOST_PAIRS:
        log.info("no bound by spans: operators times pairs of devices are more than %d", MOST_PAIRS)
        return Result(solver="spans")
    reach = Reach.of(problem)
    path = longest_path(problem)
    times = SpanTimes(problem, reach, budget, NODES, WORK)
    value = rounded_down(bound_along(problem, path, steps_of(problem, reach, path, LARGEST_SPAN), times))
    if not np.isfinite(value):
        return Result(solver="spans")  # the critical path says why
    return Result(lower_bound_s=value, solver="spans", bounds={"spans": value})
