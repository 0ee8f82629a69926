"""Dynamic programming over the ideals of the blocks: exact for contiguous placements."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

from placewright.algorithm import Budget, OnProgress, Progress, ignore
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result
from placewright.rounding import rounded_down
from placewright.solvers.max_load.blocks import (
    Blocks,
    Stage,
    blocks_of,
    bounds_hold,
    exactly_modelled,
    in_order,
    plan_of_stages,
)
from placewright.solvers.max_load.lattice import SPENT, TOLERANCE, all_ideals, best_chain, fractional_bound, most_ideals
from placewright.solvers.max_load.orders import MOST_STATES, Orders, order_of

__all__ = ["IdealDp"]

log = logging.getLogger(__name__)

STEPPED_FROM = 100_000
"""Ideals from which smaller limits are refuted first, so that a walk cut short leaves a bound."""

STEPS = (0.25, 0.5, 0.75)
"""Those limits, as parts of the way from the bound to the incumbent."""

OWN_SEARCH_S = 0.3
"""At most for its own incumbent: the walk needs a fair one, and finds the best one itself."""

NOTHING_FITS = "no contiguous placement fits: no chain of stages respects memory, devices and wishes"

REACHES = (6, 9, 12, 16, 20, 24)
"""How far blocks may come before their place in the best order, where all ideals are too many."""


@dataclass(frozen=True, slots=True)
class IdealDp:
    r"""Best chain of stages through the lattice of ideals of the block graph (arXiv 2006.16423, sections 4 and 5.1).

    A contiguous placement is a chain of ideals :math:`\emptyset = I_0 \subset I_1 \subset \dots` (sets of blocks that
    hold all predecessors of their blocks) and a device for each difference. With u counting the devices used of each
    class of alike ones, c a class, and r copies (1 without replication),

    .. math:: best(J, u) = \min_{I \subset J, c, r} \max(best(I, u - r e_c), load_{c, r}(J \setminus I))

    where the passes count apart, best is the set of pairs (largest forward, largest backward load) that no other beats.
    Unlike devices, memory, wishes, overlap, both training objectives and replicas are exact.

    Ours, against the published program: only chains below the incumbent's value T are looked for, so that an ideal is
    kept at u only if the devices in u can do it, and the others the rest, below T (the dual of fractional assignment);
    a chain that uses no device more makes others to the same ideal needless, and what is found lowers T for the next
    walk; ideals are enumerated without a table, each from the one without its last block; computing is a difference
    of sums, transfers come from the messages that the two ideals cut; leaves that lose nothing by it join their
    neighbours (:mod:`~placewright.solvers.max_load.blocks`), first also those that hold memory, which gives a bound
    that often equals the incumbent.

    Guarantee: the plan is optimal and the bound equal to it up to 1e-9, when it ends. Where links differ by pair or
    channels are shared, the costs of stages are least ones: the bound holds and may be below the optimum. Where
    contiguity does not bind every device, it makes a plan and no bound. Ideals that are too many to be kept (350 MB)
    are left out: those near to the best order make a plan, the bound is that of fractional assignment, a warning is
    logged, and ``Provenance.parameters["exact"]`` is false.

    Any-time; the budget's ``iterations`` counts orders scored for its own incumbent (default: ``moves``, or 0.3 s).

    Complexity: time at worst ideals^2 C x what is cut + labels; memory O(ideals x blocks / 64).
    Source: Tarnawski et al. 2020 (arXiv 2006.16423, sections 4 and 5.1); the pruning is ours.
    When to use: for contiguous pipelines, of any mix of devices.

    Attributes
    ----------
    moves : int
        Orders scored for the incumbent.
    most_ideals : int or None
        Beyond them, the lattice is not searched whole; ``None``: what 350 MB hold.

    Examples
    --------
    Three operators in a row, 2, 3 and 4 s, transfers of 1 s between them, two devices: 2 + 3 + 1 against 4 + 1.

    >>> from placewright import Cluster, Device, Link, MaxLoad, Operator, OperatorGraph, Tensor
    >>> graph = OperatorGraph([Operator(v) for v in "abc"], [Tensor("x", 0, (1,), 1), Tensor("y", 1, (2,), 1)])
    >>> two = Cluster([Device("d0"), Device("d1")], [Link(0.0, 1.0, link_class="same-host")])
    >>> problem = Problem(graph, two, [[2.0, 2.0], [3.0, 3.0], [4.0, 4.0]], MaxLoad())
    >>> result = IdealDp()(problem, budget=Budget(), rng=np.random.default_rng(0))
    >>> result.value_s, round(result.lower_bound_s, 6), result.status.value
    (6.0, 6.0, 'optimal')
    """

    moves: int = 300
    most_ideals: int | None = None

    def supports(self, problem: Problem) -> str | None:
        """Return why a problem is out of reach, or ``None``."""
        return why_not(problem)

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Find the best chain of stages below the incumbent, or prove that there is none."""
        run = _Run(problem, budget, on_progress, blocks_of(problem), incumbent, bounds_hold(problem))
        begun = budget.elapsed_s
        run.proved(fractional_bound(run.blocks))
        orders = Orders(run.blocks, rng)
        moves = self.moves if budget.iterations is None else budget.iterations
        if not run.closed:
            most = inf if budget.iterations is not None else OWN_SEARCH_S
            orders.run(
                budget.share(0.5, at_most_s=most), moves, hot=0.01, cold=1e-4, target_s=run.bound * (1.0 + TOLERANCE)
            )
            if orders.value_s < inf:
                run.found(run.blocks, orders.best_stages(), orders.value_s)
        run.note["seconds_incumbent"] = round(budget.elapsed_s - begun, 3)
        why = self._walk(run)
        if why and why != SPENT:
            log.warning(
                "ideal-dp: %s; the plan is the best of those near to the best order, the bound is no proof", why
            )
            self._near(run, orders)
        return run.result(why, budget.elapsed_s - begun)

    def _walk(self, run: _Run) -> str:
        """Search the whole lattice, first that with less memory; why it was not searched, or an empty string."""
        if run.closed:
            return ""
        if run.holds:
            rough = blocks_of(run.problem, forget=True)
            if rough.forgetful and rough.n_blocks < run.blocks.n_blocks:
                self._lattice(run, rough)
                if run.closed:
                    return ""
        return self._lattice(run, run.blocks)

    def _lattice(self, run: _Run, blocks: Blocks) -> str:
        before = run.budget.elapsed_s
        graph = order_of(blocks)
        most = self.most_ideals or most_ideals(blocks)
        ideals = all_ideals(graph, run.budget, most)
        run.note["seconds_ideals"] = round(run.budget.elapsed_s - before, 3)
        if ideals is None:
            return SPENT if run.budget.spent else f"more than {most:,} ideals"
        count = len(ideals.parent)
        run.note["ideals"] = count
        limits = [run.limit]
        if count >= STEPPED_FROM and run.bound < run.limit < inf:
            limits = [run.bound + (run.limit - run.bound) * part for part in STEPS] + limits
        why = ""
        for limit in limits:
            if limit > run.limit or run.closed:
                continue
            before = run.budget.elapsed_s
            chain = best_chain(blocks, ideals, limit * (1.0 - TOLERANCE), run.budget, run.report)
            run.note["seconds_dp"] = round(run.note.get("seconds_dp", 0.0) + run.budget.elapsed_s - before, 3)
            run.note["stages_costed"] = run.note.get("stages_costed", 0) + chain.costed
            if chain.value_s < inf:
                run.found(blocks, chain.stages, chain.value_s)
            run.proved(chain.proved_s)
            why = chain.why
            if why or chain.value_s < inf:
                break
        return why

    def _near(self, run: _Run, orders: Orders) -> None:
        """Search the ideals near to the best order, from there again, further and further away."""
        order, reach = orders.order, 0
        while reach < len(REACHES) and not run.budget.spent and not run.closed and orders.value_s < inf:
            near = in_order(run.blocks, order, REACHES[reach])
            ideals = all_ideals(order_of(near), run.budget, self.most_ideals or most_ideals(near))
            if ideals is None:
                return
            chain = best_chain(near, ideals, run.limit * (1.0 - TOLERANCE), run.budget, run.report)
            if chain.value_s == inf:
                reach += 1
                continue
            run.found(near, chain.stages, chain.value_s)
            order = order[[b for members, _, _ in chain.stages for b in members]]


