"""A ``PipelineModule`` of DeepSpeed with the stages of a plan.

DeepSpeed has no option for uneven stages (https://deepspeed.readthedocs.io/en/latest/pipeline.html,
``partition_method`` is ``uniform``, ``parameters`` or ``type:REGEX``); ``PipelineModule._partition_layers`` sets them,
so a subclass can.
"""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

from placewright.export.device_words import stage_lines
from placewright.export.modules import module_devices
from placewright.export.nearest import Nearest, Rules
from placewright.export.target import Exported

__all__ = ["RULES", "write"]

RULES = Rules("DeepSpeed", "whole layers in a row of accelerators", ends=False, cpus="nowhere")

PROGRAM = '''{comments}
from deepspeed.pipe import PipelineModule

LAYERS = {layers}


class PlacedPipeline(PipelineModule):
    """Give it the layers in the order of LAYERS, and num_stages={stages}."""

    def _partition_layers(self, method="uniform"):
        self.parts = {parts}
        stage = self._topo.get_coord(self.global_rank).pipe
        self._set_bounds(start=self.parts[stage], stop=self.parts[stage + 1])
'''


def write(found: Nearest, folder: Path) -> Exported:
    """Write a Python module with the subclass."""
    devices = module_devices(found.problem.graph, found.plan.device_of)
    order = [stage.device for stage in found.stages]
    layers = sorted(devices, key=lambda path: order.index(devices[path]))
    counts = [sum(devices[path] == device for path in layers) for device in order]
    text = PROGRAM.format(comments=stage_lines(found), layers=layers, stages=len(order), parts=[0, *accumulate(counts)])
    return Exported(text)
