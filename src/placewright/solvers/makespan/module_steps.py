"""Modules with fixed devices: what is known of each, plans made of them, and plans taken apart into them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from placewright.evaluate import plan_for
from placewright.plan import Plan, Provenance, Schedule, Transfer
from placewright.problem import Problem
from placewright.solvers.makespan.module_chain import ModuleChain
from placewright.solvers.makespan.module_trunk import Trunk
from placewright.solvers.makespan.modules import module_problem

__all__ = ["NAME", "StepTable", "joined", "take_apart"]

NAME = "modular-split"

FIRST_TRY_S, SIZE = 2.0, 40
"""Seconds that a module is worked on at first, for each so many operators."""


@dataclass(slots=True)
class StepTable:
    """What is known of each key of a chain: bound, plan, how often it was worked on."""

    chain: ModuleChain
    low: npt.NDArray[np.float64]
    found: dict[int, Plan] = field(default_factory=dict)
    tries: dict[int, int] = field(default_factory=dict)
    closer: set[int] = field(default_factory=set)
    """Those that were bounded closely."""
    step: dict[int, float] = field(default_factory=dict)
    """Part of what a bound lacks that is tried at once."""
    _problems: dict[int, Problem] = field(default_factory=dict)

    def problem(self, key: int) -> Problem:
        """Make the module of a key with its devices fixed, once."""
        if key not in self._problems:
            k, fixed = self.chain.fixed[key]
            self._problems[key] = module_problem(self.chain.problem, self.chain.modules[k], fixed)
        return self._problems[key]

    @property
    def high(self) -> npt.NDArray[np.float64]:
        """Value of the best plan of each key so far."""
        values = np.full(len(self.low), np.inf)
        for key, plan in self.found.items():
            values[key] = plan.value_s
        return values

    def upper(self, key: int) -> float:
        """Value of the best plan of a key so far."""
        plan = self.found.get(key)
        return float("inf") if plan is None else plan.value_s

    def effort(self, key: int) -> float:
        """Seconds that the next try may take; each has four times as long as the one before."""
        size = len(self.problem(key).graph) // SIZE
        return float(FIRST_TRY_S * (1 + size) * 4.0 ** self.tries.get(key, 0))

    def raise_to(self, key: int, bound_s: float) -> None:
        """Take note of a lower bound."""
        self.low[key] = max(self.low[key], bound_s)

    def keep(self, key: int, plan: Plan | None) -> None:
        """Keep a plan that is better than the one before."""
        if plan is not None and plan.value_s < self.upper(key):
            self.found[key] = plan


def joined(chain: ModuleChain, path: list[int], plans: list[Plan]) -> Plan | None:
    """Put plans of modules one behind the other, each with the devices of its step in place of its key's.

    Parameters
    ----------
    path : list of int
        A step of each module.
    plans : list of Plan
        Of the steps' keys.
    """
    problem = chain.problem
    n = len(problem.graph)
    device = np.zeros(n, dtype=np.int32)
    start, finish = np.zeros(n), np.zeros(n)
    transfers: list[Transfer] = []
    offset = 0.0
    for module, steps, at, plan in zip(chain.modules, chain.steps, path, plans, strict=True):
        back = np.argsort(steps.turn[at])
        for local, v in enumerate(module.operators):
            if v == module.entry:
                continue
            device[v] = back[plan.device_of[local]]
            start[v] = offset + plan.schedule.start_s[local]
            finish[v] = offset + plan.schedule.finish_s[local]
        tensors = module.tensors_in(problem.graph)
        for t in plan.schedule.transfers:
            source, target = int(back[t.source]), int(back[t.target])
            transfers.append(Transfer(tensors[t.tensor], source, target, offset + t.start_s, offset + t.finish_s))
        offset += plan.value_s
    provenance = Provenance(NAME, None, "", {"modules": len(chain.modules)})
    if chain.apart:
        for members in problem.graph.colocation:
            device[list(members)] = device[members[0]]
        order = np.lexsort((np.arange(n), start)).astype(np.int32)
        return plan_for(problem, device, order=order, provenance=provenance)
    return plan_for(problem, device, schedule=Schedule(start, finish, tuple(transfers)), provenance=provenance)


def take_apart(trunk: Trunk, table: StepTable, plan: Plan) -> None:
    """Take note of what a plan of the whole does in each module."""
    chain, rows = table.chain, list(trunk.kept)
    device = plan.device_of[rows]
    start, finish = plan.schedule.start_s[rows], plan.schedule.finish_s[rows]
    legs: dict[int, list[Transfer]] = {}
    for leg in plan.schedule.transfers if trunk.whole else ():
        legs.setdefault(leg.tensor, []).append(leg)
    classes = chain.problem.graph.colocation
    states = []
    for b in chain.boundaries:
        named = [] if b.cut is None else [b.cut]
        states.append(tuple(int(device[v]) for v in (*named, *(classes[q][0] for q in b.classes))))
    for k, module in enumerate(chain.modules):
        steps, before, behind = chain.steps[k], chain.boundaries[k], chain.boundaries[k + 1]
        if states[k] not in before.states or states[k + 1] not in behind.states:
            continue
        pair = before.states.index(states[k]), behind.states.index(states[k + 1])
        here = np.flatnonzero((steps.row == pair[0]) & (steps.column == pair[1]))
        if not len(here):
            continue
        at = int(here[0])
        key, turn = int(steps.key[at]), steps.turn[at]
        own = list(module.operators)
        begun = start[own].copy()
        if module.entry is not None:
            begun[0] = finish[module.entry]  # its processing counts in the module before
        moved = tuple(
            Transfer(u, int(turn[leg.source]), int(turn[leg.target]), leg.start_s, leg.finish_s)
            for u, of in enumerate(module.tensors_in(chain.problem.graph))
            for leg in legs.get(of, [])
        )
        given = Schedule(begun, finish[own], moved) if trunk.whole else None
        table.keep(key, plan_for(table.problem(key), turn[device[own]].astype(np.int32), schedule=given))
