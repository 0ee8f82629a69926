"""A diffusion pipeline on a cluster as one problem: encoders once, the denoiser step by step, the decoder once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from placewright.cluster import Cluster
from placewright.diffusion.asked import PictureAsked, phases_of
from placewright.diffusion.pipeline import Pipeline
from placewright.graph import OperatorGraph
from placewright.language import LanguageModel, Phase
from placewright.language.posed import Way, pose_phases
from placewright.objective import Objective
from placewright.problem import Problem, Times, Wish

__all__ = ["PosedPipeline", "pose_pipeline"]


@dataclass(frozen=True, eq=False)
class PosedPipeline:
    """A problem, and what it is made of.

    Attributes
    ----------
    model : LanguageModel
        The parts of all networks.
    asked : PictureAsked
    problem : Problem
        Operators are groups of parts by the grain that was asked for; their times are those of a whole picture.
    phases : tuple of Phase
        What is added up: everything once, and the other steps.
    steps : tuple of Problem
        Of each phase the makespan of one, over the same operators.
    told : tuple of (Phase, Problem)
        The same of encoding, a step and decoding.
    """

    model: LanguageModel
    asked: PictureAsked
    problem: Problem
    phases: tuple[Phase, ...]
    steps: tuple[Problem, ...]
    told: tuple[tuple[Phase, Problem], ...]


def pose_pipeline(
    pipeline: Pipeline,
    cluster: Cluster,
    asked: PictureAsked,
    objective: Objective,
    times_of: Callable[[OperatorGraph, Cluster], Times],
    wishes: Sequence[Wish] = (),
) -> PosedPipeline:
    """Make the problem of placing a pipeline.

    Parameters
    ----------
    pipeline : Pipeline
    cluster : Cluster
    asked : PictureAsked
    objective : Objective
    times_of : callable
        Times of the operators of a graph on a cluster: :func:`placewright.costs.analytic` or another.
    wishes : sequence of Wish
        Patterns match the names of modules and of what is in them.

    Raises
    ------
    InvalidInput
        If what is asked doesn't fit the pipeline, or the cluster lacks figures.

    Notes
    -----
    An operator takes its time of a picture on a device, all steps of the denoiser together, and a tensor travels as
    long as its transfers together: what :func:`placewright.language.posed.pose_model` says of prefill and decode holds.
    The weights of all networks are held throughout. The latents that go from the last operator of a step to the first
    of the next are not counted.
    """
    made = pipeline.model(asked.height, asked.width, asked.formats.dtype)
    phases, told = phases_of(made, asked)
    way = Way(asked.formats, asked.grain)
    name = _described(pipeline, asked)
    problem, steps = pose_phases(made.model, cluster, phases, way, times_of, name, pipeline.source)
    _, apart = pose_phases(made.model, cluster, told, way, times_of, name)
    whole = Problem(problem.graph, cluster, problem.times, objective, wishes)
    return PosedPipeline(made.model, asked, whole, phases, steps, tuple(zip(told, apart, strict=True)))


def _described(pipeline: Pipeline, asked: PictureAsked) -> str:
    """Name a problem by what the pipeline does in it."""
    pictures = f"{asked.width}x{asked.height}, {asked.steps} {'guided ' if asked.guided else ''}steps"
    return f"{pipeline.name}, {pictures}, batch {asked.batch}"
