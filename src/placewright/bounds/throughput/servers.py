"""Time per sample by classes of exchangeable devices: chains of stages that fit, transfers and synchronisation."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from placewright._kernel.stages import cheapest_chain
from placewright.algorithm import Budget, OnProgress, ignore
from placewright.bounds.throughput.servers_stages import ClassStages, stages_of
from placewright.highs import new_highs
from placewright.one_copy import throughput_of
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.result import Result
from placewright.rounding import rounded_down

__all__ = ["servers"]

Floats: TypeAlias = npt.NDArray[np.float64]

ROUNDS = 200
"""Of prices, at most."""

CLOSE = 1e-6
"""Relative distance between the linear program and its bound at which prices are good enough."""

HALVINGS = 12
"""Of the interval of times, when training."""


def servers(
    problem: Problem,
    *,
    budget: Budget,
    rng: np.random.Generator,
    incumbent: Plan | None = None,
    on_progress: OnProgress = ignore,
) -> Result:
    r"""Bound the time per sample of contiguous copies: one price a class of devices, however many there are.

    **Without synchronisation.** A contiguous copy is a chain of nested ideals; each step, a stage S, is one device's,
    fits its memory and costs it at least load_c(S): computing, and the transfers of the tensors that cross S at the
    least cost over the other end. With prices :math:`\lambda_c \ge 0`, :math:`\sum_c n_c \lambda_c = 1`, the priced sum
    of the loads of all n_c devices is at most T, and it is the mean over the samples of their copies' priced stages:

    .. math:: T \ge \min_{chains} \sum_{S} \lambda_{c(S)} load_{c(S)}(S),

    a shortest path over ideals. Prices that are equal within an orbit of exchangeable devices lose nothing: the best
    bound is concave in the prices, and exchanges keep it. The best prices come from a linear program with one column a
    class and one row a path found so far.

    **Memory.** A device holds all that it runs in any copy; that each stage by itself fits is less, so the bound holds.

    **Synchronisation.** Let w be 2 / period x seconds a byte (the fastest way that there is) x weight bytes, of a unit
    or a set. A unit v with r_v holders costs each w(v) (1 - 1/r_v), and r_v >= ceil(min_c p[v, c] / T), so that a
    device with residence R has q(R) = sum of w(v) (1 - 1/r_v) taken away, and :math:`\sum_S x_S load(S) \le T - q(R)`
    for its stages S within R with shares x_S. Two ways to price it at a time T, of which the better holds:

    1. Each device by itself: :math:`\sum_S x_S load(S) (1 + q(S) / (T - q(S))) \le T`, as q(S) <= q(R).
    2. All holders of a unit together. With x[v, i] the share of v's samples on i, :math:`\sum_i x[v, i] = 1`, so

       .. math:: \sum_{i \ni v} \lambda_i (1 - 1/r_v) \ge \sum_{i \ni v} \lambda_i - \max_c \lambda_c .

       And w(R) is at least w(R) / (T - q(R)) times the time that the device computes for, so at least
       :math:`\sum_S x_S load(S) w(S) / (T - q(S))`. Stages cost load(S) (1 + w(S) / (T - q(S))), and of the sum
       :math:`\max_c \lambda_c \, w(V)` is taken off.

    If the bound at T is above T then no plan reaches T, nor any time below it, since both grow as T falls. The largest
    such T is found by halving.

    Channels are left out, and of transfers that overlap computing all but the busy share. Only for ``contiguous`` plans
    with CPUs bound by it as well; nothing is claimed where the stages are more than 12 million, or 64 million by class.

    Complexity: O(stages x classes) a path; some ten paths.

    Guarantee: holds for every contiguous plan, whatever its copies; nothing is claimed elsewhere..
    Source: ours; placing by the symmetry of the hardware is DiviML's (arXiv 2308.00127).
    When to use: for many devices of few kinds, with contiguous copies.

    Examples
    --------
    >>> from placewright import Cluster, Device, Link, Operator, OperatorGraph, Problem, Tensor, Throughput
    >>> graph = OperatorGraph([Operator(v, weight_bytes=8) for v in "ab"], [Tensor("x", 0, (1,), 4)])
    >>> four = Cluster([Device(f"d{i}", memory_bytes=8) for i in range(4)], [Link(0.0, 4.0, link_class="same-host")])
    >>> problem = Problem(graph, four, [[3.0] * 4] * 2, Throughput())
    >>> result = servers(problem, budget=Budget(), rng=np.random.default_rng(0))
    >>> round(result.lower_bound_s, 6)  # 3 + 1 for each of the two operators that no device holds both of: 8 / 4
    2.0
    """
    objective = throughput_of(problem)
    bound_cpus = objective.contiguous_cpus or all(d.kind != "cpu" for d in problem.cluster.devices)
    if objective.contiguity != "contiguous" or not bound_cpus:
        return Result(solver="servers")
    stages = stages_of(problem, budget)
    if stages is None:
        return Result(solver="servers")
    program = _Prices(stages)
    found = program.bound(np.zeros(len(stages.inside)), np.zeros(len(stages.inside)), np.inf, 0.0, budget)
    if not np.isfinite(found):
        return Result(infeasible="no chain of stages that fit their devices computes the network", solver="servers")
    if any(v.backward for v in problem.graph.operators) and len(problem.cluster) > 1:
        found = _synchronised(problem, stages, program, found, budget)
    return Result(lower_bound_s=found, solver="servers", bounds={"servers": found})


def _synchronised(problem: Problem, stages: ClassStages, program: _Prices, low: float, budget: Budget) -> float:
    """Return the largest time that is refuted, by halving above ``low``."""

    def refuted(limit: float) -> float:
        unit, fastest = stages.weights * _sync_s_per_byte(problem), stages.unit_s.min(axis=1)
        holders = np.maximum(1.0, np.ceil(fastest / limit * (1.0 - 1e-9)))
        least = stages.inside @ (unit * (1.0 - 1.0 / holders))
        each = program.bound(least, least, limit, 0.0, budget)
        return max(each, program.bound(stages.inside @ unit, least, limit, float(unit.sum()), budget))

    reached = refuted(low) if low > 0.0 else 0.0
    if not reached > low:
        return low
    high = reached
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high) if np.isfinite(high) else 2.0 * low
        if budget.spent or high - low <= 1e-4 * low:
            break
        if refuted(middle) > middle:
            low = middle
        else:
            high = middle
    return low


def _sync_s_per_byte(problem: Problem) -> float:
    """Twice the least seconds a byte that any two devices synchronise in, a sample."""
    objective, cluster = throughput_of(problem), problem.cluster
    if objective.sync_bandwidth_bytes_per_s is not None:
        return 2.0 / objective.sync_bandwidth_bytes_per_s / objective.sync_period
    rates = [link.bandwidth_bytes_per_s for link in cluster.links]
    return 2.0 / max(rates, default=float("inf")) / objective.sync_period


class _Prices:
    """Prices of the classes: maximise the cheapest chain, by the chains found so far."""

    def __init__(self, stages: ClassStages) -> None:
        self.stages, self.count = stages, stages.count
        self.weight = np.full(len(self.count), 1.0 / self.count.sum())

    def bound(self, full: Floats, least: Floats, limit: float, taken: float, budget: Budget) -> float:
        """Return a bound at a time ``limit``, rounded down; ``inf`` where no chain is left."""
        C, best = len(self.count), 0.0
        distance, rows = np.zeros(len(self.stages.inside)), []
        weight = self.weight
        for _ in range(ROUNDS):
            chain = cheapest_chain(self.stages.table, weight, full, least, limit, distance)
            if not np.isfinite(distance[-1]):
                return float("inf")
            value = rounded_down(float(distance[-1])) - float(weight.max()) * taken * (1.0 + 1e-9)
            if value > best:
                best, self.weight = value, weight
            rows.append(chain / self.count)
            weight, top = _best_prices(np.array(rows), self.count, taken)
            if budget.spent or C == 1 or top - best <= CLOSE * top:
                break
        return max(0.0, best)


def _best_prices(rows: Floats, count: Floats, taken: float) -> tuple[Floats, float]:
    """Prices, scaled to one over all devices, whose cheapest row is dearest less what is taken; and that value."""
    import highspy

    C, scale = len(count), float(rows.max()) or 1.0
    solver: Any = new_highs()
    endless, none, empty = float(highspy.kHighsInf), np.array([], dtype=np.int32), np.array([])
    for _ in range(C):
        solver.addCol(0.0, 0.0, 1.0, 0, none, empty)
    solver.addCol(-1.0, -endless, endless, 0, none, empty)  # the value
    solver.addCol(taken / scale, 0.0, endless, 0, none, empty)  # the largest price of a device
    columns = np.arange(C, dtype=np.int32)
    solver.addRow(1.0, 1.0, C, columns, np.ones(C))
    for row in rows:
        solver.addRow(0.0, endless, C + 1, np.arange(C + 1, dtype=np.int32), np.array([*(row / scale), -1.0]))
    for c in range(C):
        solver.addRow(-endless, 0.0, 2, np.array([c, C + 1], dtype=np.int32), np.array([1.0 / count[c], -1.0]))
    solver.run()
    share = np.maximum(0.0, np.array(solver.getSolution().col_value[:C]))
    total = float(share.sum())
    share = share / total if total > 0.0 else count / count.sum()
    value = float((rows @ share).min()) - float((share / count).max()) * taken
    return share / count, value
