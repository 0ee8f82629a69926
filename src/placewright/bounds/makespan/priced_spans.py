"""Paths of spans, loads between two instants and memory at once: a Lagrangian bound of the makespan."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

import numpy as np

from placewright.algorithm import Budget, OnProgress, Progress, ignore
from placewright.arrays import arrays_of
from placewright.bounds.makespan.series import Series, series_of
from placewright.bounds.makespan.span import Reach
from placewright.bounds.makespan.span_master import Master
from placewright.bounds.makespan.span_path import chain_of, longest_path, steps_of
from placewright.bounds.makespan.span_prices import Pricing, Windows
from placewright.bounds.makespan.span_times import SpanTimes, bound_along
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.result import Result
from placewright.rounding import rounded_down

__all__ = ["PricedSpans", "priced"]

log = logging.getLogger(__name__)

MOST_OPERATORS = 5_000
"""Operators up to which the bound is tried."""

LARGEST_SPAN = 2_000
"""Most operators inside a span."""

NODES, WORK = 2_000, 20_000_000
"""Limits of the searches that choose the spans; see :class:`placewright.bounds.makespan.span_times.SpanTimes`."""

FIRST_SHARE = 0.3
"""Part of the budget for them."""

MET = 1.0 - 1e-9
"""Part of a value that is as good as the value."""

NEAR = 1e-6
"""Part of the value within which multipliers are called the best."""

STALE = 4
"""Rounds without a gain of a ten-thousandth after which no more is hoped for."""


@dataclass(frozen=True, slots=True)
class PricedSpans:
    """Bound the makespan by a series of spans, what lies beside them, and what memory there is.

    Let the operators of a chain be processed at the instants T_1 <= T_2 <= ..., T_0 = 0 and T_K the makespan. What
    lies between two of them, a span, takes its time t_k: T_k+1 - T_k >= t_k. What else runs between two instants, on
    one device or over one link, port or channel, takes that long too: T_y - T_x >= load(x, y), where operators beside
    the spans count from the last instant above them to the first below. And no device holds more than its memory.
    For multipliers d_w >= 0 of windows w = (x, y, device or port), of which those over span k sum up to 1 at most, with
    left_k = 1 - that sum, and prices mu_i >= 0 of bytes, any placement has

    makespan >= sum_k left_k t_k + sum_w d_w load_w + sum_i mu_i (bytes on i - capacity of i),

    and the least of the right-hand side over all placements is a bound. It falls into spans, given the devices of the
    chain: a shortest path over them, each span by a best-first search with prices on operators and transfers. An
    operator beside the spans costs what is least on its device and for the transfer to one reader; it hangs on that
    reader like a leaf. The multipliers come from a linear program over the placements found so far (Dantzig and Wolfe
    1960), windows are added when their load is longer than they are; in between every round gives a bound.

    Guarantee: holds for every problem, whatever the multipliers: the program is asked for them and no more. Memory
    counts weights and KV caches, not live tensors. Devices that can be swapped are one class with one multiplier.
    Any-time. ``budget.iterations``: rounds, 60 by default. Beyond 5,000 operators: none, with a reason in the log.

    Complexity: of a round, spans times pairs of classes of devices searches, and a linear program.
    Source: ours; columns and prices are Dantzig and Wolfe's (1960).
    When to use: given time, where memory, ports or what runs beside a path make the gap.

    Examples
    --------
    Ten operators in a row take 1 s each on the GPU, which holds four of them, and 5 s on the CPU: 4 + 6 x 5 s. The
    second that it takes to get there is not seen: 0.4 of all on the GPU and 0.6 of all on the CPU cross nothing.

    >>> from placewright import Cluster, Device, Link, Operator, OperatorGraph, Tensor
    >>> operators = [Operator(f"v{k}", weight_bytes=1) for k in range(10)]
    >>> graph = OperatorGraph(operators, [Tensor(f"t{k}", k, (k + 1,), 1) for k in range(9)])
    >>> box = Cluster([Device("gpu", memory_bytes=4), Device("cpu")], [Link(0, 1, link_class="same-host")])
    >>> problem = Problem(graph, box, [[1.0, 5.0]] * 10)
    >>> round(PricedSpans()(problem, budget=Budget(60), rng=np.random.default_rng(0)).lower_bound_s, 6)
    34.0
    """

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Bound up to the value of ``incumbent``."""
        begun, target = budget.elapsed_s, inf if incumbent is None else incumbent.value_s
        if not 0 < len(problem.graph) <= MOST_OPERATORS or not problem.allowed.any(axis=1).all():
            log.info("no bound by priced spans: more than %d operators, or one that may run nowhere", MOST_OPERATORS)
            return Result(solver="priced-spans")
        reach, path = Reach.of(problem), longest_path(problem)
        times = SpanTimes(problem, reach, budget.share(FIRST_SHARE), NODES, WORK)
        steps = steps_of(problem, reach, path, LARGEST_SPAN)
        best = rounded_down(bound_along(problem, path, steps, times))
        if not np.isfinite(best):
            return Result(solver="priced-spans")  # the critical path says why
        chain = chain_of(problem, path, steps, times)
        for value in priced(series_of(problem, reach, chain), budget, target):
            if value > best:
                best = value
                on_progress(Progress("priced-spans", inf, best, budget.elapsed_s))
        bounds = {"priced-spans": best} if best > 0.0 else {}
        return Result(lower_bound_s=best, bounds=bounds, solver="priced-spans", runtime_s=budget.elapsed_s - begun)


def priced(series: Series, budget: Budget, target: float = inf) -> Iterator[float]:
    """Yield a bound for each choice of multipliers, until they are the best or the budget is spent."""
    pricing, none = Pricing(series), np.zeros(0, dtype=np.int32)
    each = arrays_of(series.problem).capacity
    capacity = np.array([each[series.device_class == c].sum() for c in range(len(series.devices_in))])
    limited = np.isfinite(capacity)
    windows, prices = Windows(none, none, none, none, np.zeros(0)), np.zeros(len(capacity))
    best, slack, stale = 0.0, inf, 0
    master: Master | None = None
    for _ in range(60 if budget.iterations is None else budget.iterations):
        total, columns = pricing.at(windows, prices, slack, budget)
        if not np.isfinite(total):
            return
        paid = float((prices[limited] * capacity[limited]).sum()) * (1.0 + 1e-12)
        value = rounded_down(total) - paid
        stale = 0 if value > best * (1.0 + 1e-4) else stale + 1
        best = max(best, value)
        yield max(0.0, value)
        if best >= target * MET or budget.spent:
            return
        if master is None:
            dear = 1e3 * max(total, 1e-300) / max(1.0, float(pricing.resident.sum()))
            master = Master(series, capacity, dear)
            master.begin()
        slack = target - best
        fresh, rows, expected = master.add(columns), len(master.windows), master.value
        if not fresh and expected - best <= NEAR * best and stale >= STALE:
            return
        found = master.solve(budget.left_s)
        if found is None:
            return
        if not fresh and len(master.windows) == rows and master.value - best <= NEAR * best:
            return
        windows, prices = found
