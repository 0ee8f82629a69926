"""The automatic choice: which solvers ``solve`` runs on a problem, in which order, for how long."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from placewright.strategy.makespan import MAKESPAN
from placewright.strategy.max_load import MAX_LOAD
from placewright.strategy.offload import OFFLOAD
from placewright.strategy.stage import Strategy
from placewright.strategy.throughput import THROUGHPUT

__all__ = ["STRATEGIES"]

STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {"makespan": MAKESPAN, "max-load": MAX_LOAD, "throughput": THROUGHPUT, "offload": OFFLOAD}
)
"""Objective -> strategy."""
