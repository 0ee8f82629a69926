"""From the name of a diffusion pipeline and what it is to do to a problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from placewright.costs import analytic, roofline
from placewright.diffusion import PosedPipeline, pose_pipeline, read_pipeline
from placewright.errors import InvalidInput
from placewright.io import read_cluster
from placewright.language.step import weight_bytes
from placewright.objective import Makespan
from placewright.posing.diffusion_flags import DiffusionFlags
from placewright.posing.language import NO_MEMORY, NOTHING_SAID, needed_cluster
from placewright.posing.language_flags import LanguageFlags
from placewright.posing.memory_flags import MemoryFlags
from placewright.posing.objective_flags import ObjectiveFlags
from placewright.problem import Wish
from placewright.units import format_bytes

__all__ = ["AS_THE_PIPELINE_DOES", "pose_diffusion", "refuse_diffusion_flags"]

AS_THE_PIPELINE_DOES = DiffusionFlags()
"""No flags of diffusion pipelines."""


def pose_diffusion(
    model: str,
    cluster_path: Path | None,
    flags: ObjectiveFlags,
    wishes: Sequence[Wish] = (),
    costs: str = "auto",
    memory: MemoryFlags = NO_MEMORY,
    language: LanguageFlags = NOTHING_SAID,
    diffusion: DiffusionFlags = AS_THE_PIPELINE_DOES,
    on_progress: Callable[[str], None] | None = None,
) -> PosedPipeline:
    """Make the problem of a diffusion pipeline, and its sections.

    Parameters
    ----------
    model : str
        ``hf:`` and a folder with a ``model_index.json``, or the configuration of a denoiser.
    cluster_path, flags, wishes, costs, memory, language, diffusion, on_progress
        As in :func:`placewright.posing.pose.pose`. By default the objective is the makespan of a picture.

    Raises
    ------
    InvalidInput
        If the pipeline or the cluster can't be read, or what is asked does not fit the pipeline.
    """
    tell = on_progress or (lambda line: None)
    if costs == "profile":
        raise InvalidInput(
            f"--costs profile measures operators, and {model!r} has shapes alone; use analytic or roofline, or capture "
            "the networks one by one (py:package.module:function)"
        )
    pipeline = read_pipeline(model)
    cluster = read_cluster(needed_cluster(model, cluster_path))
    objective = flags.applied(Makespan())
    asked = diffusion.asked(pipeline, memory, language, objective)
    if isinstance(objective, Makespan):
        objective = replace(objective, per="picture")
    posed = pose_pipeline(pipeline, cluster, asked, objective, roofline if costs == "roofline" else analytic, wishes)
    read = posed.model
    tell(
        f"{read.name}: {read.parameters / 1e9:.3g} B parameters, {format_bytes(weight_bytes(read, asked.formats))}; "
        f"{', '.join(pipeline.components)}"
    )
    for note in pipeline.notes:
        tell(f"note: {note}")
    return posed


def refuse_diffusion_flags(model: str, diffusion: DiffusionFlags) -> None:
    """Say what is for diffusion pipelines alone."""
    if given := diffusion.given:
        verb, them = ("is", "it") if len(given) == 1 else ("are", "them")
        raise InvalidInput(
            f"{' and '.join(given)} {verb} for diffusion pipelines (hf:DIR with a model_index.json), and {model!r} is "
            f"none; leave {them} out"
        )
