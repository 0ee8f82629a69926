"""Solvers for the max-load: one file an algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from placewright.solvers.entry import Entry
from placewright.solvers.expert import Expert
from placewright.solvers.max_load.annealing import LoadAnnealing, why_bound
from placewright.solvers.max_load.counts import Counts
from placewright.solvers.max_load.cp_sat import LoadCpSat
from placewright.solvers.max_load.ideal_dp import IdealDp
from placewright.solvers.max_load.linearized_dp import LinearizedDp
from placewright.solvers.max_load.local_search import LocalSearch
from placewright.solvers.max_load.milp import LoadMilp
from placewright.solvers.max_load.modular_split import LoadModularSplit
from placewright.solvers.max_load.order_search import OrderSearch
from placewright.solvers.max_load.pair_search import PairSearch
from placewright.solvers.max_load.pipedream import PipeDream
from placewright.solvers.scotch import Scotch
from placewright.solvers.single_device import single_device

__all__ = ["MAX_LOAD_SOLVERS"]

MAX_LOAD_SOLVERS: Mapping[str, Entry] = MappingProxyType(
    {
        "single-device": Entry(
            single_device, False, "everything on one device: the fastest that holds it", starts_afresh=True
        ),
        "annealing": Entry(
            LoadAnnealing(), False, "annealing with moves of units and of whole regions, compiled", why_bound
        ),
        "order-search": Entry(
            OrderSearch(), False, "orders annealed, each cut into stages in the best way", OrderSearch().supports
        ),
        "pair-search": Entry(
            PairSearch(), False, "units of two devices shared out anew in the best way", PairSearch().supports
        ),
        "counts": Entry(
            Counts(),
            False,
            "how many of the alike operators each device has, by branch and cut (HiGHS); memory and a bound too",
            Counts().supports,
        ),
        "ideal-dp": Entry(
            IdealDp(), True, "best chain through the lattice of ideals; exact for contiguous plans", IdealDp().supports
        ),
        "max-load-cp-sat": Entry(
            LoadCpSat(), True, "constraint programming on whole quanta (OR-Tools CP-SAT)", LoadCpSat().supports
        ),
        "max-load-milp": Entry(LoadMilp(), True, "integer programming by branch and cut (HiGHS)", LoadMilp().supports),
        "modular-split": Entry(
            LoadModularSplit(),
            True,
            "load vectors along the operators that every path passes; exact, links and channels as they are",
            LoadModularSplit().supports,
        ),
        "linearized-dp": Entry(
            LinearizedDp(),
            False,
            "one depth-first order, cut in the best way (DPL)",
            LinearizedDp().supports,
            starts_afresh=True,
        ),
        "pipedream": Entry(
            PipeDream(),
            False,
            "branches contracted, then one order cut in the best way; replicas",
            PipeDream().supports,
            starts_afresh=True,
        ),
        "scotch": Entry(
            Scotch(),
            False,
            "graph partitioning by the program scotch_gpart; knows no memory, not contiguous",
            Scotch().supports,
            starts_afresh=True,
        ),
        "local-search": Entry(
            LocalSearch(),
            False,
            "best single moves from random placements; knows no memory, not contiguous",
            starts_afresh=True,
        ),
        "expert": Entry(
            Expert(),
            False,
            "a placement of a file, as it is: --expert SPLIT.json",
            Expert().supports,
            starts_afresh=True,
        ),
    }
)
"""Name -> solver."""
