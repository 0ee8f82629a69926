"""The cheapest placement of a chain of modules at prices of loads and memories: a Lagrangian bound."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np

from placewright.algorithm import Budget, OnProgress, Progress, ignore
from placewright.bounds.max_load.module_network import module_network, why_no_modules
from placewright.bounds.max_load.module_prices import best_prices
from placewright.loads import loads_of
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.result import Result

__all__ = ["PricedModules"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PricedModules:
    """Bound the max-load by the cheapest placement at prices of loads, channels and memories.

    Guarantee: :func:`placewright.bounds.max_load.module_prices.priced` proves it for any prices; Kelley's cutting
    planes look for good ones and are not believed. Transfers count, each where it falls, also where they depend on both
    ends; so do memories and channels. Contiguity is left out, but for blocks, which share a device. Replicas and wide
    networks: 0, with the reason in the log. The budget's ``iterations`` counts rounds.

    Complexity: of a round, the states of all frontiers times the devices times the messages of a step.
    Source: ours; the cutting planes are Kelley's (1960).
    When to use: given time, for narrow networks on links that differ or share channels.

    Attributes
    ----------
    rounds : int
        Most prices that are tried.

    Examples
    --------
    Two operators of 2 s with a tensor of 1 s between them on two devices: apart, each device has 3; together, one has
    4, which is 2 on the average. At even prices together is cheapest.

    >>> from placewright import Cluster, Device, Link, MaxLoad, Operator, OperatorGraph, Tensor
    >>> graph = OperatorGraph([Operator("a"), Operator("b")], [Tensor("x", 0, (1,), 1)])
    >>> two = Cluster([Device("d0"), Device("d1")], [Link(0.0, 1.0, link_class="same-host")])
    >>> problem = Problem(graph, two, [[2.0, 2.0]] * 2, MaxLoad("any"))
    >>> round(PricedModules()(problem, budget=Budget(), rng=np.random.default_rng(0)).lower_bound_s, 6)
    2.0
    """

    rounds: int = 40

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Try prices until the budget is spent or none can be better."""
        begun = budget.elapsed_s
        reason = why_no_modules(problem)
        if reason is None and not loads_of(problem).allowed.any(axis=1).all():
            reason = "an operator can run nowhere"
        if reason is not None:
            log.info("no bound from priced modules: %s", reason)
            return Result(solver="priced-modules")

        def report(bound_s: float) -> None:
            on_progress(Progress("priced-modules", np.inf, bound_s, budget.elapsed_s))

        rounds = self.rounds if budget.iterations is None else budget.iterations
        tried = best_prices(module_network(problem), budget, rounds, report)
        lower = max((p.bound_s for p in tried if np.isfinite(p.bound_s)), default=0.0)
        bounds = {"priced-modules": lower} if lower > 0.0 else {}
        return Result(lower_bound_s=lower, bounds=bounds, solver="priced-modules", runtime_s=budget.elapsed_s - begun)
