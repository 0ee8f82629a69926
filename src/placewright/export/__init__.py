"""Plans and problems in the words of other programs. ``PLAN_FORMATS`` and ``PROBLEM_FORMATS`` list them by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from placewright.algorithm import Budget
from placewright.errors import InvalidInput
from placewright.evaluate import judge
from placewright.export import (
    accelerate,
    deepspeed,
    diffusers,
    llama_cpp,
    megatron,
    onnx_models,
    onnxruntime,
    openvino,
    sglang,
    tensorrt_llm,
    torch_pipelining,
    torchtitan,
    vllm,
)
from placewright.export.nearest import Nearest, Rules, Stage, as_it_is, nearest
from placewright.export.target import Exported, Target
from placewright.io import check_writable, problem_to_partitioning, problem_to_text, split_to_json, write_atomic
from placewright.objective import MaxLoad, Throughput
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.units import format_bytes

__all__ = [
    "PLAN_FORMATS",
    "PROBLEM_FORMATS",
    "Exported",
    "Nearest",
    "Rules",
    "Stage",
    "Target",
    "check_export",
    "check_format",
    "export_plan",
    "nearest",
    "write_exported",
    "write_problem_as",
]


def _split(found: Nearest, folder: Path) -> Exported:
    return Exported(split_to_json(found.problem, found.plan, judge(found.problem, found.plan)))


PLAN_FORMATS: Mapping[str, Target] = MappingProxyType(
    {
        "accelerate": Target("device_map and max_memory, JSON", accelerate.write, accelerate.RULES),
        "diffusers": Target("device_map of each component, JSON", diffusers.write, diffusers.RULES),
        "llama.cpp": Target("command line", llama_cpp.write, llama_cpp.RULES),
        "vllm": Target("command line", vllm.write, vllm.RULES),
        "sglang": Target("command line", sglang.write, sglang.RULES),
        "tensorrt-llm": Target("pp_partition, YAML", tensorrt_llm.write, tensorrt_llm.RULES),
        "torch-pipelining": Target(
            "split_spec in a script for torchrun", torch_pipelining.write, torch_pipelining.RULES
        ),
        "torchtitan": Target("module_fqns_per_model_part, Python", torchtitan.write, torchtitan.RULES),
        "megatron": Target("--pipeline-model-parallel-layout", megatron.write, megatron.RULES),
        "deepspeed": Target("PipelineModule, Python", deepspeed.write, deepspeed.RULES),
        "onnxruntime": Target("layer annotations, a script", onnxruntime.write, onnxruntime.RULES, of_onnx=True),
        "openvino": Target("affinities, a script", openvino.write, openvino.RULES, of_onnx=True),
        "onnx-models": Target("a folder with a model a session call", onnx_models.write, folder=True, of_onnx=True),
        "dnn-partitioning": Target("its split JSON", _split),
    }
)
"""Name of a format -> what makes a file of a plan."""

PROBLEM_FORMATS: Mapping[str, Callable[[Problem], str | bytes]] = MappingProxyType(
    {"problem": problem_to_text, "dnn-partitioning": problem_to_partitioning}
)
"""Name of a format -> what makes a file's text of a problem."""


def check_format(name: str, known: Iterable[str]) -> None:
    """Refuse a format that is not known, before work is done for it.

    Raises
    ------
    InvalidInput
        That lists those that are.
    """
    names = list(known)
    if name not in names:
        raise InvalidInput(f"--format {name!r} is unknown; use {'one of ' if len(names) > 1 else ''}{', '.join(names)}")


def check_export(format: str, output: Path | None) -> None:
    """Refuse a format that is not known, or an output that it can't be written to, before work is done for it.

    Raises
    ------
    InvalidInput
        That says what to give instead.
    """
    check_format(format, PLAN_FORMATS)
    if not PLAN_FORMATS[format].folder:
        check_writable(output)
    elif output is None:
        raise InvalidInput(f"--format {format} is several files; name a folder for them with -o FOLDER")
    elif output.exists() and not output.is_dir():
        raise InvalidInput(f"--format {format} is several files, and {str(output)!r} is no folder; name another")


def export_plan(
    problem: Problem,
    plan: Plan,
    format: str,
    *,
    folder: Path | str = ".",
    budget: float | Budget = 10.0,
    seed: int = 0,
) -> Exported:
    """Put a plan in the words of a format of :data:`PLAN_FORMATS`, or the nearest plan that those can say.

    Parameters
    ----------
    problem : Problem
    plan : Plan
    format : str
    folder : path
        Of the plan file, beside which a model that it was made of is looked for.
    budget : float or Budget
        For the search of the nearest plan.
    seed : int

    Raises
    ------
    InvalidInput
        If the format is unknown, or can say no plan of this problem.
    """
    check_format(format, PLAN_FORMATS)
    target = PLAN_FORMATS[format]
    source = problem.graph.source
    if target.of_onnx and (source is None or source.format != "onnx"):
        raise InvalidInput(
            f"{format} goes by the nodes of an ONNX file, and this plan was made of none; export the network to ONNX "
            "and plan that"
        )
    if target.rules is None:
        return target.write(as_it_is(problem, plan), Path(folder))
    found = nearest(problem, plan, target.rules, budget=budget, seed=seed)
    made = target.write(found, Path(folder))
    loss = (found.loss,) if found.loss else ()
    return replace(made, notes=(*loss, *made.notes, *_notes(problem, found, target.rules)))


def _notes(problem: Problem, found: Nearest, rules: Rules) -> Iterator[str]:
    """Say what holds of a target beside its words."""
    if found.held_twice_bytes and len(found.stages) > 1:
        yield f"weights that head and embedding share are held by both: {format_bytes(found.held_twice_bytes)} more"
    if not rules.pipelined and isinstance(problem.objective, MaxLoad | Throughput):
        yield (
            f"{rules.target} runs a sample through its devices one after the other, so the time per sample of a "
            "pipeline is not reached; plan with --objective makespan or token-latency for it"
        )


def write_exported(path: Path | str, made: Exported) -> None:
    """Write what was made: a file, or a folder where it is several.

    Raises
    ------
    InvalidInput
        If the path can't be written to.
    """
    if not made.files:
        write_atomic(path, made.text)
        return
    Path(path).mkdir(parents=True, exist_ok=True)
    for name, content in made.files.items():
        write_atomic(Path(path) / name, content)


def write_problem_as(path: Path | str, problem: Problem, format: str) -> None:
    """Write a problem in a format of :data:`PROBLEM_FORMATS`.

    Raises
    ------
    InvalidInput
        If the format is unknown, can't say this problem, or the path can't be written to.
    """
    check_format(format, PROBLEM_FORMATS)
    write_atomic(path, PROBLEM_FORMATS[format](problem))
