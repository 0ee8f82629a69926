"""Makespan: list schedules, then a search and proofs side by side."""

from __future__ import annotations

from placewright.bounds import PROOFS
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.makespan import MAKESPAN_SOLVERS
from placewright.solvers.makespan.cp_sat import CpSat
from placewright.solvers.makespan.modules import modules_of
from placewright.strategy.search_and_proof import SearchAndProof
from placewright.strategy.stage import Stage, Strategy

__all__ = ["MAKESPAN"]

TINY = 30
"""Operators up to which constraint programming comes before search, which it makes needless."""

EXACT_UP_TO = 150
"""Most operators for which constraint programming has its turn beside the search."""

IN_A_ROW_UP_TO = 5_000
"""Most operators that are split in their order first of all."""

LARGE = 5_000
"""Operators from which on list schedules from changed ranks are better than what no search has time for."""

SLOW_LISTS_UP_TO = 3_000
"""Most operators for which the list schedulers that solve linear programs have their turn; beyond, search by lists."""

MOVED_UP_TO = 30_000
"""Most operators for which search by lists leaves the greater part of the budget to search by moves."""

PROOF_SHARES = {"refuted-spans": 0.45}
"""Shares of what is left of the budget: wide networks need it for refuting, where prices of windows do little."""

SPLIT_SHARE = 0.35
"""Of the budget for splitting into modules first of all: where they are small that ends at once with a proof."""

FEW_MODULES, SMALL_MODULES_SHARE = 6, 0.9
"""Where no module has more than a sixth of the operators, splitting gets nearly all: nothing else proves as much."""


def _largest_module(problem: Problem) -> int:
    return max((len(module.inner) for module in modules_of(problem.graph)), default=len(problem.graph))


def _stages(problem: Problem, best: Result) -> list[Stage]:
    n = len(problem.graph)

    def fits(name: str) -> bool:
        return MAKESPAN_SOLVERS[name].supports(problem) is None

    def stage(name: str, share: float, at_most_s: float = float("inf")) -> list[Stage]:
        entry = MAKESPAN_SOLVERS[name]
        return [Stage(entry.algorithm, share, at_most_s, name)] if fits(name) else []

    lists = [*stage("m-sct", 0.1), *stage("getf", 0.05)]
    if n > SLOW_LISTS_UP_TO:
        # The more operators, the less a move of one of them says, and the longer it takes to time.
        lists = stage("list-search", 0.4 if n <= MOVED_UP_TO else 0.9)
    quick = [*stage("large-neighbourhood", 0.1, 0.05 + 0.002 * n)] if n <= EXACT_UP_TO else []
    if n <= TINY and fits("makespan-cp-sat"):
        lists.append(Stage(MAKESPAN_SOLVERS["large-neighbourhood"].algorithm, 0.1, 0.1, "large-neighbourhood"))
        quick = [Stage(MAKESPAN_SOLVERS["makespan-cp-sat"].algorithm, 0.3)]
    proofs = [(name, proof, PROOF_SHARES.get(name, 0.3)) for name, proof in PROOFS["makespan"].items()]
    if fits("modular-split"):
        share = SPLIT_SHARE if _largest_module(problem) > n / FEW_MODULES else SMALL_MODULES_SHARE
        proofs.insert(0, ("modular-split", MAKESPAN_SOLVERS["modular-split"].algorithm, share))
    if n > LARGE and fits("list-search"):
        proofs.insert(0, ("list-search", MAKESPAN_SOLVERS["list-search"].algorithm, 0.4))
    if fits("decision-diagram"):
        proofs.append(("decision-diagram", MAKESPAN_SOLVERS["decision-diagram"].algorithm, 0.5))
    if fits("modular-split"):
        proofs.append(("modular-split", MAKESPAN_SOLVERS["modular-split"].algorithm, 0.7))
    if n <= EXACT_UP_TO and fits("makespan-cp-sat"):
        proofs.append(("makespan-cp-sat", CpSat(workers=1), 0.7))
    # No split of layers that another program makes is better than the best one in their order.
    row = Stage(MAKESPAN_SOLVERS["row-split"].algorithm, 0.1)
    lists = [row, *lists] if fits("row-split") and n <= IN_A_ROW_UP_TO else lists
    return [*lists, *quick, Stage(SearchAndProof(tuple(proofs), best.lower_bound_s), named="large-neighbourhood")]


MAKESPAN = Strategy(("single-device", "heft", "etf", "celeritas", "m-topo", "m-etf"), _stages)
