"""Solvers. ``SOLVERS`` lists them by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from placewright.algorithm import Algorithm
from placewright.bounds.makespan.critical_path import critical_path
from placewright.problem import Problem
from placewright.solvers.makespan.annealing import Annealing
from placewright.solvers.makespan.cp_sat import CpSat
from placewright.solvers.makespan.list_scheduling import etf, heft
from placewright.solvers.makespan.modular_split import ModularSplit, why_coupled
from placewright.solvers.makespan.single_device import single_device

__all__ = ["SOLVERS", "Entry"]


def _anything(problem: Problem) -> str | None:
    return None


def _small_enough(problem: Problem) -> str | None:
    variables = len(problem.graph.tensors) * len(problem.cluster) ** 2
    if variables <= MOST_TRANSFERS:
        return None
    return f"{variables:,} possible transfers are more than the {MOST_TRANSFERS:,} that CP-SAT can hold; use annealing"


def _splits(problem: Problem) -> str | None:
    return _small_enough(problem) or why_coupled(problem)


MOST_TRANSFERS = 100_000
"""Tensors times pairs of devices beyond which the constraint program is not built."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One solver.

    Attributes
    ----------
    algorithm : Algorithm
    objectives : tuple of str
    exact : bool
        Whether it ends with a proof, given time.
    summary : str
        One line for ``placewright solvers``.
    supports : callable
        The reason why a problem is out of reach, or ``None``.
    """

    algorithm: Algorithm
    objectives: tuple[str, ...]
    exact: bool
    summary: str
    supports: Callable[[Problem], str | None] = _anything


SOLVERS: Mapping[str, Entry] = MappingProxyType(
    {
        "single-device": Entry(
            single_device, ("makespan",), False, "everything on one device: the fastest that holds it"
        ),
        "heft": Entry(heft, ("makespan",), False, "heterogeneous earliest finish time (Topcuoglu et al. 2002)"),
        "etf": Entry(etf, ("makespan",), False, "earliest time first (Hwang et al. 1989)"),
        "annealing": Entry(Annealing(), ("makespan",), False, "annealing of placement and order, compiled"),
        "makespan-cp-sat": Entry(
            CpSat(), ("makespan",), True, "constraint programming with optional intervals (CP-SAT)", _small_enough
        ),
        "modular-split": Entry(
            ModularSplit(inner=CpSat(), quick=critical_path),
            ("makespan",),
            True,
            "modules between operators on every path, each solved by CP-SAT, joined by a shortest path",
            _splits,
        ),
    }
)
"""Name -> solver."""
