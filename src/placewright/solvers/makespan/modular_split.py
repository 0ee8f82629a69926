"""Cut the network where every path passes, solve the modules for each pair of devices at their ends, join them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from placewright.algorithm import Algorithm, Budget, OnProgress, Progress, ignore
from placewright.arrays import arrays_of
from placewright.evaluate import plan_for
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.result import Result
from placewright.rounding import rounded_down
from placewright.solvers.makespan.module_chain import ModuleChain
from placewright.solvers.makespan.module_memory import within_memory
from placewright.solvers.makespan.module_refute import schedule_within
from placewright.solvers.makespan.module_steps import NAME, StepTable, joined, take_apart
from placewright.solvers.makespan.module_trunk import Trunk, completed, loose_trunks, trunk_of
from placewright.solvers.makespan.modules import modules_of, within

__all__ = ["ModularSplit", "why_no_modules"]

MOVES_AN_OPERATOR, MOST_MOVES = 300, 6000
"""Moves of the quick search for each operator of a module, and for all of it."""

POLISHED, POLISH_SHARE = 8_000, 0.2
"""Moves of a longer search for each operator of a module on the best way so far, and its part of the budget."""

REFUTED_FROM = 20
"""Operators of a module from which on times are refuted one after the other."""

YOUNG = 0.15
"""Of the budget: before that, modules are minimised as they come, which is all that most networks need."""

STEP, SMALL = 0.3, 0.005
"""Part of what a module's bound lacks that is tried first, and of its value, what is tried at once in any case."""

EASIER, HARDER = 0.4, 1.5
"""What the part is multiplied with after a failure, and after a success."""

SEARCH_SHARE = 0.25
"""Of the budget, for the quick searches."""

CLOSER_S, CLOSER_UP_TO = 2.0, 70
"""Seconds that a module is bounded closely for, and the most operators that it may have."""

WITHOUT_MEMORY = 0.4
"""Of the budget, for the modules without regard to memory, where it may bind."""

NESTED_SHARE = 0.3
"""Of the budget, for cutting a large module loosely."""

MOST_CUT_LOOSELY = 3_000
"""Operators up to which cuts are looked for that tensors or operators lead past."""

CLOSE = 1e-7
"""Relative gap at which a module counts as solved."""


def why_no_modules(problem: Problem) -> str | None:
    """Say why a network falls into no modules, or ``None``."""
    if len(modules_of(trunk_of(problem).problem.graph)) > 1:
        return None
    if len(problem.graph) <= MOST_CUT_LOOSELY and next(loose_trunks(problem), None) is not None:
        return None
    return "no operator lies on every path, so there are no modules; use makespan-cp-sat or annealing"


class _Linked(threading.Event):
    """An event that is also set when another one is."""

    def __init__(self, other: threading.Event) -> None:
        super().__init__()
        self.other = other

    def is_set(self) -> bool:
        return super().is_set() or self.other.is_set()


@dataclass(eq=False)
class _Work:
    """One trunk on its way to a plan and a bound."""

    problem: Problem
    trunk: Trunk
    table: StepTable
    budget: Budget
    rng: np.random.Generator
    told: Callable[[Plan | None, float], None]
    best: Plan | None
    bound: float = 0.0
    last: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    @property
    def value_s(self) -> float:
        """Of the best plan; ``inf`` without one."""
        return float("inf") if self.best is None else self.best.value_s

    @property
    def closed(self) -> bool:
        """Whether bound and value have met."""
        return self.bound >= self.value_s * (1.0 - CLOSE)

    def join(self) -> None:
        """Make a plan of the modules' plans, if they have become better."""
        high = self.table.high
        if len(self.last) and (high == self.last).all():
            return
        self.last = high
        chain = self.table.chain
        length, path = chain.shortest(high)
        if not np.isfinite(length):
            return
        plans = [self.table.found[int(s.key[at])] for s, at in zip(chain.steps, path, strict=True)]
        self.offer(completed(self.problem, self.trunk, joined(chain, path, plans)))

    def offer(self, plan: Plan | None) -> None:
        """Keep a better plan."""
        if plan is not None and plan.value_s < self.value_s:
            self.best = plan
            self.told(self.best, self.bound)

    def prove(self, bound_s: float) -> None:
        """Keep a higher bound."""
        if bound_s > self.bound:
            self.bound = bound_s
            self.told(self.best, self.bound)


