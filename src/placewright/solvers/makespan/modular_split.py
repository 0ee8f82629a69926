"""Cut the network where every path passes, solve the modules for each pair of devices at their ends, join them."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np

from placewright.algorithm import Algorithm, Budget, OnProgress, Progress, ignore
from placewright.arrays import arrays_of
from placewright.evaluate import plan_for
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.result import Result
from placewright.rounding import rounded_down
from placewright.solvers.makespan.module_steps import (
    NAME,
    Step,
    StepTable,
    completed,
    distances,
    ends_of,
    plan_of_steps,
    shortest,
    take_apart,
)
from placewright.solvers.makespan.modules import (
    module_key,
    module_problem,
    modules_of,
    trunk_of,
    within,
    without_rest,
)

__all__ = ["ModularSplit", "why_coupled"]

MOVES_AN_OPERATOR, MOST_MOVES = 300, 6000
"""Moves of the quick search for each operator of a module, and for all of it."""

SEARCH_SHARE = 0.25
"""Of the budget, for the quick searches."""

CLOSER_S, CLOSER_UP_TO = 2.0, 70
"""Seconds that a module is bounded closely for, and the most operators that it may have."""

CLOSE = 1e-7
"""Relative gap at which a module counts as solved."""


def why_coupled(problem: Problem) -> str | None:
    """Say why modules are not independent here, or ``None``: memory that may bind, classes across modules, no cuts."""
    if arrays_of(problem).memory_may_bind:
        return "memory couples the modules; use makespan-cp-sat or annealing"
    trunk = without_rest(problem, _kept(problem))
    modules = modules_of(trunk.graph)
    if len(modules) < 2:
        return "no operator lies on every path, so there are no modules; use makespan-cp-sat or annealing"
    home = {v: k for k, m in enumerate(modules) for v in (*m.inner, *(() if m.exit is None else (m.exit,)))}
    for members in trunk.graph.colocation:
        if len({home[v] for v in members}) > 1 or any(modules[home[v]].exit == v for v in members):
            return "a colocation class couples the modules; use makespan-cp-sat or annealing"
    return None


class _Linked(threading.Event):
    """An event that is also set when another one is."""

    def __init__(self, other: threading.Event) -> None:
        super().__init__()
        self.other = other

    def is_set(self) -> bool:
        return super().is_set() or self.other.is_set()


@dataclass(frozen=True, slots=True)
class ModularSplit:
    """Exact where neither memory nor colocation couples the modules.

    Let c be an operator on every path (:func:`placewright.solvers.makespan.modules.modules_of`). Everything else is an
    ancestor or a descendant of c. So all operators above c, and all transfers between them and to c, end before c
    starts; all below start after c ends. Given the device of every such c, the modules between them thus occupy
    disjoint spans of time and share neither a device nor a link at any instant, whatever the contention: the best
    schedule is a sequence of best schedules of modules, and the makespan is the sum of theirs. Minimising over the
    devices of the cuts is a shortest path: F[k + 1, j] = min over i of F[k, i] + V[k, i, j], with V[k, i, j] the least
    makespan of module k from its entry on i to its exit on j. A cut's processing time counts in the module that it
    ends; the overhead behind it in the one that it begins.

    V is found lazily: a shortest path under lower bounds of V is computed, the module on it whose bound is furthest
    from its plan is solved by ``inner``, and so on until the path's length meets the best plan. With bounds instead of
    optima the path's length remains a lower bound. With U the value of the best plan and L the length of the path but
    for a step, that step need not take U - L or more: devices and links that no schedule within U - L can use are left
    out of its module, and its search ends when its bound gets there; V >= min(bound, U - L) in any case. Equal modules
    are solved once. Before that ``search`` looks for a plan of each step that may matter, so that U is low early.

    Where side outputs leave no operator on every path, only the sink that can end last and what it depends on are cut
    into modules (:func:`placewright.solvers.makespan.modules.trunk_of`): the bound holds for the whole, the plan of the
    trunk is completed, and the gap may stay open.

    The idea is DiviML's module-based splitting (arXiv 2308.00127); formulation and proof are ours.

    Attributes
    ----------
    inner : Algorithm
        Solves a module: exact, or at least bounding.
    quick : Algorithm
        Bounds a module before it is solved.
    search : Algorithm or None
        Finds a plan of a module quickly; ``None``: there is only the incumbent.
    closer : Algorithm or None
        Bounds a module on the shortest path before it is solved; ``None``: it is solved at once.
    """

    inner: Algorithm
    quick: Algorithm
    search: Algorithm | None = None
    closer: Algorithm | None = None

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Raise the bound and lower the value until they meet or the budget is spent."""
        begun = budget.elapsed_s
        if why_coupled(problem) is not None:
            return Result(incumbent, solver=NAME)
        kept = _kept(problem)
        trunk = without_rest(problem, kept)
        table = StepTable(modules_of(trunk.graph))
        first_of: dict[bytes, int] = {}
        for k, module in enumerate(table.modules):
            for i, j in ends_of(trunk, module):
                step = k, i, j
                one = table.problems[step] = module_problem(trunk, module, i, j)
                at = table.keys[step] = first_of.setdefault(module_key(one), len(first_of))
                if at not in table.low:
                    table.low[at] = self.quick(one, budget=budget, rng=rng).lower_bound_s
        best, bound = incumbent, 0.0

        def value() -> float:
            return float("inf") if best is None else best.value_s

        def tell() -> None:
            on_progress(Progress(NAME, value(), min(bound, value()), budget.elapsed_s))

        def join() -> None:
            nonlocal best
            joined = completed(problem, kept, trunk, plan_of_steps(trunk, table))
            if joined is not None and joined.value_s < value():
                best = joined
                tell()

        if best is not None:
            take_apart(trunk, kept, table, best)
        self._look(trunk, table, value(), budget, rng)
        join()
        while True:
            length, path = shortest(trunk, table.modules, table.lower)
            bound = max(bound, rounded_down(length))
            tell()
            most = 1 if budget.iterations is not None else 8
            open_ = [
                s
                for s in path
                if table.upper(s) * (1.0 - CLOSE) > table.lower(s) and table.tries.get(table.keys[s], 0) < most
            ]
            if not open_ or budget.spent or bound >= value() * (1.0 - CLOSE):
                break
            # Small ones first, so that large ones have little to spare; then what is furthest from being known.
            step = min(open_, key=lambda s: (table.effort(s), table.lower(s) - table.upper(s), s[0]))
            spare = value() - (length - table.lower(step)) if np.isfinite(value()) else float("inf")
            if table.keys[step] not in table.closer:
                table.closer.add(table.keys[step])
                self._look_closer(table, step, spare, budget, rng)
                join()
                continue
            self._solve(table, step, spare, budget, rng)
            join()
        improved = best is not incumbent or incumbent is None
        name = NAME if improved else incumbent.provenance.solver if incumbent is not None else ""
        if not np.isfinite(bound):
            bound = 0.0
        return Result(best, bound, "", budget.elapsed_s - begun, name, {NAME: bound})

    def _look(self, trunk: Problem, table: StepTable, value_s: float, budget: Budget, rng: np.random.Generator) -> None:
        """Find a plan of each step that may be part of one below ``value_s``, the likeliest first."""
        before, behind = distances(trunk, table)
        through = {
            s: before[s[0]].get(s[1], np.inf) + table.lower(s) + behind[s[0] + 1].get(s[2], np.inf) for s in table.keys
        }
        part = Budget(budget.left_s * SEARCH_SHARE, None, budget.cancelled)
        for step in sorted(through, key=lambda s: (through[s], s)):
            one = table.problems[step]
            if through[step] >= value_s or part.spent:
                break
            if table.keys[step] in table.found:
                continue
            if len(one.graph) <= 2:
                table.keep(step, plan_for(one, one.allowed.argmax(axis=1)))
            elif self.search is not None:
                moves = Budget(part.left_s, min(MOVES_AN_OPERATOR * len(one.graph), MOST_MOVES), budget.cancelled)
                table.keep(step, self.search(one, budget=moves, rng=rng).plan)

    def _look_closer(
        self, table: StepTable, step: Step, spare_s: float, budget: Budget, rng: np.random.Generator
    ) -> None:
        """Bound a step on the path more closely, or, where it is large, search for a better plan."""
        at, one = table.keys[step], table.problems[step]
        n = len(one.graph)
        if self.closer is not None and n <= CLOSER_UP_TO:
            part = budget.share(1.0, at_most_s=CLOSER_S)
            table.raise_to(step, self.closer(one, budget=part, rng=rng).lower_bound_s)
        if (
            self.search is not None
            and MOVES_AN_OPERATOR * n > MOST_MOVES
            and table.upper(step) > spare_s * (1.0 + CLOSE)
        ):
            moves = Budget(budget.left_s, MOVES_AN_OPERATOR * n, budget.cancelled)
            table.keep(step, self.search(one, budget=moves, rng=rng, incumbent=table.found.get(at)).plan)

    def _solve(self, table: StepTable, step: Step, spare_s: float, budget: Budget, rng: np.random.Generator) -> None:
        """Raise the bound of a step until it is its value or ``spare_s``, or its time is spent."""
        at, one = table.keys[step], table.problems[step]
        seconds = min(budget.left_s, table.effort(step))
        table.tries[at] = table.tries.get(at, 0) + 1
        if len(one.graph) <= 2:
            # Entry and exit alone: their devices are fixed.
            table.keep(step, plan_for(one, one.allowed.argmax(axis=1)))
            table.raise_to(step, rounded_down(table.upper(step)))
            return
        part = within(one, spare_s) if np.isfinite(spare_s) else one
        enough = rounded_down(spare_s)
        if part is None:
            table.raise_to(step, enough)
            return
        start = table.found.get(at)
        if start is not None and start.value_s > spare_s and part is not one:
            start = plan_for(part, start.device_of, schedule=start.schedule)  # unless it uses what was left out
        ended = _Linked(budget.cancelled)

        def watch(progress: Progress) -> None:
            if progress.lower_bound_s * (1.0 - CLOSE) >= spare_s:
                ended.set()

        limited = Budget(seconds if budget.iterations is None else budget.left_s, budget.iterations, ended)
        solved = self.inner(part, budget=limited, rng=rng, incumbent=start, on_progress=watch)
        low = float("inf") if solved.infeasible else solved.lower_bound_s
        if part is not one:
            low = min(low, enough)
        table.raise_to(step, low)
        table.keep(step, solved.plan)


def _kept(problem: Problem) -> tuple[int, ...]:
    """Operators that are cut into modules: all if that can be done."""
    everything = tuple(range(len(problem.graph)))
    return everything if len(modules_of(problem.graph)) > 1 else trunk_of(problem)
