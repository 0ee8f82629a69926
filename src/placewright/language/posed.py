"""A language model on a cluster as one problem: the times of its steps added up, its parts placed module by module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from placewright.cluster import Cluster
from placewright.coarsen import contract
from placewright.costs.memory_parts import with_workspace
from placewright.errors import InvalidInput
from placewright.graph import Operator, OperatorGraph, Source, Tensor
from placewright.language.asked import Asked, Grain, Phase, phases_of
from placewright.language.model import LanguageModel
from placewright.language.step import Formats, Step, step_graph
from placewright.objective import Objective
from placewright.problem import Problem, Times, Wish

__all__ = ["PosedModel", "Way", "pose_model", "pose_phases"]

MOST_OPERATORS = 200_000


@dataclass(frozen=True, eq=False)
class PosedModel:
    """A problem, and what it is made of.

    Attributes
    ----------
    model : LanguageModel
    asked : Asked
    problem : Problem
        Operators are groups of parts by the grain that was asked for; their times are those of all steps together.
    phases : tuple of Phase
    steps : tuple of Problem
        Of each phase the makespan of one step, over the same operators.
    """

    model: LanguageModel
    asked: Asked
    problem: Problem
    phases: tuple[Phase, ...]
    steps: tuple[Problem, ...]


def pose_model(
    model: LanguageModel,
    cluster: Cluster,
    asked: Asked,
    objective: Objective,
    times_of: Callable[[OperatorGraph, Cluster], Times],
    wishes: Sequence[Wish] = (),
    source: Source | None = None,
) -> PosedModel:
    """Make the problem of placing a model.

    Parameters
    ----------
    model : LanguageModel
    cluster : Cluster
    asked : Asked
    objective : Objective
    times_of : callable
        Times of the operators of a graph on a cluster: :func:`placewright.costs.analytic` or another.
    wishes : sequence of Wish
        Patterns match the names of modules and of what is in them.
    source : Source, optional
        Recorded in the problem.

    Raises
    ------
    InvalidInput
        If what is asked doesn't fit the model, or the cluster lacks figures.

    Notes
    -----
    **Several steps.** With prefill once and n decode steps, an operator takes prefill + n x decode on a device, and a
    tensor travels as long as its n + 1 transfers together. Loads add up exactly so. A makespan does where a step runs
    operators one after the other, as a model does that is one chain of modules; elsewhere it is a lower bound of
    prefill + n x decode for every plan that keeps one order in both: the longest path of a sum of lengths is at most
    the sum of the longest paths. What the steps really take is judged step by step:
    :func:`placewright.language.answers.explain_steps`.

    **Experts.** One that gets a token with probability a takes a x its time then, expected. The sum on a device is
    exact; several devices that wait for each other wait longer than expected times say.
    """
    phases = phases_of(model, asked)
    held = Step(asked.batch * asked.in_flight, {}, asked.room(model), asked.source(model))
    way = Way(asked.formats, asked.grain, asked.tied == "apart", held)
    problem, steps = pose_phases(model, cluster, phases, way, times_of, _described(model, asked), source)
    graph = problem.graph
    return PosedModel(model, asked, Problem(graph, cluster, problem.times, objective, wishes), phases, steps)


@dataclass(frozen=True, slots=True)
class Way:
    """How the parts of a model are held and placed.

    Attributes
    ----------
    formats : Formats
    grain : {"layer", "module", "operator"}
    apart : bool
        Whether parts that share weights hold a copy each.
    held : Step or None
        Whose caches have room.
    """

    formats: Formats
    grain: Grain = "module"
    apart: bool = False
    held: Step | None = None


def pose_phases(
    model: LanguageModel,
    cluster: Cluster,
    phases: Sequence[Phase],
    way: Way,
    times_of: Callable[[OperatorGraph, Cluster], Times],
    name: str,
    source: Source | None = None,
) -> tuple[Problem, tuple[Problem, ...]]:
    """Add up the steps of a model, as often as each is done; also each step by itself, over the same operators.

    Parameters
    ----------
    model, cluster, times_of, source
        As of :func:`pose_model`.
    phases : sequence of Phase
    way : Way
    name : str
        Of the problem.

    Raises
    ------
    InvalidInput
        If the model has more operators than are placed, or the cluster lacks figures.
    """
    if len(model.parts) > MOST_OPERATORS:
        raise InvalidInput(
            f"model {model.name!r} has {len(model.parts)} operators, more than the {MOST_OPERATORS} that are placed"
        )
    graphs = [step_graph(model, p.step, way.formats, held=way.held, apart=way.apart) for p in phases]
    fine = [
        Problem(graph, cluster, _active(model, phase, times_of(graph, cluster)))
        for phase, graph in zip(phases, graphs, strict=True)
    ]
    module_of = {p.name: getattr(p, way.grain) for p in model.parts} if way.grain != "operator" else {}
    grouped = _grouped(_together(model, phases, fine), module_of)
    found = grouped.graph
    graph = OperatorGraph(found.operators, found.tensors, found.colocation, name, source)
    steps = tuple(_grouped(problem, module_of) for problem in fine)
    return Problem(graph, cluster, grouped.times), steps


def _active(model: LanguageModel, phase: Phase, times: Times) -> Times:
    """Scale the times of operators by how often they run in a step, and let the others take none."""
    share = np.array([phase.step.active(p) for p in model.parts])
    processing = np.where(share[:, None] > 0, times.processing_s, 0.0) * share[:, None]
    return replace(times, processing_s=processing)


def _together(model: LanguageModel, phases: Sequence[Phase], fine: Sequence[Problem]) -> Problem:
    """Add up steps over the operators and tensors of all of them."""
    if len(phases) == 1 and phases[0].times == 1:
        return replace_operators(fine[0], _worked(model, phases, fine))
    cluster, first = fine[0].cluster, fine[0]
    tensors: dict[str, Tensor] = {}
    for problem in fine:
        for t in problem.graph.tensors:
            known = tensors.setdefault(t.name, t)
            readers = tuple(sorted({*known.readers, *t.readers}))
            tensors[t.name] = replace(known if known.size_bytes >= t.size_bytes else t, readers=readers)
    graph = OperatorGraph(_worked(model, phases, fine), tensors.values(), first.graph.colocation, first.graph.name)
    row = {t.name: u for u, t in enumerate(graph.tensors)}
    n, D, T = len(graph), len(cluster), len(graph.tensors)
    processing, cut, transfer = np.zeros((n, D)), np.zeros((n, D)), np.zeros((T, D, D))
    for phase, problem in zip(phases, fine, strict=True):
        runs = np.array([phase.step.runs(p) for p in model.parts])
        processing += phase.times * problem.times.processing_s
        cut += phase.times * np.where(runs[:, None], problem.cut_s, 0.0)
        sizes = [t.size_bytes for t in problem.graph.tensors]
        transfer[[row[t.name] for t in problem.graph.tensors]] += phase.times * cluster.transfer_table(sizes)
    times = Times(processing, transfer, first.times.source, cut if cut.any() else None)
    return Problem(graph, cluster, times)


def _worked(model: LanguageModel, phases: Sequence[Phase], fine: Sequence[Problem]) -> list[Operator]:
    """Operators with the work of all steps, that of experts expected."""
    made = []
    for v, part in enumerate(model.parts):
        every = [problem.graph.operators[v] for problem in fine]
        often = [phase.times * phase.step.active(part) for phase in phases]
        flops = round(sum(k * o.flops for k, o in zip(often, every, strict=True)))
        traffic = round(sum(k * o.traffic_bytes for k, o in zip(often, every, strict=True)))
        made.append(replace(every[0], flops=flops, traffic_bytes=traffic))
    return made


def _grouped(problem: Problem, group_of: Mapping[str, str]) -> Problem:
    """Place the parts of a module or layer as one, under its name."""
    if not group_of:
        return problem
    groups: dict[str, list[int]] = {}
    for v, operator in enumerate(problem.graph.operators):
        groups.setdefault(group_of[operator.name], []).append(v)
    small = contract(problem, groups.values()).problem
    named = replace_operators(small, [_named(v, group_of[v.part_names[0]]) for v in small.graph.operators])
    inside = {name: _inside_bytes(problem.graph, rows) for name, rows in groups.items()}
    graph, times = with_workspace(named.graph, inside), named.times
    if times.transfer_s is not None:  # what nobody reads never travels
        row = {t.name: u for u, t in enumerate(named.graph.tensors)}
        empty = np.zeros(times.transfer_s.shape[1:])
        table = [times.transfer_s[row[t.name]] if t.name in row else empty for t in graph.tensors]
        times = replace(times, transfer_s=np.array(table))
    return Problem(graph, named.cluster, times, named.objective)


def _inside_bytes(graph: OperatorGraph, members: Sequence[int]) -> int:
    """Most bytes of tensors that are made and read among some operators, which run one after the other."""
    own, last, made = set(members), dict[int, int](), dict[int, int]()
    for v in members:
        for u in graph.outputs_of[v]:
            tensor = graph.tensors[u]
            if tensor.readers and own.issuperset(tensor.readers) and not tensor.output:
                made[v] = made.get(v, 0) + tensor.size_bytes
                end = max(tensor.readers)
                last[end] = last.get(end, 0) + tensor.size_bytes
    live = peak = 0
    for v in members:
        live += made.get(v, 0)
        peak = max(peak, live)
        live -= last.get(v, 0)
    return peak


def _named(operator: Operator, name: str) -> Operator:
    parts = operator.parts if operator.name == name or operator.parts else (operator.name,)
    return replace(operator, name=name, kind=name.rpartition(".")[2] if operator.parts else operator.kind, parts=parts)


def replace_operators(problem: Problem, operators: Sequence[Operator]) -> Problem:
    """Return the same problem with operators that say something else of themselves."""
    graph = problem.graph
    told = OperatorGraph(operators, graph.tensors, graph.colocation, graph.name, graph.source)
    return Problem(told, problem.cluster, problem.times, problem.objective, problem.wishes, problem.name)


def _described(model: LanguageModel, asked: Asked) -> str:
    """Name a problem by what the model does in it.

    Examples
    --------
    >>> _described(LanguageModel("llama", ()), Asked(4, prompt=2048, generate=256))
    'llama, 2048 tokens read and 256 generated, batch 4'
    """
    if asked.prompt is None:
        work = f"a token at {asked.room(model)}"
    else:
        work = f"{asked.prompt} tokens read" + (f" and {asked.generate} generated" if asked.generate else "")
    return f"{model.name}, {work}, batch {asked.batch}"
