"""Proven lower bounds by objective and name: ``BOUNDS``, the quick ones, and ``PROOFS``, which need time and a plan."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from placewright.algorithm import Algorithm
from placewright.bounds.makespan.critical_path import critical_path
from placewright.bounds.makespan.fractional_load import fractional_load
from placewright.bounds.makespan.priced_spans import PricedSpans
from placewright.bounds.makespan.refuted_spans import RefutedSpans
from placewright.bounds.makespan.spans import spans
from placewright.bounds.max_load.configuration import Configuration
from placewright.bounds.max_load.fractional_load import fractional_load as divided_max_load
from placewright.bounds.max_load.modules import PricedModules
from placewright.bounds.offload.critical_path import critical_path as offload_path
from placewright.bounds.offload.spine import SpineBound
from placewright.bounds.throughput.fractional_cuts import fractional_cuts
from placewright.bounds.throughput.fractional_load import fractional_load as divided_throughput
from placewright.bounds.throughput.servers import servers

__all__ = ["BOUNDS", "PROOFS"]

BOUNDS: Mapping[str, Mapping[str, Algorithm]] = MappingProxyType(
    {
        "makespan": MappingProxyType(
            {"critical-path": critical_path, "fractional-load": fractional_load, "spans": spans}
        ),
        "max-load": MappingProxyType({"fractional-load": divided_max_load}),
        "throughput": MappingProxyType(
            {"fractional-load": divided_throughput, "fractional-cuts": fractional_cuts, "servers": servers}
        ),
        "offload": MappingProxyType({"critical-path": offload_path}),
    }
)
"""Objective -> name -> bound: in a second or less, without a plan."""

PROOFS: Mapping[str, Mapping[str, Algorithm]] = MappingProxyType(
    {
        "makespan": MappingProxyType({"refuted-spans": RefutedSpans(), "priced-spans": PricedSpans()}),
        "max-load": MappingProxyType({"configuration": Configuration(), "priced-modules": PricedModules()}),
        "throughput": MappingProxyType({}),
        "offload": MappingProxyType({"spine": SpineBound()}),
    }
)
"""Objective -> name -> bound that works its way up to the value of an incumbent until its budget is spent."""
