"""The load of a device, of its three parts: the one place where kernels put them together."""

from __future__ import annotations

from placewright._kernel.compiling import inner

__all__ = ["OVERLAPS", "device_load"]

OVERLAPS = ("none", "transfers", "full")
"""Stand for 0, 1 and 2."""


@inner
def device_load(overlap: int, busy_share: float, compute: float, enters: float, leaves: float) -> float:
    """Give the larger of what the device is busy with and what its links carry.

    overlap: 0: links carry nothing beside computing (the share is 1); 1: in and out one after the other; 2: at once.
    busy_share: part of the transfers that the device is busy with. All times are finite.
    """
    load = compute + busy_share * enters + busy_share * leaves
    if overlap == 1:
        load = max(load, enters + leaves)
    elif overlap == 2:
        load = max(load, max(enters, leaves))
    return load
