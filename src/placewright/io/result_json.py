"""What a solver returned, as the one JSON object that ``--json`` prints."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from placewright.evaluate.calls import Call, calls_of
from placewright.evaluate.evaluation import ChannelUse, DeviceUse, Evaluation, Load
from placewright.io.problem_file import problem_hash
from placewright.io.problem_writing import objective_document
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.result import Result

__all__ = ["ResultDocument", "placement_by_name", "result_document", "result_to_json"]

Seconds = Annotated[float | None, Meta(description="Seconds; null: infinite, or not there.")]
Devices = Annotated[str | list[str], Meta(description="A device, or several when copies of the operator run on each.")]


class ProblemSummary(msgspec.Struct, forbid_unknown_fields=True):
    """Which problem a result or a plan is for."""

    name: str
    hash: str
    operators: int
    devices: int


class LoadDocument(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a sample in steady state, or a call, costs a device; ``load_s`` is what counts of the parts before it."""

    compute_s: Seconds
    in_s: Seconds
    out_s: Seconds
    sync_s: Seconds
    load_s: Seconds


class ChannelDocument(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The load of a channel that links share, in seconds a sample, by pass."""

    name: str
    load_s: list[Seconds]


class CallDocument(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A subgraph that a device runs at one go: transfers in, computing, transfers out."""

    device: str
    start_s: Seconds
    finish_s: Seconds
    in_s: Seconds
    compute_s: Seconds
    out_s: Seconds
    operators: list[str]


class CopyDocument(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A copy of the network: which part of the samples it takes, and where each operator of the problem runs."""

    share: float
    placement: Annotated[dict[str, str], Meta(description="Device by operator of the problem, fused ones as one.")]


class DeviceUseDocument(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How much of one device the plan uses; ``memory_bytes`` is the sum of its parts."""

    name: str
    busy_s: Seconds
    memory_bytes: int
    memory_limit_bytes: int | None
    weight_bytes: int
    kv_cache_bytes: int
    activation_bytes: int
    gradient_bytes: int = 0
    optimizer_bytes: int = 0
    saved_bytes: int = 0
    workspace_bytes: int = 0
    operators: int
    sent_bytes: int
    received_bytes: int
    loads: Annotated[
        list[LoadDocument],
        Meta(
            description="Under max-load: one for all passes, or one for the forward and one for the backward pass. "
            "Under throughput: one over all copies. Under offload: one for each call."
        ),
    ] = []


class ResultDocument(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A plan or none, what is proved about it, and what else was found on the way."""

    schema: Literal["placewright/result/1"]
    problem: ProblemSummary
    objective: Annotated[str, Meta(description="Name of what is minimised.")]
    objective_options: Annotated[
        dict[str, str | int | float | bool | None], Meta(description="Its options, such as the contention of links.")
    ]
    times_source: Annotated[str, Meta(description="How the processing times were had, and what was assumed.")] = ""
    solver: str
    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    value_s: Seconds
    lower_bound_s: Seconds
    gap: float
    runtime_s: float
    seed: int | None
    placement: dict[str, Devices] | None
    devices: list[DeviceUseDocument]
    channels: list[ChannelDocument] = []
    replicas: Annotated[list[list[str]], Meta(description="Of each replicated stage its devices.")] = []
    copies: Annotated[list[CopyDocument], Meta(description="Under throughput: the largest share first.")] = []
    calls: Annotated[list[CallDocument], Meta(description="Under offload: of each device in its order.")] = []
    bounds: dict[str, Seconds] = {}
    alternatives: dict[str, Seconds] = {}
    infeasible: Annotated[str, Meta(description="Why there can be no plan.")] = ""
    interrupted: bool = False
    rejected_s: Annotated[
        Seconds, Meta(description="Value of a placement that breaks a rule; null: there is none.")
    ] = None
    rejected: Annotated[str, Meta(description="The rule that it breaks.")] = ""
    explanation: list[str] = []


def result_to_json(
    problem: Problem,
    result: Result,
    evaluation: Evaluation | None,
    *,
    seed: int | None = None,
    explanation: Iterable[str] = (),
) -> dict[str, Any]:
    """Make of a result the object that ``--json`` prints: plain dicts, lists, numbers and text, no NaN or infinity.

    Parameters
    ----------
    problem : Problem
    result : Result
    evaluation : Evaluation or None
        Of the result's plan; without one ``devices`` is empty.
    seed : int or None
        That the search was started with.
    explanation : iterable of str
        Sentences for a reader.

    Examples
    --------
    >>> from placewright.graph import Operator, OperatorGraph
    >>> from placewright.cluster import Cluster, Device
    >>> one = Problem(OperatorGraph([Operator("a")]), Cluster([Device("gpu")]), [[2.0]])
    >>> shown = result_to_json(one, Result(lower_bound_s=float("inf"), infeasible="it does not fit"), None, seed=7)
    >>> shown["status"], shown["placement"], shown["value_s"], shown["lower_bound_s"], shown["seed"]
    ('infeasible', None, None, None, 7)
    """
    shown: dict[str, Any] = msgspec.to_builtins(result_document(problem, result, evaluation, seed, explanation))
    return shown


def result_document(
    problem: Problem,
    result: Result,
    evaluation: Evaluation | None,
    seed: int | None = None,
    explanation: Iterable[str] = (),
) -> ResultDocument:
    """Make the document of a result; parameters as :func:`result_to_json`."""
    return ResultDocument(
        schema="placewright/result/1",
        problem=ProblemSummary(problem.name, problem_hash(problem), len(problem.graph), len(problem.cluster)),
        objective=problem.objective.name,
        objective_options={
            k: v for k, v in msgspec.to_builtins(objective_document(problem.objective)).items() if k != "name"
        },
        times_source=problem.times.source,
        solver=result.solver,
        status=result.status.value,
        value_s=_finite(result.value_s),
        lower_bound_s=_finite(result.lower_bound_s),
        gap=float(result.gap),
        runtime_s=float(result.runtime_s),
        seed=None if seed is None else int(seed),
        placement=None if result.plan is None else placement_by_name(problem, result.plan),
        devices=[] if result.plan is None or evaluation is None else list(map(device_use, evaluation.devices)),
        channels=[] if result.plan is None or evaluation is None else list(map(channel_use, evaluation.channels)),
        replicas=[] if result.plan is None else replicas_by_name(problem, result.plan),
        copies=[] if result.plan is None else copies_by_name(problem, result.plan),
        calls=[] if result.plan is None or evaluation is None else calls_by_name(problem, result.plan, evaluation),
        bounds=_all_finite(result.bounds),
        alternatives=_all_finite(result.alternatives),
        infeasible=result.infeasible,
        interrupted=result.interrupted,
        rejected_s=_finite(result.rejected_s),
        rejected=result.rejected,
        explanation=list(explanation),
    )


def placement_by_name(problem: Problem, plan: Plan) -> dict[str, str | list[str]]:
    """Device of every operator of the source by name: a fused operator's parts are where it is, and what it has folded.

    A part of several operators on different devices runs on each of them, and so does one of a replicated stage, or of
    several copies of the network.
    """
    where: dict[str, dict[str, None]] = {}
    replicas = {stage[0]: stage for stage in plan.replicas}
    names = [d.name for d in problem.cluster.devices]
    for copy in plan.copies or (plan,):
        for v, i in zip(problem.graph.operators, copy.device_of.tolist(), strict=True):
            for part in v.source_names:
                where.setdefault(part, {}).update((names[j], None) for j in replicas.get(i, (i,)))
    return {part: _one_or_list(list(devices)) for part, devices in where.items()}


def _one_or_list(devices: Sequence[str]) -> str | list[str]:
    return devices[0] if len(devices) == 1 else list(devices)


def replicas_by_name(problem: Problem, plan: Plan) -> list[list[str]]:
    """Devices of each replicated stage, the one first that the placement names."""
    return [[problem.cluster.devices[i].name for i in stage] for stage in plan.replicas]


def copies_by_name(problem: Problem, plan: Plan) -> list[CopyDocument]:
    """Share of each copy of the network, and its placement by the names of the problem."""
    names, devices = [v.name for v in problem.graph.operators], [d.name for d in problem.cluster.devices]
    return [
        CopyDocument(
            share=copy.share,
            placement={v: devices[i] for v, i in zip(names, copy.device_of.tolist(), strict=True)},
        )
        for copy in plan.copies
    ]


def calls_by_name(problem: Problem, plan: Plan, evaluation: Evaluation) -> list[CallDocument]:
    """Make the calls of an offload plan, with the names of their operators, of fused ones those of their parts."""
    return [_call(problem, call) for call in calls_of(problem, plan, evaluation)]


def _call(problem: Problem, call: Call) -> CallDocument:
    operators = problem.graph.operators
    return CallDocument(
        device=problem.cluster.devices[call.device].name,
        start_s=_finite(call.start_s),
        finish_s=_finite(call.finish_s),
        in_s=_finite(call.load.in_s),
        compute_s=_finite(call.load.compute_s),
        out_s=_finite(call.load.out_s),
        operators=[part for v in call.operators for part in operators[v].part_names],
    )


def device_use(use: DeviceUse) -> DeviceUseDocument:
    return DeviceUseDocument(
        name=use.name,
        busy_s=_finite(use.busy_s),
        memory_bytes=int(use.memory_bytes),
        memory_limit_bytes=None if use.limit_bytes is None else int(use.limit_bytes),
        weight_bytes=int(use.weight_bytes),
        kv_cache_bytes=int(use.kv_cache_bytes),
        activation_bytes=int(use.activation_bytes),
        gradient_bytes=int(use.gradient_bytes),
        optimizer_bytes=int(use.optimizer_bytes),
        saved_bytes=int(use.saved_bytes),
        workspace_bytes=int(use.workspace_bytes),
        operators=int(use.operators),
        sent_bytes=int(use.sent_bytes),
        received_bytes=int(use.received_bytes),
        loads=list(map(_load, use.loads)),
    )


def _load(load: Load) -> LoadDocument:
    return LoadDocument(
        compute_s=_finite(load.compute_s),
        in_s=_finite(load.in_s),
        out_s=_finite(load.out_s),
        sync_s=_finite(load.sync_s),
        load_s=_finite(load.load_s),
    )


def channel_use(channel: ChannelUse) -> ChannelDocument:
    return ChannelDocument(name=channel.name, load_s=[_finite(seconds) for seconds in channel.load_s])


def _finite(seconds: float) -> float | None:
    return float(seconds) if math.isfinite(seconds) else None


def _all_finite(by_name: Mapping[str, float]) -> dict[str, float | None]:
    return {name: _finite(seconds) for name, seconds in by_name.items()}
