"""Solvers for the throughput: one file an algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from placewright.solvers.entry import Entry
from placewright.solvers.max_load.ideal_dp import IdealDp
from placewright.solvers.max_load.order_search import OrderSearch
from placewright.solvers.max_load.pair_search import PairSearch
from placewright.solvers.single_device import single_device
from placewright.solvers.throughput.copies import Copies
from placewright.solvers.throughput.copies_exact import CopiesExact
from placewright.solvers.throughput.data_parallel import data_parallel
from placewright.solvers.throughput.model_parallel import ModelParallel
from placewright.solvers.throughput.servers import ServerTeams, why_not_servers

__all__ = ["THROUGHPUT_SOLVERS"]

THROUGHPUT_SOLVERS: Mapping[str, Entry] = MappingProxyType(
    {
        "single-device": Entry(
            single_device, False, "everything on one device: the fastest that holds it", starts_afresh=True
        ),
        "data-parallel": Entry(
            data_parallel, False, "the whole network on every device that holds it, best shares", starts_afresh=True
        ),
        "model-parallel": Entry(
            ModelParallel((OrderSearch(),), (IdealDp(),), (PairSearch(),)),
            False,
            "one copy, parted in the best way: the plan of the max-load",
            starts_afresh=True,
        ),
        "copies": Entry(
            Copies(), False, "copies cut from a linear program of divided ones, mixed and priced", Copies().supports
        ),
        "copies-exact": Entry(
            CopiesExact(), True, "every placement of a small network as a column (HiGHS)", CopiesExact().supports
        ),
        "servers": Entry(
            ServerTeams(), False, "teams of servers by kind, each planned once; for many alike", why_not_servers
        ),
    }
)
"""Name -> solver."""
