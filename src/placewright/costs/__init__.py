"""Processing times of operators: measured where a device is reachable, from its peaks where it is not; and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placewright.costs.analytic import analytic
from placewright.costs.kv_cache import LayerCache, layer_caches
from placewright.costs.profile import profile
from placewright.costs.profile_report import Fallback, ProfileReport
from placewright.costs.roofline import roofline

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from placewright.costs.torch_memory import ProgramMemory

__all__ = [
    "Fallback",
    "LayerCache",
    "ProfileReport",
    "analytic",
    "layer_caches",
    "profile",
    "program_memory",
    "roofline",
]


def program_memory(program: ExportedProgram) -> ProgramMemory:
    """Find the memory of an exported torch program on one device, part by part.

    Weights by dtype, and the live tensors and the workspace of the operator at which both together are most; what torch
    takes on a CPU when the operators run one after the other. See :mod:`placewright.costs.torch_memory`.
    """
    from placewright.costs import torch_memory

    return torch_memory.program_memory(program)
