"""Solvers. ``SOLVERS`` lists them by objective and name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from placewright.solvers.entry import Entry
from placewright.solvers.makespan import MAKESPAN_SOLVERS
from placewright.solvers.max_load import MAX_LOAD_SOLVERS
from placewright.solvers.offload import OFFLOAD_SOLVERS
from placewright.solvers.throughput import THROUGHPUT_SOLVERS

__all__ = ["SOLVERS"]

SOLVERS: Mapping[str, Mapping[str, Entry]] = MappingProxyType(
    {
        "makespan": MAKESPAN_SOLVERS,
        "max-load": MAX_LOAD_SOLVERS,
        "throughput": THROUGHPUT_SOLVERS,
        "offload": OFFLOAD_SOLVERS,
    }
)
"""Objective -> name -> solver."""
