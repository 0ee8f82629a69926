"""Cut the network where every path passes, solve the modules for each pair of devices at their ends, join them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from placewright.algorithm import Algorithm, Budget, OnProgress, Progress, ignore
from placewright.arrays import arrays_of
from placewright.evaluate import plan_for
from placewright.plan import Plan, Provenance, Schedule, Transfer
from placewright.problem import Problem
from placewright.result import Result
from placewright.rounding import rounded_down
from placewright.solvers.makespan.modules import Module, module_key, module_problem, modules_of

__all__ = ["ModularSplit", "why_coupled"]

Step: TypeAlias = tuple[int, int, int]
"""Index of a module, device of its entry, device of its exit."""


def why_coupled(problem: Problem) -> str | None:
    """Say why modules are not independent here, or ``None``: memory that may bind, classes across modules, no cuts."""
    if arrays_of(problem).memory_may_bind:
        return "memory couples the modules; use makespan-cp-sat or annealing"
    modules = modules_of(problem.graph)
    if len(modules) < 2:
        return "no operator lies on every path, so there are no modules; use makespan-cp-sat or annealing"
    home = {v: k for k, m in enumerate(modules) for v in (*m.inner, *(() if m.exit is None else (m.exit,)))}
    for members in problem.graph.colocation:
        if len({home[v] for v in members}) > 1 or any(modules[home[v]].exit == v for v in members):
            return "a colocation class couples the modules; use makespan-cp-sat or annealing"
    return None


@dataclass(slots=True)
class _Table:
    """What is known of each distinct module with fixed ends: bound, plan, whether it was solved."""

    low: dict[int, float] = field(default_factory=dict)
    found: dict[int, Plan] = field(default_factory=dict)
    tried: set[int] = field(default_factory=set)


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

    V is found lazily: a shortest path under lower bounds of V is computed, a module on it that is not solved yet is
    solved by ``inner``, and so on until all modules on the shortest path are solved. With bounds instead of optima
    (an inner search that ran out of time) the path's length remains a lower bound. Equal modules are solved once.
    The idea is DiviML's module-based splitting (arXiv 2308.00127); formulation and proof are ours.

    Attributes
    ----------
    inner : Algorithm
        Solves a module: exact, or at least bounding.
    quick : Algorithm
        Bounds a module before it is solved.
    """

    inner: Algorithm
    quick: Algorithm

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
            return Result(incumbent, solver="modular-split")
        modules = modules_of(problem.graph)
        problems: dict[Step, Problem] = {}
        keys: dict[Step, int] = {}
        table, first_of = _Table(), dict[bytes, int]()
        for k, module in enumerate(modules):
            for i, j in _ends(problem, module):
                one = problems[k, i, j] = module_problem(problem, module, i, j)
                at = keys[k, i, j] = first_of.setdefault(module_key(one), len(first_of))
                if at not in table.low:
                    table.low[at] = self.quick(one, budget=budget, rng=rng).lower_bound_s
        best, bound = incumbent, 0.0
        while True:
            length, path = _shortest(problem, modules, lambda step: table.low[keys[step]])
            bound = max(bound, rounded_down(length))
            value = float("inf") if best is None else best.value_s
            on_progress(Progress("modular-split", value, min(bound, value), budget.elapsed_s))
            open_ = [step for step in path if keys[step] not in table.tried]
            if not open_ or budget.spent or bound >= value:
                break
            # The module with most operators first: it is likeliest to move the path.
            step = max(open_, key=lambda s: (len(modules[s[0]].inner), -s[0]))
            at = keys[step]
            solved = self._solve(problems[step], budget.share(1.0 / max(1, len(open_))), rng)
            table.tried.add(at)
            table.low[at] = float("inf") if solved.infeasible else max(table.low[at], solved.lower_bound_s)
            if solved.plan is not None:
                table.found[at] = solved.plan
                joined = _join(problem, modules, table, keys)
                if joined is not None and joined.value_s < value:
                    best = joined
        improved = best is not incumbent or incumbent is None
        name = "modular-split" if improved else incumbent.provenance.solver if incumbent is not None else ""
        if not np.isfinite(bound):
            bound = 0.0
        return Result(best, bound, "", budget.elapsed_s - begun, name, {"modular-split": bound})

    def _solve(self, one: Problem, budget: Budget, rng: np.random.Generator) -> Result:
        if len(one.graph) <= 2:
            # Entry and exit alone: their devices are fixed.
            plan = plan_for(one, one.allowed.argmax(axis=1))
            return Result(plan, 0.0 if plan is None else rounded_down(plan.value_s), "" if plan else "no link")
        return self.inner(one, budget=budget, rng=rng)


def _ends(problem: Problem, module: Module) -> list[tuple[int, int]]:
    """Pairs of devices that entry and exit may use; 0 stands for an end that is not there."""
    entry, last = (
        [0] if v is None else np.flatnonzero(problem.allowed[v]).tolist() for v in (module.entry, module.exit)
    )
    return [(i, j) for i in entry for j in last]


def _shortest(problem: Problem, modules: list[Module], length_of: Callable[[Step], float]) -> tuple[float, list[Step]]:
    """Length of the shortest way through all modules, and its steps (module, entry device, exit device)."""
    reach: dict[int, tuple[float, list[Step]]] = {0: (0.0, [])}
    for k, module in enumerate(modules):
        following: dict[int, tuple[float, list[Step]]] = {}
        for i, j in _ends(problem, module):
            if i not in reach:
                continue
            total = reach[i][0] + length_of((k, i, j))
            if j not in following or total < following[j][0]:
                following[j] = total, [*reach[i][1], (k, i, j)]
        reach = following
    return min(reach.values(), key=lambda r: r[0], default=(float("inf"), []))


def _join(problem: Problem, modules: list[Module], table: _Table, keys: dict[Step, int]) -> Plan | None:
    """Best plan made of the modules' plans so far, or ``None`` when they don't connect yet."""

    def length_of(step: Step) -> float:
        plan = table.found.get(keys[step])
        return float("inf") if plan is None else plan.value_s

    length, path = _shortest(problem, modules, length_of)
    if not np.isfinite(length):
        return None
    n = len(problem.graph)
    device = np.zeros(n, dtype=np.int32)
    start, finish = np.zeros(n), np.zeros(n)
    transfers: list[Transfer] = []
    offset = 0.0
    index = {t.name: u for u, t in enumerate(problem.graph.tensors)}
    for k, i, j in path:
        module, plan = modules[k], table.found[keys[k, i, j]]
        operators = module.operators
        for local, v in enumerate(operators):
            if v == module.entry:
                continue
            device[v] = plan.device_of[local]
            start[v] = offset + plan.schedule.start_s[local]
            finish[v] = offset + plan.schedule.finish_s[local]
        names = [problem.graph.tensors[u].name for u in module.tensors_in(problem.graph)]
        for t in plan.schedule.transfers:
            transfers.append(
                Transfer(index[names[t.tensor]], t.source, t.target, offset + t.start_s, offset + t.finish_s)
            )
        offset += plan.value_s
    provenance = Provenance("modular-split", None, "", {"modules": len(modules)})
    return plan_for(problem, device, schedule=Schedule(start, finish, tuple(transfers)), provenance=provenance)
