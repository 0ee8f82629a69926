"""Modules with fixed devices at their ends: what is known of each, the shortest way through, plans made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from placewright.evaluate import plan_for
from placewright.plan import Plan, Provenance, Schedule, Transfer
from placewright.problem import Problem
from placewright.solvers.makespan.modules import Module

__all__ = ["NAME", "Step", "StepTable", "completed", "distances", "ends_of", "plan_of_steps", "shortest", "take_apart"]

NAME = "modular-split"

Step: TypeAlias = tuple[int, int, int]
"""Index of a module, device of its entry, device of its exit."""

FIRST_TRY_S, SIZE = 2.0, 40
"""Seconds that a module is worked on at first, for each so many operators."""


@dataclass(slots=True)
class StepTable:
    """What is known of each distinct module with fixed ends: bound, plan, how often it was worked on."""

    modules: list[Module]
    problems: dict[Step, Problem] = field(default_factory=dict)
    keys: dict[Step, int] = field(default_factory=dict)
    low: dict[int, float] = field(default_factory=dict)
    found: dict[int, Plan] = field(default_factory=dict)
    tries: dict[int, int] = field(default_factory=dict)
    closer: set[int] = field(default_factory=set)
    """Those that were bounded closely."""

    def lower(self, step: Step) -> float:
        """Lower bound of a step."""
        return self.low[self.keys[step]]

    def upper(self, step: Step) -> float:
        """Value of the best plan of a step so far."""
        plan = self.found.get(self.keys[step])
        return float("inf") if plan is None else plan.value_s

    def effort(self, step: Step) -> float:
        """Seconds that the next try may take; each has four times as long as the one before."""
        size = len(self.problems[step].graph) // SIZE
        return float(FIRST_TRY_S * (1 + size) * 4.0 ** self.tries.get(self.keys[step], 0))

    def raise_to(self, step: Step, bound_s: float) -> None:
        """Take note of a lower bound."""
        self.low[self.keys[step]] = max(self.lower(step), bound_s)

    def keep(self, step: Step, plan: Plan | None) -> None:
        """Keep a plan that is better than the one before."""
        if plan is not None and plan.value_s < self.upper(step):
            self.found[self.keys[step]] = plan


def ends_of(problem: Problem, module: Module) -> list[tuple[int, int]]:
    """Pairs of devices that entry and exit may use; 0 stands for an end that is not there."""
    entry, last = (
        [0] if v is None else np.flatnonzero(problem.allowed[v]).tolist() for v in (module.entry, module.exit)
    )
    return [(i, j) for i in entry for j in last]


def distances(problem: Problem, table: StepTable) -> tuple[list[dict[int, float]], list[dict[int, float]]]:
    """Shortest ways under the lower bounds to each device between modules, and from there to the end."""
    K = len(table.modules)
    before: list[dict[int, float]] = [{0: 0.0}, *({} for _ in range(K))]
    behind: list[dict[int, float]] = [{} for _ in range(K + 1)]
    for k, module in enumerate(table.modules):
        for i, j in ends_of(problem, module):
            if i in before[k]:
                way = before[k][i] + table.lower((k, i, j))
                before[k + 1][j] = min(before[k + 1].get(j, np.inf), way)
    behind[K] = dict.fromkeys(before[K], 0.0)
    for k in range(K - 1, -1, -1):
        for i, j in ends_of(problem, table.modules[k]):
            if j in behind[k + 1]:
                way = behind[k + 1][j] + table.lower((k, i, j))
                behind[k][i] = min(behind[k].get(i, np.inf), way)
    return before, behind


def shortest(problem: Problem, modules: list[Module], length_of: Callable[[Step], float]) -> tuple[float, list[Step]]:
    """Length of the shortest way through all modules, and its steps (module, entry device, exit device)."""
    reach: dict[int, tuple[float, list[Step]]] = {0: (0.0, [])}
    for k, module in enumerate(modules):
        following: dict[int, tuple[float, list[Step]]] = {}
        for i, j in ends_of(problem, module):
            if i not in reach:
                continue
            total = reach[i][0] + length_of((k, i, j))
            if j not in following or total < following[j][0]:
                following[j] = total, [*reach[i][1], (k, i, j)]
        reach = following
    return min(reach.values(), key=lambda r: r[0], default=(float("inf"), []))


def plan_of_steps(problem: Problem, table: StepTable) -> Plan | None:
    """Best plan made of the modules' plans so far, or ``None`` when they don't connect yet."""
    length, path = shortest(problem, table.modules, table.upper)
    if not np.isfinite(length):
        return None
    n = len(problem.graph)
    device = np.zeros(n, dtype=np.int32)
    start, finish = np.zeros(n), np.zeros(n)
    transfers: list[Transfer] = []
    offset = 0.0
    for step in path:
        module, plan = table.modules[step[0]], table.found[table.keys[step]]
        operators = module.operators
        for local, v in enumerate(operators):
            if v == module.entry:
                continue
            device[v] = plan.device_of[local]
            start[v] = offset + plan.schedule.start_s[local]
            finish[v] = offset + plan.schedule.finish_s[local]
        tensors = module.tensors_in(problem.graph)
        for t in plan.schedule.transfers:
            transfers.append(Transfer(tensors[t.tensor], t.source, t.target, offset + t.start_s, offset + t.finish_s))
        offset += plan.value_s
    provenance = Provenance(NAME, None, "", {"modules": len(table.modules)})
    return plan_for(problem, device, schedule=Schedule(start, finish, tuple(transfers)), provenance=provenance)


def take_apart(trunk: Problem, kept: tuple[int, ...], table: StepTable, plan: Plan) -> None:
    """Take note of what a plan does in each module."""
    device = plan.device_of[list(kept)]
    start, finish = plan.schedule.start_s[list(kept)], plan.schedule.finish_s[list(kept)]
    legs: dict[int, list[Transfer]] = {}
    whole = len(kept) == len(plan.device_of)
    for leg in plan.schedule.transfers if whole else ():
        legs.setdefault(leg.tensor, []).append(leg)
    for k, module in enumerate(table.modules):
        i, j = (0 if v is None else int(device[v]) for v in (module.entry, module.exit))
        one = table.problems.get((k, i, j))
        if one is None:
            continue
        rows = list(module.operators)
        begun = start[rows].copy()
        if module.entry is not None:
            begun[0] = finish[module.entry]  # its processing counts in the module before
        moved = tuple(
            Transfer(u, leg.source, leg.target, leg.start_s, leg.finish_s)
            for u, of in enumerate(module.tensors_in(trunk.graph))
            for leg in legs.get(of, [])
        )
        given = Schedule(begun, finish[rows], moved) if whole else None
        table.keep((k, i, j), plan_for(one, device[rows], schedule=given))


def completed(problem: Problem, kept: tuple[int, ...], trunk: Problem, plan: Plan | None) -> Plan | None:
    """Place what is not in the trunk: all where its first input is made, or all on one device, whichever is best."""
    if plan is None or trunk is problem:
        return plan
    graph, n = problem.graph, len(problem.graph)
    rows = list(kept)
    at = np.full(n, np.inf)
    at[rows] = plan.schedule.start_s
    order = np.lexsort((np.arange(n), at)).astype(np.int32)
    best: Plan | None = None
    for target in range(-1, len(problem.cluster)):
        device = np.full(n, -1, dtype=np.int32)
        device[rows] = plan.device_of
        for v in np.flatnonzero(device < 0).tolist():
            makers = graph.predecessors[v]
            wanted = target if target >= 0 or not makers else int(device[makers[0]])
            device[v] = wanted if wanted >= 0 and problem.allowed[v, wanted] else int(problem.allowed[v].argmax())
        made = plan_for(problem, device, order=order, provenance=plan.provenance)
        if made is not None and (best is None or made.value_s < best.value_s):
            best = made
    return best
