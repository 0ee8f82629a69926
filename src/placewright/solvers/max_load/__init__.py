"""Solvers for the max-load: one file an algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from placewright.solvers.entry import Entry
from placewright.solvers.max_load.annealing import LoadAnnealing, why_bound
from placewright.solvers.max_load.expert import Expert
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
