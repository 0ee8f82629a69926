"""Configuration of torchtitan with the modules of each model part.

``parallelism.module_fqns_per_model_part`` is "a list of lists containing the FQNs of modules for each model chunk"
(``torchtitan/config/configs.py``, ``ParallelismConfig``), one for each rank under the schedule 1F1B. Configurations are
functions in Python (release 0.3): ``--module`` names a module, ``--config`` a function in it
(``torchtitan/config/manager.py``). Its models call ``tok_embeddings``, ``norm`` and ``lm_head`` what transformers calls
``model.embed_tokens``, ``model.norm`` and ``lm_head``.
"""

from __future__ import annotations

from pathlib import Path

from placewright.export.device_words import stage_lines
from placewright.export.modules import main_stack, module_devices
from placewright.export.nearest import Nearest, Rules
from placewright.export.target import Exported

__all__ = ["RULES", "write"]

RULES = Rules("torchtitan", "whole layers in a row of accelerators", ends=False, cpus="nowhere")

WORDS = {
    "embed_tokens": "tok_embeddings",
    "wte": "tok_embeddings",
    "norm": "norm",
    "ln_f": "norm",
    "lm_head": "lm_head",
}

PROGRAM = '''{comments}# Save this as placed.py, and beside it:
# torchrun --nproc-per-node {stages} -m torchtitan.train --module placed --config placed

from torchtitan.models.llama3.config_registry import llama3_8b as network  # put the configuration of your model here

MODULES = [
{modules}
]


def placed():
    """The configuration with the stages of the plan."""
    config = network()
    config.parallelism.pipeline_parallel_degree = len(MODULES)
    config.parallelism.pipeline_parallel_schedule = "1F1B"  # one stage a rank
    config.parallelism.module_fqns_per_model_part = MODULES
    return config
'''


def write(found: Nearest, folder: Path) -> Exported:
    """Write a Python module with the configuration, after a comment for each rank."""
    stack = main_stack([unit for stage in found.stages for unit in stage.units])
    parts: list[list[str]] = [[] for _ in found.stages]
    where = {stage.device: k for k, stage in enumerate(found.stages)}
    for path, device in module_devices(found.problem.graph, found.plan.device_of).items():
        inner, _, last = path.rpartition(".")
        parts[where[device]].append(f"layers.{last}" if inner == stack else WORDS.get(last, path))
    for part in parts:
        part.sort(
            key=lambda word: (word != "tok_embeddings", not word.startswith("layers."), word in ("norm", "lm_head"))
        )
    text = PROGRAM.format(
        comments=stage_lines(found), stages=len(parts), modules="\n".join(f"    {part!r}," for part in parts)
    )
    return Exported(text)
