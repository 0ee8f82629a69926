"""From a graph to a smaller one whose placements are placements of the first: what belongs together is merged."""

from placewright.coarsen.fuse import fuse

__all__ = ["fuse"]