@dataclass(frozen=True, slots=True)
class ModularSplit:
    """Exact where what couples the modules is in the states between them; else a bound and a plan.

    Let c be an operator on every path (:func:`placewright.solvers.makespan.modules.modules_of`). Everything else is an
    ancestor or a descendant of c. So all operators above c, and all transfers between them and to c, end before c
    starts; all below start after c ends. Given the device of every such c, the modules between them thus occupy
    disjoint spans of time and share neither a device nor a link at any instant, whatever the contention: the best
    schedule is a sequence of best schedules of modules, and the makespan is the sum of theirs. Minimising over the
    devices of the cuts is a shortest path: F[k + 1, t] = min over s of F[k, s] + V[k, s, t], with V[k, s, t] the least
    makespan of module k from state s to state t. A cut's processing time counts in the module that it ends; the
    overhead behind it in the one that it begins.

    **States.** Without more, the state is the device of the cut. A *colocation class* with members on both sides of a
    cut that is none of them adds its device to the state there, and modules are solved with their members fixed to it:
    still exact. Up to 600 states; beyond, the classes that reach furthest are ignored in the bound, and put together
    in the plan. Equal modules with equal devices fixed are solved once, and devices that can be swapped are first
    numbered by first use (:mod:`.module_chain`).

    **Memory** is left out at first: the bound holds, and a plan that fits is as good as any. Where it does not fit,
    placements of each module are enumerated under a Lagrangian price on the bytes of each device, and joined by labels
    of time and memory per device: exact up to the live tensors at one instant (:mod:`.module_memory` has the proofs).

    V is found lazily: a shortest path under lower bounds of V is computed, the module on it whose bound is furthest
    from its plan is solved by ``inner``, and so on until the path's length meets the best plan. With bounds instead of
    optima the path's length remains a lower bound. Let U be the value of the best plan, L the length of the path, and
    c the steps of it that are one module with one choice of devices, of the bound V'. These need not take V' + (U - L)
    / c or more: devices and links that no schedule within that can use are left out of the module, and its search ends
    when its bound gets there; V >= min(bound, V' + (U - L) / c) in any case. Before that ``search`` looks for a plan
    of each step that may matter, so that U is low early.

    **Nested.** A region of a module with an entry and an exit of its own may be solved alone exactly when nothing
    outside of it can run at the same time: when every other operator is above its entry or below its exit, and no
    tensor leads past it. Then its ends are cuts, and it is a module itself: descending finds nothing more of the kind.
    Where siblings run beside it, they share its devices, and its best schedule may be none of the whole; but it takes
    no less than alone. ``closer`` (:func:`placewright.bounds.makespan.spans.spans`) bounds by such regions. In large
    modules, and where no operator lies on every path, what leads past is left out and the rest is cut (
    :func:`placewright.solvers.makespan.module_trunk.loose_trunks`): a bound, and a plan to be completed.

    Where side outputs leave no operator on every path, only the sink that can end last and what it depends on are cut
    into modules: the bound holds for the whole, the plan of the trunk is completed, and the gap may stay open.

    Guarantee: exact where what couples the modules is in the states between them; else a lower bound and a plan.
    Complexity: a program of ``inner`` for each module and choice of devices that the shortest path comes to; then
    O(modules states^2).
    Source: the idea is DiviML's module-based splitting (arXiv 2308.00127); formulation and proofs are ours.
    When to use: for networks that are a chain of blocks, as most are: it proves what the whole program can't.

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
        known = [float("inf") if incumbent is None else incumbent.value_s, 0.0]

        def told(plan: Plan | None, bound_s: float) -> None:
            known[0] = min(known[0], float("inf") if plan is None else plan.value_s)
            known[1] = max(known[1], bound_s)
            on_progress(Progress(NAME, known[0], min(known[0], known[1]), budget.elapsed_s))

        best, bound = incumbent, 0.0
        if problem.allowed.any(axis=1).all():
            trunk = trunk_of(problem)
            if len(modules_of(trunk.problem.graph)) > 1:
                best, bound = self._run(problem, trunk, budget, rng, best, told, nested=True)
            elif len(problem.graph) <= MOST_CUT_LOOSELY:
                best, bound = self._loosely(problem, budget, rng, best, told)
        improved = best is not incumbent or incumbent is None
        name = NAME if improved else incumbent.provenance.solver if incumbent is not None else ""
        if not np.isfinite(bound):
            bound = 0.0
        return Result(best, bound, "", budget.elapsed_s - begun, name, {NAME: bound})

    def _loosely(
        self,
        problem: Problem,
        budget: Budget,
        rng: np.random.Generator,
        best: Plan | None,
        told: Callable[[Plan | None, float], None],
        enough_s: float = float("inf"),
    ) -> tuple[Plan | None, float]:
        """Cut what remains when ever more of what leads past is left out."""
        bound = 0.0
        for trunk in loose_trunks(problem):
            value = float("inf") if best is None else best.value_s
            if budget.spent or bound >= min(enough_s, value * (1.0 - CLOSE)):
                break
            best, proved = self._run(problem, trunk, budget.share(0.5), rng, best, told, nested=False)
            bound = max(bound, proved)
        return best, bound

    def _run(
        self,
        problem: Problem,
        trunk: Trunk,
        budget: Budget,
        rng: np.random.Generator,
        best: Plan | None,
        told: Callable[[Plan | None, float], None],
        *,
        nested: bool,
    ) -> tuple[Plan | None, float]:
        """Split one trunk; return the best plan of the whole, and a bound."""
        chain = ModuleChain.of(trunk.problem, modules_of(trunk.problem.graph))
        table = StepTable(chain, np.zeros(len(chain.fixed)))
        binds = arrays_of(problem).memory_may_bind
        part = budget.share(WITHOUT_MEMORY) if binds else budget
        w = _Work(problem, trunk, table, part, rng, told, best)
        for key in range(len(table.low)):
            one = table.problem(key)
            able = bool(one.allowed.any(axis=1).all())
            table.low[key] = self.quick(one, budget=part, rng=rng).lower_bound_s if able else np.inf
        if best is not None:
            take_apart(trunk, table, best)
        self._look(w)
        w.join()
        self._raise(w, nested=nested)
        if binds and not w.closed and not budget.spent:
            w.budget = budget
            for plan, bound in within_memory(table, self.inner, w.value_s, budget, rng):
                w.offer(completed(problem, trunk, plan))
                w.prove(bound)
        return w.best, w.bound

    def _raise(self, w: _Work, *, nested: bool) -> None:
        """Solve modules on the shortest path until it is as long as the best plan, or the budget is spent."""
        table, chain = w.table, w.table.chain
        most = 1 if w.budget.iterations is not None else 8
        polished = False
        while True:
            if not (polished or _young(w.budget)):
                polished = True
                self._polish(w)
            length, path = chain.shortest(table.low)
            w.prove(rounded_down(length))
            on = [int(s.key[at]) for s, at in zip(chain.steps, path, strict=False)]
            high = table.high
            open_ = [
                k for k in dict.fromkeys(on) if high[k] * (1.0 - CLOSE) > table.low[k] and table.tries.get(k, 0) < most
            ]
            if not open_ or w.budget.spent or w.closed:
                return
            # Small ones first, so that large ones have little to spare; then what is furthest from being known.
            key = min(open_, key=lambda k: (table.effort(k), on.count(k) * (table.low[k] - high[k]), k))
            spare, goal = float("inf"), float("inf")
            if np.isfinite(w.value_s):
                spare = float(table.low[key]) + (w.value_s - length) / on.count(key)
                # Each step as far towards its plan as it takes all of them together to reach the best plan's value.
                lacking = sum(float(high[k] - table.low[k]) for k in on)
                if np.isfinite(lacking):
                    part = min(1.0, (w.value_s - length) / lacking)
                    goal = float(table.low[key] + (high[key] - table.low[key]) * part)
            if key not in table.closer:
                table.closer.add(key)
                self._look_closer(w, key, spare, nested=nested)
            else:
                self._solve(w, key, spare, goal)
            w.join()

    def _look(self, w: _Work) -> None:
        """Find a plan of each step that may be part of one below the best, the likeliest first."""
        table = w.table
        before, behind = table.chain.distances(table.low)
        through = np.full(len(table.low), np.inf)
        for k, s in enumerate(table.chain.steps):
            np.minimum.at(through, s.key, before[k][s.row] + table.low[s.key] + behind[k + 1][s.column])
        part = Budget(w.budget.left_s * SEARCH_SHARE, None, w.budget.cancelled)
        for key in np.argsort(through, kind="stable").tolist():
            if not through[key] < w.value_s or part.spent:
                break
            one = table.problem(key)
            if key in table.found:
                continue
            if len(one.graph) <= 2:
                table.keep(key, plan_for(one, one.allowed.argmax(axis=1)))
            elif self.search is not None:
                moves = Budget(part.left_s, min(MOVES_AN_OPERATOR * len(one.graph), MOST_MOVES), w.budget.cancelled)
                table.keep(key, self.search(one, budget=moves, rng=w.rng).plan)

    def _polish(self, w: _Work) -> None:
        """Search longer for plans of the modules on the best way so far, until all of them have had their turn."""
        table, chain, done = w.table, w.table.chain, set[int]()
        part = w.budget.share(POLISH_SHARE)
        while self.search is not None and not part.spent and w.budget.iterations is None:
            _, path = chain.shortest(table.high)
            on = [int(s.key[at]) for s, at in zip(chain.steps, path, strict=False)]
            todo = [
                k
                for k in dict.fromkeys(on)
                if k not in done
                and len(table.problem(k).graph) >= REFUTED_FROM
                and table.upper(k) * (1.0 - CLOSE) > table.low[k]
            ]
            if not todo:
                return
            key = max(todo, key=lambda k: (table.upper(k) - table.low[k], k))
            done.add(key)
            one = table.problem(key)
            moves = Budget(part.left_s, POLISHED * len(one.graph), part.cancelled)
            table.keep(key, self.search(one, budget=moves, rng=w.rng, incumbent=table.found.get(key)).plan)
            w.join()

    def _look_closer(self, w: _Work, key: int, spare_s: float, *, nested: bool) -> None:
        """Bound a step on the path more closely, or, where it is large, cut it loosely and search for a better plan."""
        table, one = w.table, w.table.problem(key)
        n = len(one.graph)
        if self.closer is not None and n <= CLOSER_UP_TO:
            part = w.budget.share(1.0, at_most_s=CLOSER_S)
            table.raise_to(key, self.closer(one, budget=part, rng=w.rng).lower_bound_s)
        elif nested and CLOSER_UP_TO < n <= MOST_CUT_LOOSELY:
            part = w.budget.share(NESTED_SHARE)
            plan, bound = self._loosely(one, part, w.rng, table.found.get(key), lambda plan, bound: None, spare_s)
            table.raise_to(key, bound)
            table.keep(key, plan)
        if self.search is not None and n >= REFUTED_FROM and table.upper(key) * (1.0 - CLOSE) > table.low[key]:
            many = MOVES_AN_OPERATOR if _young(w.budget) else POLISHED
            moves = Budget(w.budget.left_s, many * n, w.budget.cancelled)
            table.keep(key, self.search(one, budget=moves, rng=w.rng, incumbent=table.found.get(key)).plan)

    def _solve(self, w: _Work, key: int, spare_s: float, goal_s: float) -> None:
        """Raise the bound of a step until it is its value or ``spare_s``, or its time is spent."""
        table, one, budget = w.table, w.table.problem(key), w.budget
        seconds = min(budget.left_s, table.effort(key))
        known = table.found.get(key)
        if known is not None and len(one.graph) >= REFUTED_FROM and np.isfinite(goal_s) and not _young(budget):
            low, high = float(table.low[key]), known.value_s
            step = table.step.get(key, STEP)
            limit = (
                low + step * (goal_s - low) if step * (goal_s - low) > SMALL * high else min(goal_s, low + SMALL * high)
            )
            limit = min(limit, high * (1.0 - CLOSE / 2.0))
            clock = Budget(seconds, None, budget.cancelled)
            answer = schedule_within(one, limit, known, clock, w.rng)
            table.raise_to(key, answer.bound_s)
            table.keep(key, answer.plan)
            if answer.plan is not None or answer.bound_s >= limit * (1.0 - CLOSE):
                table.step[key] = min(1.0, HARDER * step)
            else:
                table.step[key] = EASIER * step
                table.tries[key] = table.tries.get(key, 0) + 1
            return
        table.tries[key] = table.tries.get(key, 0) + 1
        if len(one.graph) <= 2 and (one.allowed.sum(axis=1) == 1).all():
            # Entry and exit alone: their devices are fixed.
            table.keep(key, plan_for(one, one.allowed.argmax(axis=1)))
            table.raise_to(key, rounded_down(table.upper(key)))
            return
        part = within(one, spare_s) if np.isfinite(spare_s) else one
        enough = rounded_down(spare_s)
        if part is None:
            table.raise_to(key, enough)
            return
        start = table.found.get(key)
        if start is not None and start.value_s > spare_s and part is not one:
            start = plan_for(part, start.device_of, schedule=start.schedule)  # unless it uses what was left out
        ended = _Linked(budget.cancelled)

        def watch(progress: Progress) -> None:
            if progress.lower_bound_s * (1.0 - CLOSE) >= spare_s:
                ended.set()

        limited = Budget(seconds if budget.iterations is None else budget.left_s, budget.iterations, ended)
        solved = self.inner(part, budget=limited, rng=w.rng, incumbent=start, on_progress=watch)
        low = float("inf") if solved.infeasible else solved.lower_bound_s
        if part is not one:
            low = min(low, enough)
        table.raise_to(key, low)
        table.keep(key, solved.plan)


def _young(budget: Budget) -> bool:
    """Whether it is too early for what takes long; always, where iterations count instead of time."""
    return budget.iterations is not None or budget.elapsed_s < YOUNG * budget.seconds
