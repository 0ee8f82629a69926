"""From a graph to another one whose placements are placements of the first: what belongs together is merged."""

from placewright.coarsen.duplicates import duplicate, duplicated_parts
from placewright.coarsen.fuse import fuse
from placewright.coarsen.transfers import Transfers, per_device, per_edge, transfers_of

__all__ = ["Transfers", "duplicate", "duplicated_parts", "fuse", "per_device", "per_edge", "transfers_of"]
