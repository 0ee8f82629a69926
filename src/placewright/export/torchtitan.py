"""Modules of each model part of torchtitan.

``module_fqns_per_model_part`` of the section ``parallelism`` is "a list of lists containing the FQNs of modules for
each model chunk" (``torchtitan/config``, ``Parallelism``). Its models call ``tok_embeddings``, ``norm`` and ``output``
what transformers calls ``model.embed_tokens``, ``model.norm`` and ``lm_head``.
"""

from __future__ import annotations

import json
from pathlib import Path

from placewright.export.device_words import stage_lines
from placewright.export.modules import main_stack, module_devices
from placewright.export.nearest import Nearest, Rules
from placewright.export.target import Exported

__all__ = ["RULES", "write"]

RULES = Rules("torchtitan", "whole layers in a row of accelerators", ends=False, cpus="nowhere")

WORDS = {"embed_tokens": "tok_embeddings", "wte": "tok_embeddings", "norm": "norm", "ln_f": "norm", "lm_head": "output"}


def write(found: Nearest, folder: Path) -> Exported:
    """Write the lines of its TOML configuration, after a comment for each rank."""
    stack = main_stack([unit for stage in found.stages for unit in stage.units])
    parts: list[list[str]] = [[] for _ in found.stages]
    where = {stage.device: k for k, stage in enumerate(found.stages)}
    for path, device in module_devices(found.problem.graph, found.plan.device_of).items():
        inner, _, last = path.rpartition(".")
        parts[where[device]].append(f"layers.{last}" if inner == stack else WORDS.get(last, path))
    for part in parts:
        part.sort(
            key=lambda word: (word != "tok_embeddings", not word.startswith("layers."), word in ("norm", "output"))
        )
    return Exported(
        f"{stage_lines(found)}[parallelism]\n"
        f"pipeline_parallel_degree = {len(parts)}\n"
        f"module_fqns_per_model_part = {json.dumps(parts)}\n",
    )
