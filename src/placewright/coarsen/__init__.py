"""From a graph to another one whose placements are placements of the first: what belongs together is merged."""

from placewright.coarsen.duplicates import duplicate, duplicated_parts
from placewright.coarsen.fusion import fuse
from placewright.coarsen.rules import ANY, RULES, FusionRules, rules_named
from placewright.coarsen.transfers import Transfers, per_device, per_edge, transfers_of

__all__ = [
    "ANY",
    "RULES",
    "FusionRules",
    "Transfers",
    "duplicate",
    "duplicated_parts",
    "fuse",
    "per_device",
    "per_edge",
    "rules_named",
    "transfers_of",
]
