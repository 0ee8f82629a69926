"""From the name of a language model and what it is to do to a problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from placewright.costs import analytic, roofline
from placewright.errors import InvalidInput
from placewright.io import read_cluster
from placewright.language import PosedModel, pose_model, read_language_model
from placewright.language.step import weight_bytes
from placewright.objective import Makespan, Per
from placewright.posing.language_flags import LanguageFlags
from placewright.posing.memory_flags import MemoryFlags
from placewright.posing.objective_flags import ObjectiveFlags
from placewright.problem import Wish
from placewright.units import format_bytes

__all__ = ["NOTHING_SAID", "needed_cluster", "pose_language", "refuse_capture_flags", "refuse_language_flags"]

NO_MEMORY = MemoryFlags()
"""Nothing is said of caches and formats."""

NOTHING_SAID = LanguageFlags()
"""No flags of language models."""


def pose_language(
    model: str,
    cluster_path: Path | None,
    flags: ObjectiveFlags,
    wishes: Sequence[Wish] = (),
    costs: str = "auto",
    memory: MemoryFlags = NO_MEMORY,
    language: LanguageFlags = NOTHING_SAID,
    on_progress: Callable[[str], None] | None = None,
) -> PosedModel:
    """Make the problem of a language model, and its steps.

    Parameters
    ----------
    model : str
        ``hf:`` and a folder or a file.
    cluster_path, flags, wishes, costs, memory, language, on_progress
        As in :func:`placewright.posing.pose`. By default the objective is the makespan of what is asked: a token,
        a prompt, an answer.

    Raises
    ------
    InvalidInput
        If the model or the cluster can't be read, or what is asked of the model does not fit it.
    """
    tell = on_progress or (lambda line: None)
    if costs == "profile":
        raise InvalidInput(
            f"--costs profile measures operators, and {model!r} has shapes alone; use analytic or roofline, or capture "
            "the network (py:package.module:function)"
        )
    found = read_language_model(model)
    read = found.model
    cluster = read_cluster(needed_cluster(model, cluster_path))
    objective = flags.applied(Makespan())
    asked = language.asked(read, memory, len(cluster), objective)
    if isinstance(objective, Makespan):
        per: Per = "sample" if asked.prompt and not asked.generate else "answer" if asked.prompt else "token"
        objective = replace(objective, per=per)
    room = asked.room(read)
    tell(
        f"{read.name}: {read.parameters / 1e9:.3g} B parameters, {format_bytes(weight_bytes(read, asked.formats))}; "
        f"the KV cache has room for {asked.batch * asked.in_flight} x {room} tokens"
    )
    for note in found.notes:
        tell(f"note: {note}")
    if read.longest is not None and room > read.longest:
        tell(f"note: a context of {room} tokens is more than the {read.longest} that its configuration reaches")
    times_of = roofline if costs == "roofline" else analytic
    return pose_model(read, cluster, asked, objective, times_of, wishes, found.source)


def refuse_capture_flags(model: str, fuse: bool, fold: bool) -> None:
    """Say what is for captured networks alone."""
    for option, given in (("--fuse", fuse), ("--fold", fold)):
        if given:
            raise InvalidInput(
                f"{option} is for networks that are captured (.onnx, .pt2, py:module:function), and {model!r} is read "
                "by its configuration and placed by --grain; leave it out"
            )


def needed_cluster(model: str, cluster_path: Path | None) -> Path:
    """Refuse a model that has no cluster of its own where none is given."""
    if cluster_path is None:
        raise InvalidInput(
            f"model {model!r} needs a cluster to be placed on; give --cluster CLUSTER.yaml "
            "('placewright probe' makes one)"
        )
    return cluster_path


def refuse_language_flags(model: str, flags: ObjectiveFlags, language: LanguageFlags) -> None:
    """Say what is for language models alone."""
    about_tokens = ("--objective token-latency",) if flags.objective == "token-latency" else ()
    if given := (*language.given, *about_tokens):
        verb, them = ("is", "it") if len(given) == 1 else ("are", "them")
        raise InvalidInput(
            f"{' and '.join(given)} {verb} for language models (hf:DIR), and {model!r} is none; leave {them} out"
        )
