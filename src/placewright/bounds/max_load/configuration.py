"""Which sets of units fit a device under a limit: the configuration bound, by column generation."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from placewright.algorithm import Budget, OnProgress, Progress, ignore
from placewright.bounds.max_load.certificate import GOAL, Proof
from placewright.bounds.max_load.hypergraph import Hypergraph, hypergraph_of, incidence, reduced
from placewright.bounds.max_load.pricing import Pricing, best_order, states_of
from placewright.loads import loads_of, objective_of
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.result import Result

__all__ = ["Configuration"]

log = logging.getLogger(__name__)

MOST_STATES = 200_000
"""States of the dynamic program up to which the bound is tried."""

ORDERS = 200
"""Vertex orders of which the one with fewest states is taken."""


@dataclass(frozen=True, slots=True)
class Configuration:
    r"""Prove that no placement has a load of at most T, for T as large as possible, from prices of the units.

    For any prices pi, each unit being somewhere, a placement of loads at most T has

    .. math:: \pi(V) \le \sum_c n_c \max\{\pi(S) : load_c(S) \le T\}

    over the kinds c of the n_c devices; where it fails there is no such placement. Prices come from column generation
    on the linear program of all sets (Gilmore and Gomory's for bins; the configuration program of scheduling); the
    maximum from a dynamic program over a vertex order, in which edges cut by S cost load. See
    ``docs/configuration-bound.md``.

    Guarantee: what is returned is proved by prices alone, whose maxima are bounded from above (labels of least load and
    most profit) with a relative slack of 1e-9; the linear program is only asked where to look. Contiguity, memory,
    channels and the other end's part in a transfer time are left out; a replicated stage is no set on a device: 0 then.
    Any-time. The budget's ``iterations`` counts solutions of the linear program (default: no limit).

    Complexity: the states of the order times the number of labels; 0, with a reason in the log, beyond 200,000 states.
    Source: ours, from Gilmore and Gomory's columns and the configuration program of scheduling.
    When to use: given time, where transfers make the gap and plans need not be contiguous.

    Attributes
    ----------
    upper_s : callable or None
        Gives the value of the best plan known now, where a search runs at the same time.
    lower_s : float
        A bound that is known already: smaller ones are not proved again.
    patience : callable or None
        Called when all is set up, and waits until it makes sense to begin.

    Examples
    --------
    Three operators of 2 s on two devices: one has two of them, whatever the fractions say.

    >>> from placewright import Cluster, Device, Link, MaxLoad, Operator, OperatorGraph
    >>> pair = Cluster([Device("d0"), Device("d1")], [Link(0.0, 1.0, link_class="same-host")])
    >>> problem = Problem(OperatorGraph([Operator(v) for v in "abc"]), pair, [[2.0, 2.0]] * 3, MaxLoad("any"))
    >>> result = Configuration()(problem, budget=Budget(120), rng=np.random.default_rng(0))
    >>> 3.99 < result.lower_bound_s <= 4.0
    True
    """

    upper_s: Callable[[], float] | None = None
    lower_s: float = 0.0
    patience: Callable[[], None] | None = None

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Prove bounds up to the value of ``incumbent`` until that, or the budget, is reached."""
        begun = budget.elapsed_s
        lower = self._proved(problem, budget, rng, incumbent, on_progress)
        bounds = {"configuration": lower} if lower > 0.0 else {}
        return Result(lower_bound_s=lower, bounds=bounds, solver="configuration", runtime_s=budget.elapsed_s - begun)

    def _proved(
        self,
        problem: Problem,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None,
        on_progress: OnProgress,
    ) -> float:
        reason = _why_not(problem)
        if reason is not None:
            log.info("no configuration bound: %s", reason)
            return 0.0
        h = hypergraph_of(problem)

        def upper() -> float:
            known = inf if incumbent is None else incumbent.value_s
            return known if self.upper_s is None else min(known, self.upper_s())

        highest = min(upper(), _far(h))
        if highest <= 0.0:
            return 0.0
        h = reduced(h, highest, budget)
        graph = incidence(len(h), h.ends)
        order = best_order(graph, ORDERS, rng, budget)
        states = states_of(h, graph, order, np.flatnonzero(h.pays), 10.0 * highest, MOST_STATES)
        if not len(states.follow):
            log.info("no configuration bound: more than %d states in a vertex order", MOST_STATES)
            return 0.0

        def proved(lower: float) -> None:
            on_progress(Progress("configuration", inf, lower, budget.elapsed_s))

        proof = Proof(
            h,
            Pricing(states, order),
            _free_pricing(h, highest),
            lambda: min(highest, upper()),
            self.lower_s,
            budget,
            proved,
        )
        if self.patience is not None:
            self.patience()
        proof.run()
        return proof.lower_bound_s


def _why_not(problem: Problem) -> str | None:
    loads = loads_of(problem)
    if objective_of(problem).replicate:
        return "stages may be replicated"
    if not loads.pays.any():
        return "no device pays for transfers"
    if not loads.allowed.any(axis=1).all():
        return "an operator can run nowhere"
    return None


def _free_pricing(h: Hypergraph, highest: float) -> Pricing | None:
    """Make what finds sets for devices that don't pay: no edge matters, a position of the order has one state."""
    if h.pays.all():
        return None
    bare = replace(h, ends=(), weight=np.zeros((len(h.kinds), 0)))
    order = np.arange(len(h), dtype=np.int32)
    kinds = np.flatnonzero(~h.pays)
    return Pricing(states_of(bare, incidence(len(h), ()), order, kinds, 10.0 * highest, len(h) + 2), order)


def _far(h: Hypergraph) -> float:
    """Return a value that a placement on one device would not exceed."""
    times = np.where(np.isfinite(h.time), h.time, 0.0).max(axis=0).sum()
    weights = np.where(np.isfinite(h.weight), h.weight, 0.0).max(axis=0, initial=0.0).sum()
    return float(times + weights) * (1.0 + 2.0 * GOAL)
