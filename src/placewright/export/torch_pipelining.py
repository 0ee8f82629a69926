"""A ``split_spec`` of torch.distributed.pipelining, in a script that runs it.

``pipeline(module, mb_args, mb_kwargs, split_spec)`` cuts before the modules that ``split_spec`` names
(https://docs.pytorch.org/docs/stable/distributed.pipelining.html, "Option 2: splitting a model automatically").
"""

from __future__ import annotations

import re
from pathlib import Path

from placewright.export.device_words import accelerator_index, bus_order, stage_lines
from placewright.export.modules import NODE_NAMES
from placewright.export.nearest import Nearest, Rules
from placewright.export.target import Exported

__all__ = ["RULES", "write"]

RULES = Rules("torch pipelining", "whole modules in a row of devices")

PROGRAM = '''{comments}# torchrun --nproc-per-node {stages} THIS_FILE, in the folder of the network's module

import importlib
import os

{order}import torch
import torch.distributed as dist
from torch.distributed.pipelining import ScheduleGPipe, SplitPoint, pipeline

SPLIT_SPEC = {{{split}}}
DEVICES = {devices}
NETWORK = "{network}"  # package.module:function that returns (module, example inputs of one micro-batch)


def split(module, example):
    """Cut the module before those that SPLIT_SPEC names."""
    args, kwargs = ((), example) if isinstance(example, dict) else (tuple(example), {{}})
    return pipeline(module, mb_args=args, mb_kwargs=kwargs, split_spec=SPLIT_SPEC)


def main(micro_batches=4):
    """Run as many micro-batches, each of them the example, through the pipeline."""
    rank = int(os.environ["RANK"])
    place, _, function = NETWORK.partition(":")
    module, example = getattr(importlib.import_module(place), function)()
    on_gpus = all(device != "cpu" for device in DEVICES)
    dist.init_process_group("nccl" if on_gpus else "gloo")
    device = torch.device(DEVICES[rank])
    stage = split(module.eval(), example).build_stage(rank, device)
    schedule = ScheduleGPipe(stage, micro_batches)
    values = example if isinstance(example, dict) else dict(enumerate(example))
    batch = {{name: torch.cat([value] * micro_batches).to(device) for name, value in values.items()}}
    args, kwargs = ((), batch) if isinstance(example, dict) else (tuple(batch.values()), {{}})
    with torch.no_grad():
        made = schedule.step(*args, **kwargs) if rank == 0 else schedule.step()
    dist.destroy_process_group()
    return made


if __name__ == "__main__":
    main()
'''


def _order(found: Nearest) -> str:
    """Set, before torch is imported, that numbers of unlike GPUs are those of nvidia-smi."""
    cluster = found.problem.cluster
    if not any(bus_order(cluster, cluster.devices[stage.device].host) for stage in found.stages):
        return ""
    return 'os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # numbers of nvidia-smi\n\n'


def write(found: Nearest, folder: Path) -> Exported:
    """Write a Python script for torchrun."""
    problem = found.problem
    begins = []
    for stage in found.stages[1:]:
        named = [unit for unit in stage.units if unit.stack or unit.path.rpartition(".")[2] not in NODE_NAMES]
        begins.append(named[0].path if named else stage.units[0].path)
    cluster = problem.cluster
    location = problem.graph.source.location if problem.graph.source is not None else ""
    numbers = [accelerator_index(cluster, stage.device) for stage in found.stages]
    text = PROGRAM.format(
        comments=stage_lines(found),
        stages=len(found.stages),
        order=_order(found),
        split=", ".join(f"{path!r}: SplitPoint.BEGINNING" for path in begins),
        devices=["cpu" if number < 0 else f"cuda:{number}" for number in numbers],
        network=location if re.fullmatch(r"[\w.]+:\w+", location) else "package.module:function",
    )
    notes = []
    hosts = list(dict.fromkeys(cluster.devices[stage.device].host for stage in found.stages))
    if len(hosts) > 1:
        notes.append(f"stages are on the hosts {', '.join(hosts)}; start torchrun on each with --nnodes and its ranks")
    return Exported(text, tuple(notes))
