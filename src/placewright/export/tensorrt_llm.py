"""Options of TensorRT-LLM for a pipeline with uneven stages.

``pp_partition`` of the LLM API is the "pipeline parallel partition, a list of each rank's layer number"
(``tensorrt_llm/llmapi/llm_args.py``); ``trtllm-serve`` reads options of that API from a YAML file
(https://nvidia.github.io/TensorRT-LLM/commands/trtllm-serve/trtllm-serve.html, ``--extra_llm_api_options``).
"""

from __future__ import annotations

from pathlib import Path

from placewright.export.device_words import stage_lines, visible
from placewright.export.nearest import Nearest, Rules
from placewright.export.target import Exported

__all__ = ["RULES", "write"]

RULES = Rules("TensorRT-LLM", "whole layers in a row of accelerators", ends=False, cpus="nowhere")


def write(found: Nearest, folder: Path) -> Exported:
    """Write the YAML file; its first line says how it is used."""
    devices = [stage.device for stage in found.stages]
    return Exported(
        f"# {visible(found.problem.cluster, devices)}trtllm-serve MODEL --extra_llm_api_options THIS_FILE\n"
        f"{stage_lines(found)}"
        f"pipeline_parallel_size: {len(devices)}\n"
        "tensor_parallel_size: 1\n"
        f"pp_partition: [{', '.join(map(str, found.layers))}]\n",
    )
