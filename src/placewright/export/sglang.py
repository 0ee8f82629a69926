"""Command line of SGLang for a pipeline with uneven stages.

``SGLANG_PP_LAYER_PARTITION`` lists the layers of each of ``--pp-size`` ranks
(https://docs.sglang.ai/references/environment_variables.html; ``sglang/srt/distributed/utils.py``, ``get_pp_indices``).
"""

from __future__ import annotations

import shlex
from pathlib import Path

from placewright.export.device_words import stage_lines, visible
from placewright.export.nearest import Nearest, Rules
from placewright.export.target import Exported

__all__ = ["RULES", "write"]

RULES = Rules("SGLang", "whole layers in a row of accelerators", ends=False, cpus="nowhere")


def write(found: Nearest, folder: Path) -> Exported:
    """Write the command line of each host's server, after a comment for each rank."""
    cluster = found.problem.cluster
    devices = [stage.device for stage in found.stages]
    hosts = list(dict.fromkeys(cluster.devices[i].host for i in devices))
    counts = ",".join(map(str, found.layers))
    command = (
        f"{visible(cluster, devices)}SGLANG_PP_LAYER_PARTITION={counts} python -m sglang.launch_server "
        f"--model-path MODEL --pp-size {len(devices)} --tp-size 1"
    )
    notes = []
    if len(hosts) > 1:
        notes.append(f"run it on each of {', '.join(hosts)} with --node-rank 0, 1, ... in this order")
        command += f" --nnodes {len(hosts)} --dist-init-addr {shlex.quote(hosts[0])}:50000 --node-rank RANK"
    return Exported(f"{stage_lines(found)}{command}\n", tuple(notes))