def why_not(problem: Problem) -> str | None:
    """Return why the states of used devices are too many, or ``None``."""
    states = int(blocks_of(problem).stages.stride[-1])
    if states <= MOST_STATES:
        return None
    return f"{states:,} ways to have used some of the devices of each class are more than {MOST_STATES:,}"


@dataclass(slots=True)
class _Run:
    """What is known so far."""

    problem: Problem
    budget: Budget
    on_progress: OnProgress
    blocks: Blocks
    plan: Plan | None
    holds: bool
    bound: float = 0.0
    limit: float = inf
    note: dict[str, Any] = field(default_factory=dict)
    mine: bool = False

    def __post_init__(self) -> None:
        if self.plan is not None:
            self.limit = self.plan.value_s

    @property
    def closed(self) -> bool:
        """Whether no chain can be better than the best one, but for the tolerance."""
        return self.bound >= self.limit * (1.0 - 2.0 * TOLERANCE)

    def proved(self, value: float) -> None:
        """No chain of stages is below ``value``."""
        self.bound = max(self.bound, value)

    def found(self, blocks: Blocks, stages: list[Stage], value: float) -> None:
        """Take note of a chain of the modelled ``value``; what the judge says of it counts."""
        plan = plan_of_stages(self.problem, blocks, stages, Provenance("ideal-dp", None, "", self.note))
        if plan is not None and (self.plan is None or plan.value_s < self.plan.value_s):
            self.plan, self.mine = plan, True
        if not blocks.forgetful:
            self.limit = min(self.limit, value)
        if self.plan is not None:
            self.limit = min(self.limit, self.plan.value_s)
        self.report(self.limit)

    def report(self, value: float) -> None:
        """Tell how far it is."""
        best = inf if self.plan is None else self.plan.value_s
        self.on_progress(Progress("ideal-dp", best, self.safe, self.budget.elapsed_s))

    @property
    def safe(self) -> float:
        """The bound, as a promise about plans."""
        return rounded_down(self.bound) if self.holds else 0.0

    def result(self, why: str, runtime_s: float) -> Result:
        """Say what is known."""
        self.note["exact"] = not why and self.holds and exactly_modelled(self.problem)
        if why:
            self.note["cut_short"] = why
        if self.holds and self.bound == inf:
            return Result(None, inf, NOTHING_FITS, runtime_s, "ideal-dp")
        return Result(
            self.plan,
            self.safe,
            runtime_s=runtime_s,
            solver="ideal-dp",
            bounds={"ideal-dp": self.safe} if self.holds else {},
        )
