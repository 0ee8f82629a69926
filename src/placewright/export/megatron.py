"""Options of Megatron-LM for a pipeline with uneven stages.

``--pipeline-model-parallel-layout`` lists what each stage holds: ``E`` the embedding, ``t`` a decoder layer, ``L`` the
loss with the head; ``t*3`` repeats, ``|`` parts stages
(https://docs.nvidia.com/megatron-core/developer-guide/latest/user-guide/features/pipeline_parallel_layout.html).
"""

from __future__ import annotations

from pathlib import Path

from placewright.export.device_words import stage_lines
from placewright.export.nearest import Nearest, Rules
from placewright.export.target import Exported

__all__ = ["RULES", "write"]

RULES = Rules("Megatron", "whole layers in a row of accelerators", ends=False, cpus="nowhere")


def write(found: Nearest, folder: Path) -> Exported:
    """Write the options, after a comment for each rank."""
    layers = [f"t*{count}" if count > 1 else "t" for count in found.layers]
    layers[0] = f"E{layers[0]}"
    layers[-1] = f"{layers[-1]}L" if layers[-1].endswith("t") else f"{layers[-1]},L"
    return Exported(
        f"{stage_lines(found)}--pipeline-model-parallel-size {len(layers)} "
        f'--pipeline-model-parallel-layout "{"|".join(layers)}"\n',
    )
