"""Solvers for the makespan: one file an algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from placewright.bounds.makespan.critical_path import critical_path
from placewright.bounds.makespan.spans import spans
from placewright.problem import Problem
from placewright.solvers.entry import Entry
from placewright.solvers.makespan.annealing import Annealing
from placewright.solvers.makespan.celeritas import Celeritas
from placewright.solvers.makespan.cp_sat import CpSat
from placewright.solvers.makespan.decision_diagram import DecisionDiagram, why_wide
from placewright.solvers.makespan.genetic import Genetic
from placewright.solvers.makespan.getf import getf, getf_supports
from placewright.solvers.makespan.large_neighbourhood import LargeNeighbourhood
from placewright.solvers.makespan.list_scheduling import etf, heft
from placewright.solvers.makespan.list_search import ListSearch
from placewright.solvers.makespan.m_etf import m_etf
from placewright.solvers.makespan.m_sct import SmallCommunicationTimes
from placewright.solvers.makespan.m_topo import m_topo
from placewright.solvers.makespan.modular_split import ModularSplit, why_no_modules
from placewright.solvers.makespan.moirai_milp import MoiraiMilp
from placewright.solvers.makespan.placeto import Placeto
from placewright.solvers.makespan.row_split import row_split, why_no_row
from placewright.solvers.single_device import single_device

__all__ = ["MAKESPAN_SOLVERS"]

MOST_TRANSFERS = 100_000
"""Tensors times pairs of devices beyond which the constraint program is not built."""


def _small_enough(problem: Problem) -> str | None:
    variables = len(problem.graph.tensors) * len(problem.cluster) ** 2
    if variables <= MOST_TRANSFERS:
        return None
    return f"{variables:,} possible transfers are more than the {MOST_TRANSFERS:,} that CP-SAT can hold; use annealing"


def _splits(problem: Problem) -> str | None:
    return _small_enough(problem) or why_no_modules(problem)


MAKESPAN_SOLVERS: Mapping[str, Entry] = MappingProxyType(
    {
        "single-device": Entry(
            single_device, False, "everything on one device: the fastest that holds it", starts_afresh=True
        ),
        "heft": Entry(heft, False, "heterogeneous earliest finish time (Topcuoglu et al. 2002)", starts_afresh=True),
        "etf": Entry(etf, False, "earliest time first (Hwang et al. 1989)", starts_afresh=True),
        "row-split": Entry(
            row_split,
            False,
            "operators in their order, a block a device: the best cuts and order of devices",
            why_no_row,
            starts_afresh=True,
        ),
        "m-topo": Entry(
            m_topo,
            False,
            "topological order cut into pieces of equal memory (Baechi, arXiv 2301.08695)",
            starts_afresh=True,
        ),
        "m-etf": Entry(m_etf, False, "earliest time first within memory (Baechi)", starts_afresh=True),
        "m-sct": Entry(
            SmallCommunicationTimes(),
            False,
            "small communication times: favourite children by linear program (Baechi)",
            SmallCommunicationTimes().supports,
            starts_afresh=True,
        ),
        "getf": Entry(
            getf,
            False,
            "earliest time first in groups of like speed (arXiv 2004.14639)",
            getf_supports,
            starts_afresh=True,
        ),
        "celeritas": Entry(
            Celeritas(),
            False,
            "clusters cut from a depth-first order, placed in turn (arXiv 2208.00184)",
            starts_afresh=True,
        ),
        "list-search": Entry(ListSearch(), False, "list schedules from changed ranks: for very large networks"),
        "annealing": Entry(Annealing(), False, "annealing of placement and order, compiled"),
        "genetic": Entry(
            Genetic(), False, "genetic algorithm on placement and order (Wang, Siegel et al. 1997), compiled"
        ),
        "placeto": Entry(
            Placeto(), False, "graph network trained by policy gradient (arXiv 1906.08879)", Placeto().supports
        ),
        "large-neighbourhood": Entry(
            LargeNeighbourhood(), False, "annealing with moves timed where they reach, and windows solved by CP-SAT"
        ),
        "makespan-cp-sat": Entry(
            CpSat(), True, "constraint programming with optional intervals (CP-SAT)", _small_enough
        ),
        "decision-diagram": Entry(
            DecisionDiagram(),
            False,
            "narrow networks: states at ideals, merged for the bound and dropped for the plan, from both ends",
            why_wide,
        ),
        "modular-split": Entry(
            ModularSplit(inner=CpSat(), quick=critical_path, search=Annealing(), closer=spans),
            True,
            "modules between operators on every path, each solved by CP-SAT, joined by a shortest path",
            _splits,
        ),
        "moirai-milp": Entry(
            MoiraiMilp(), True, "Moirai's mixed-integer program (Zhang et al. 2023), by HiGHS", MoiraiMilp().supports
        ),
    }
)
"""Name -> solver."""
