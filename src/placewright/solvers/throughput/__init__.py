"""Solvers for the throughput: one file an algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from placewright.solvers.entry import Entry
from placewright.solvers.single_device import single_device
from placewright.solvers.throughput.servers import ServerTeams, why_not_servers

__all__ = ["THROUGHPUT_SOLVERS"]

THROUGHPUT_SOLVERS: Mapping[str, Entry] = MappingProxyType(
    {
        "single-device": Entry(
            single_device, False, "everything on one device: the fastest that holds it", starts_afresh=True
        ),
        "servers": Entry(
            ServerTeams(), False, "teams of servers by kind, each planned once; for many alike", why_not_servers
        ),
    }
)
"""Name -> solver."""
