"""From a graph to another one whose placements are placements of the first: what belongs together is merged."""

from placewright.coarsen.chains import chains
from placewright.coarsen.coarse import Coarse, contract
from placewright.coarsen.colocation import colocated
from placewright.coarsen.duplicates import duplicate, duplicated_parts
from placewright.coarsen.fusion import fuse
from placewright.coarsen.repeated_blocks import Repeat, block_groups, repeated_blocks
from placewright.coarsen.rules import ANY, RULES, FusionRules, rules_named
from placewright.coarsen.transfers import Transfers, per_device, per_edge, transfers_of

__all__ = [
    "ANY",
    "RULES",
    "Coarse",
    "FusionRules",
    "Repeat",
    "Transfers",
    "block_groups",
    "chains",
    "colocated",
    "contract",
    "duplicate",
    "duplicated_parts",
    "fuse",
    "per_device",
    "per_edge",
    "repeated_blocks",
    "rules_named",
    "transfers_of",
]
