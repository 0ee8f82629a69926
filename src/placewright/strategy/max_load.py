"""Max-load: a good order first, then the search and the proof that fit the contiguity that is asked for."""

from __future__ import annotations

from math import inf

from placewright.bounds.max_load.configuration import Configuration
from placewright.loads import loads_of, objective_of
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.max_load import MAX_LOAD_SOLVERS
from placewright.solvers.max_load.blocks import exactly_modelled
from placewright.strategy.coarse_to_fine import CoarseToFine
from placewright.strategy.side_by_side import SideBySide
from placewright.strategy.stage import Stage, Strategy

__all__ = ["MAX_LOAD"]


TINY = 60
"""Operators up to which the integer programs have their turn before search and proof take all that is left."""


LARGE = 300
"""Units from which annealing goes from coarse to fine."""


TIGHT = 0.7
"""Part of the memory of all devices that is in use, from which memory is taken to bind."""


FEW = 4
"""Devices up to which vectors of loads without order are few enough to be tried before search and proof."""


def _stages(problem: Problem, best: Result) -> list[Stage]:
    n = len(problem.graph)

    def stage(name: str, share: float = 1.0, at_most_s: float = inf) -> list[Stage]:
        entry = MAX_LOAD_SOLVERS[name]
        fits = entry.supports(problem) is None
        return [Stage(entry.algorithm, share, at_most_s, "" if entry.exact else name)] if fits else []

    paired = MAX_LOAD_SOLVERS["pair-search"].supports(problem) is None
    ordered = stage("order-search", 0.1, 0.1 + (0.001 if paired else 0.003) * n)
    programs = [*stage("max-load-milp", 0.6), *stage("max-load-cp-sat")]
    # Links that differ by pair and shared channels: the vectors see them; the lattice bounds them, and is fast.
    split = stage("modular-split", 0.5 if exactly_modelled(problem) else 0.7)
    proof = Stage(Configuration(lower_s=best.lower_bound_s), 0.3, 0.5 + 0.05 * n)
    if objective_of(problem).contiguity == "contiguous":
        lattice = stage("ideal-dp", 0.6)
        chains = [*lattice, *split] if exactly_modelled(problem) else [*split, *lattice]
        return [*ordered, *chains, proof, *programs]
    counted = stage("counts", 0.15, 1.0 + 0.002 * n) if loads_of(problem).memory_may_bind or not paired else []
    ordered = [*ordered, *counted]
    if not paired:
        return [*ordered, *_annealed(problem), *split, proof, *programs]
    quick = Stage(SideBySide(best.lower_bound_s, 0.1 + 0.005 * n), 0.5, 0.5 + 0.05 * n, "pair-search")
    whole = Stage(SideBySide(best.lower_bound_s), 1.0, named="pair-search")
    loads = loads_of(problem)
    if loads.resident.sum() > TIGHT * loads.capacity.sum():  # the proof does not see memory, and the search only checks
        half = Stage(whole.algorithm, 0.5, inf, whole.named)
        return [*ordered, *stage("annealing", 0.1, 0.5 + 0.01 * n), half, *programs]
    few = stage("modular-split", 0.2) if len(problem.cluster) <= FEW else []
    return [*ordered, quick, *stage("max-load-milp", 0.5), whole] if n <= TINY else [*ordered, *few, whole]


def _annealed(problem: Problem) -> list[Stage]:
    """Annealing, of large networks level by level before."""
    entry, n = MAX_LOAD_SOLVERS["annealing"], len(problem.graph)
    if entry.supports(problem) is not None:
        return []
    levels = Stage(CoarseToFine(), 0.4, 0.5 + 0.02 * n, "annealing")
    units = Stage(entry.algorithm, 0.2, 0.5 + 0.01 * n, "annealing")
    return [units] if loads_of(problem).n_units < LARGE else [levels, units]


MAX_LOAD = Strategy(("single-device", "linearized-dp"), _stages)
