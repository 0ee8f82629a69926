"""From flags about memory to a graph that has what they ask for, and a cluster that sets aside the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from placewright.cluster import Cluster
from placewright.costs.kv_cache import layer_caches
from placewright.costs.memory_parts import with_kv_caches, with_training, with_weight_format, with_workspace
from placewright.costs.optimizers import optimizer_named
from placewright.costs.recomputation import as_recompute, kept_bytes
from placewright.costs.weight_formats import weight_format
from placewright.errors import InvalidInput
from placewright.graph import OperatorGraph
from placewright.language.configuration import read_configuration
from placewright.objective import Makespan, MaxLoad, Objective, Offload
from placewright.posing.memory_flags import MemoryFlags
from placewright.units import format_bytes, parse_tokens

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["check_memory_flags", "in_flight", "set_aside", "with_memory", "with_profiled_training", "with_workspaces"]

SCHEDULES = ("1f1b", "gpipe")

_NEEDS = {
    "config": "context",
    "batch": "context",
    "cache_dtype": "context",
    "micro_batches": "optimizer",
    "schedule": "optimizer",
    "recompute": "optimizer",
}
"""Flags that mean something only with another."""

Tell = Callable[[str], None]

_T = TypeVar("_T")


def check_memory_flags(flags: MemoryFlags) -> None:
    """Refuse what contradicts itself before anything is captured.

    Raises
    ------
    InvalidInput
        With every violation.
    """
    found = []
    for name, needs in _NEEDS.items():
        if getattr(flags, name) is not None and getattr(flags, needs) is None:
            option = "--" + name.replace("_", "-")
            found.append(f"{option} is for --{needs}, which is not given; add it, or leave {option} out")
    if flags.schedule not in (None, *SCHEDULES):
        found.append(f"--schedule {flags.schedule!r} is unknown; use one of {', '.join(SCHEDULES)}")
    checks: Mapping[str, Callable[[str], object]] = {
        "weight_format": weight_format,
        "cache_dtype": weight_format,
        "optimizer": optimizer_named,
        "recompute": as_recompute,
        "context": lambda text: parse_tokens(text, "--context"),
    }
    for name, check in checks.items():
        try:
            if (value := getattr(flags, name)) is not None:
                check(value)
        except InvalidInput as error:
            found += error.violations
    if found:
        raise InvalidInput(found)


def with_memory(
    flags: MemoryFlags, model: str, graph: OperatorGraph, cluster: Cluster, objective: Objective, tell: Tell
) -> tuple[OperatorGraph, Cluster]:
    """Add to a graph, as it was captured and not yet fused, what the flags ask for.

    Parameters
    ----------
    flags : MemoryFlags
    model : str
        That the graph was captured from.
    graph : OperatorGraph
    cluster : Cluster
    objective : Objective
    tell : callable
        Told what was added, a line for each part.

    Returns
    -------
    OperatorGraph
    Cluster
        With more set aside on each device where memory comes and goes that no operator accounts for.

    Raises
    ------
    InvalidInput
        If the network or its configuration doesn't allow it.
    """
    check_memory_flags(flags)
    if flags.weight_format is not None:
        made = with_weight_format(graph, weight_format(flags.weight_format))
        before, after = (format_bytes(sum(v.weight_bytes for v in g.operators)) for g in (graph, made))
        tell(f"weights as {flags.weight_format}: {after} in place of {before}")
        graph = made
    if flags.context is not None:
        config = _text_of(read_configuration(flags.config) if flags.config is not None else _configuration_of(model))
        context, batch = parse_tokens(flags.context, "--context"), flags.batch or 1
        bits = weight_format(flags.cache_dtype or "bf16").bits
        graph = with_kv_caches(graph, layer_caches(config), batch=batch, context=context, bits=bits)
        total = sum(v.kv_cache_bytes for v in graph.operators)
        tell(f"KV cache of {batch} x {context:,} tokens: {format_bytes(total)}")
    if flags.optimizer is not None:
        program = _program(model, "--optimizer")
        return _trained(flags, flags.optimizer, program, graph, cluster, objective, tell)
    if flags.workspace and not isinstance(objective, Makespan):
        program = _program(model, "--workspace")
        from placewright.costs.torch_memory import program_memory

        size = _followed(program_memory, program).activation_bytes
        return graph, set_aside(cluster, size, "a sample", tell)
    return graph, cluster


def with_workspaces(
    flags: MemoryFlags, model: str, graph: OperatorGraph, objective: Objective, tell: Tell
) -> OperatorGraph:
    """Add the workspaces of operators, where they are asked for and the objective has live tensors.

    Parameters as :func:`with_memory`, but the graph may be fused: of an operator's parts, which run one after the
    other, the largest workspace counts.
    """
    if not flags.workspace or flags.optimizer is not None or not isinstance(objective, Makespan):
        return graph
    program = _program(model, "--workspace")
    from placewright.costs.torch_memory import workspaces

    sizes = _followed(workspaces, program)
    tell(f"workspace: up to {format_bytes(max(sizes.values(), default=0))} while an operator runs")
    return with_workspace(graph, {v.name: max(sizes.get(part, 0) for part in v.part_names) for v in graph.operators})


def _trained(
    flags: MemoryFlags,
    optimizer: str,
    program: ExportedProgram,
    graph: OperatorGraph,
    cluster: Cluster,
    objective: Objective,
    tell: Tell,
) -> tuple[OperatorGraph, Cluster]:
    from placewright.costs.torch_training import training_memory

    memory = training_memory(program)
    kept, again = kept_bytes(memory.storages, as_recompute(flags.recompute or "none"))
    count = in_flight(objective, cluster, flags.micro_batches or 1, flags.schedule or "1f1b")
    made = with_training(graph, memory.parameters, kept, optimizer_named(optimizer), in_flight=count)
    tell(_told(optimizer, made, count))
    return made, set_aside(cluster, memory.working_bytes + again, "a micro-batch", tell)


def with_profiled_training(
    flags: MemoryFlags, graph: OperatorGraph, cluster: Cluster, objective: Objective, tell: Tell
) -> OperatorGraph:
    """Add to a profile of layers what training holds, if that is asked for.

    A layer saves its output, as the profile has it, for each micro-batch in flight; its parameters are taken to be of 4
    bytes.
    """
    if flags.optimizer is None:
        return graph
    if not any(v.backward for v in graph.operators):
        raise InvalidInput(
            "--inference leaves out the backward pass, which --optimizer counts for; leave one of them out"
        )
    parameters = {v.name: (v.weight_bytes // 4, v.weight_bytes) for v in graph.operators if v.weight_bytes}
    saved: dict[str, int] = {}
    for t in graph.tensors:
        if not graph.operators[t.producer].backward and any(graph.operators[r].backward for r in t.readers):
            name = graph.operators[t.producer].name
            saved[name] = saved.get(name, 0) + t.size_bytes
    count = in_flight(objective, cluster, flags.micro_batches or 1, flags.schedule or "1f1b")
    made = with_training(graph, parameters, saved, optimizer_named(flags.optimizer), in_flight=count)
    tell(_told(flags.optimizer, made, count))
    return made


def _told(optimizer: str, graph: OperatorGraph, count: int) -> str:
    gradients, state, saved = (
        format_bytes(sum(getattr(v, part) for v in graph.operators))
        for part in ("gradient_bytes", "optimizer_bytes", "saved_bytes")
    )
    return (
        f"training with {optimizer}: gradients {gradients}, optimiser {state}, "
        f"saved for the backward pass of {count} micro-batches in flight {saved}"
    )


def in_flight(objective: Objective, cluster: Cluster, micro_batches: int, schedule: str) -> int:
    """Most micro-batches that a device keeps tensors of at a time.

    One under ``makespan`` and ``offload``, which compute them one after the other. Of a pipeline all of them under
    GPipe. Under 1F1B a stage keeps as many as there are stages from it to the last one: at most as many as there are
    devices where one order of the devices has all edges forward, and one copy of the network; else all of them.

    Examples
    --------
    >>> from placewright.cluster import Device
    >>> four = Cluster([Device(f"gpu{k}") for k in range(4)])
    >>> in_flight(MaxLoad(), four, 16, "1f1b"), in_flight(MaxLoad(), four, 16, "gpipe")
    (4, 16)
    """
    if isinstance(objective, Makespan | Offload):
        return 1
    ordered = isinstance(objective, MaxLoad) and objective.contiguity == "contiguous"
    free = ordered and not objective.contiguous_cpus and any(d.kind == "cpu" for d in cluster.devices)
    return min(micro_batches, len(cluster)) if ordered and not free and schedule == "1f1b" else micro_batches


def _program(model: str, option: str) -> ExportedProgram:
    if model.lower().endswith(".onnx"):
        raise InvalidInput(f"{option} is for networks of torch (.pt2, py:module:function), and {model!r} is ONNX")
    from placewright.costs.profile_torch import program_of

    return program_of(model)


def _followed(follow: Callable[[ExportedProgram], _T], program: ExportedProgram) -> _T:
    try:
        return follow(program)
    except (RuntimeError, TypeError, ValueError, LookupError, NotImplementedError, AssertionError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise InvalidInput(f"--workspace can't follow this network without data ({reason}); leave it out") from None


def _configuration_of(model: str) -> Mapping[str, Any]:
    """Take the configuration that a module of transformers brings along."""
    if model.startswith("py:"):
        from placewright.capture.torch_spec import load_py

        found: Any = getattr(load_py(model.removeprefix("py:"))[0], "config", None)
        if hasattr(found, "to_dict"):
            made: Mapping[str, Any] = found.to_dict()
            return made
    raise InvalidInput(
        "--context needs to know what each layer keeps of a token; give --config, a Hugging Face config.json or its "
        "folder"
    )


def _text_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Take the part about text of a configuration that has several."""
    text = config.get("text_config")
    return text if isinstance(text, Mapping) else config


def set_aside(cluster: Cluster, size: int, what: str, tell: Tell) -> Cluster:
    """Keep so many bytes more of each device's memory free, at most all of it."""
    tell(f"set aside on each device: {format_bytes(size)} that come and go while {what} is computed")
    devices = [
        d if d.memory_bytes is None else replace(d, reserve_bytes=min(d.memory_bytes, d.reserve_bytes + size))
        for d in cluster.devices
    ]
    return Cluster(devices, cluster.links, cluster.name)
