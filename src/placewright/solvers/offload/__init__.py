"""Solvers for the offload latency: one file an algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from placewright.problem import Problem
from placewright.solvers.entry import Entry
from placewright.solvers.expert import Expert
from placewright.solvers.max_load.ideal_dp import IdealDp
from placewright.solvers.max_load.linearized_dp import LinearizedDp
from placewright.solvers.offload.call_annealing import CallAnnealing
from placewright.solvers.offload.cp_sat import OffloadCpSat
from placewright.solvers.offload.greedy import greedy
from placewright.solvers.offload.max_load_split import MaxLoadSplit
from placewright.solvers.offload.milp import OffloadMilp
from placewright.solvers.offload.spine_plan import SpinePlan
from placewright.solvers.scotch import Scotch
from placewright.solvers.single_device import single_device

__all__ = ["OFFLOAD_SOLVERS"]

_SPLIT = MaxLoadSplit(quick=LinearizedDp(), inner=IdealDp())


def _splits(problem: Problem) -> str | None:
    pipeline = _SPLIT.pipeline(problem)
    return LinearizedDp().supports(pipeline) or IdealDp().supports(pipeline)


OFFLOAD_SOLVERS: Mapping[str, Entry] = MappingProxyType(
    {
        "single-device": Entry(
            single_device, False, "everything on one device: the fastest that holds it", starts_afresh=True
        ),
        "offload-greedy": Entry(
            greedy, False, "accelerators filled in turn along a depth-first order", starts_afresh=True
        ),
        "max-load-split": Entry(
            _SPLIT, False, "the contiguous split of the least max-load, as one call each", _splits, starts_afresh=True
        ),
        "spine-plan": Entry(SpinePlan(), False, "the calls of the spine bound's intervals, and the bound"),
        "call-annealing": Entry(CallAnnealing(), False, "regions of the split moved while the temperature falls"),
        "offload-cp-sat": Entry(
            OffloadCpSat(), True, "constraint programming on whole quanta (OR-Tools CP-SAT)", OffloadCpSat().supports
        ),
        "offload-milp": Entry(
            OffloadMilp(), True, "the published integer program by branch and cut (HiGHS)", OffloadMilp().supports
        ),
        "scotch": Entry(
            Scotch(),
            False,
            "graph partitioning by the program scotch_gpart; knows no memory and no limit of calls",
            Scotch().supports,
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
