"""Command line of vLLM for a pipeline with uneven stages.

``VLLM_PP_LAYER_PARTITION`` is "a comma separated list of integers indicating the number of layers to assign to each
partition" of ``--pipeline-parallel-size`` (https://docs.vllm.ai/en/latest/configuration/env_vars.html). The embedding
is on the first rank, norm and head on the last (``vllm/distributed/utils.py``, ``get_pp_indices``).
"""

from __future__ import annotations

from pathlib import Path

from placewright.export.device_words import stage_lines, visible
from placewright.export.nearest import Nearest, Rules
from placewright.export.target import Exported

__all__ = ["RULES", "write"]

RULES = Rules("vLLM", "whole layers in a row of accelerators", ends=False, cpus="nowhere")


def write(found: Nearest, folder: Path) -> Exported:
    """Write one command line, after a comment for each rank."""
    devices = [stage.device for stage in found.stages]
    hosts = {found.problem.cluster.devices[i].host for i in devices}
    counts = ",".join(map(str, found.layers))
    command = (
        f"{visible(found.problem.cluster, devices)}VLLM_PP_LAYER_PARTITION={counts} vllm serve MODEL "
        f"--pipeline-parallel-size {len(devices)} --tensor-parallel-size 1"
    )
    if len(hosts) > 1:
        command += " --distributed-executor-backend ray"
    notes = []
    if len(hosts) > 1:
        notes.append("ranks are on several hosts; start the Ray cluster so that they come in the order of the comments")
    return Exported(f"{stage_lines(found)}{command}\n", tuple(notes))
