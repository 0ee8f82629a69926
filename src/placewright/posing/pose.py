"""From what a user names (a model, a problem file or a profile, and a cluster) to a problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import get_args

import numpy as np

from placewright.capture import capture
from placewright.cluster import Cluster
from placewright.coarsen import (
    ANY,
    Transfers,
    duplicate,
    duplicated_parts,
    per_device,
    per_edge,
    rules_named,
)
from placewright.coarsen import fuse as fused
from placewright.diffusion import is_pipeline
from placewright.errors import InvalidInput
from placewright.graph import OperatorGraph
from placewright.io import read_any_problem, read_cluster, read_pipedream, speeds_of
from placewright.io.partitioning_file import MILLISECONDS
from placewright.language import is_language_model
from placewright.objective import Makespan, MaxLoad, Objective, Offload
from placewright.posing.diffusion import AS_THE_PIPELINE_DOES, pose_diffusion, refuse_diffusion_flags
from placewright.posing.diffusion_flags import DiffusionFlags
from placewright.posing.language import (
    NOTHING_SAID,
    needed_cluster,
    pose_language,
    refuse_capture_flags,
    refuse_language_flags,
)
from placewright.posing.language_flags import LanguageFlags
from placewright.posing.memory import check_memory_flags, with_memory, with_profiled_training, with_workspaces
from placewright.posing.memory_flags import MemoryFlags
from placewright.posing.objective_flags import ObjectiveFlags
from placewright.posing.times import Costs, first_few, times_for
from placewright.problem import Problem, Wish
from placewright.units import parse_seconds

__all__ = ["as_duplicate_below", "as_fold", "as_transfers", "as_wishes", "pose"]

AS_GIVEN = ObjectiveFlags()
"""No flags: the objective of the file, or its default."""

NO_MEMORY = MemoryFlags()
"""No flags: weights and live tensors as they were captured."""

OF_PROFILES = ("--optimizer", "--micro-batches", "--schedule")
"""Options about memory that a profile takes too."""

AS_IT_STANDS = (".json", ".xls", ".txt")
"""Files that have operators and their times: nothing in them is captured, fused, folded or measured."""


def pose(
    model: str,
    cluster_path: Path | None,
    *,
    flags: ObjectiveFlags = AS_GIVEN,
    wishes: Sequence[Wish] = (),
    costs: Costs = "auto",
    fuse: str | None = None,
    fold: bool | None = None,
    speeds: Sequence[str] = (),
    inference: bool = False,
    transfers: Transfers | None = None,
    duplicate_below_s: float | None = None,
    memory: MemoryFlags = NO_MEMORY,
    language: LanguageFlags = NOTHING_SAID,
    diffusion: DiffusionFlags = AS_THE_PIPELINE_DOES,
    on_progress: Callable[[str], None] | None = None,
    on_step: Callable[[str], None] | None = None,
) -> Problem:
    """Make the problem that a command line describes.

    Parameters
    ----------
    model : str
        An ``.onnx`` or ``.pt2`` file, ``py:package.module:function``, ``hf:`` and a folder with a ``config.json``
        or a diffusers pipeline's ``model_index.json``, a profile of PipeDream (``.txt``), or a file that has its own
        cluster: a problem file or a workload of dnn-partitioning (``.json``), whichever its content is, or a sheet of
        Moirai (``.xls``).
    cluster_path : Path or None
        Needed unless ``model`` has its own; then it may not be given.
    flags : ObjectiveFlags
        Change the objective of a problem file, or the default: max-load of workloads and profiles, the makespan with
        port contention of sheets, else the makespan.
    wishes : sequence of Wish
        Added to those of a problem file.
    costs : {"auto", "profile", "analytic", "roofline"}
        See :func:`placewright.posing.times.times_for`.
    fuse : str or None
        By whose rules operators that a back-end never separates are placed as one, see
        :func:`placewright.capture.capture`; ``None``: ``auto``. Operators of different wishes are placed apart.
    fold : bool or None
        Whether operators that follow from weights alone become weights, see :func:`placewright.capture.capture`;
        ``None``: they do.
    speeds : sequence of str
        Of a profile, ``PATTERN=FACTOR``: how fast devices are compared with the one that was profiled.
    inference : bool
        Of a profile: leave the backward pass out.
    transfers : {"per-device", "per-edge"} or None
        Whether a tensor travels once to each device that reads it, or once for each edge; ``None``: as the file has it,
        which is per edge in sheets, and per device elsewhere.
    duplicate_below_s : float or None
        Operators of at most so many seconds are computed wherever they are read, see
        :func:`placewright.coarsen.duplicate`; 0: none. ``None``: the trivial ones of a captured network, and none of a
        file.
    memory : MemoryFlags
        What a captured network holds beside its weights, or in other formats: see
        :func:`placewright.posing.memory.with_memory`.
    language : LanguageFlags
        What a language model is to do.
    diffusion : DiffusionFlags
        What a diffusion pipeline is to do.
    on_progress : callable, optional
        Told what happens, a line at a time.
    on_step : callable, optional
        Told of each of the many steps of a measurement.

    Raises
    ------
    InvalidInput
        If the model needs a cluster and there is none, or the reverse, and whatever its parts raise.
    """
    tell = on_progress or (lambda line: None)
    _refuse_unused(model, costs, fuse, fold, bool(speeds), inference, memory)
    if is_pipeline(model):
        refuse_capture_flags(model, fuse is not None, fold is not None)
        pictures = pose_diffusion(model, cluster_path, flags, wishes, costs, memory, language, diffusion, tell)
        return pictures.problem if transfers != "per-edge" else per_edge(pictures.problem)
    refuse_diffusion_flags(model, diffusion)
    if is_language_model(model):
        refuse_capture_flags(model, fuse is not None, fold is not None)
        posed = pose_language(model, cluster_path, flags, wishes, costs, memory, language, tell)
        return posed.problem if transfers != "per-edge" else per_edge(posed.problem)
    refuse_language_flags(model, flags, language)
    check_memory_flags(memory)
    problem = _posed(
        model,
        cluster_path,
        flags,
        wishes,
        costs,
        fuse or ANY.name,
        fold is not False and memory.optimizer is None,
        speeds,
        inference,
        memory,
        tell,
        on_step,
    )
    if duplicate_below_s is not None or not _as_it_stands(model):
        problem = _duplicated(problem, duplicate_below_s, tell)
    if transfers is None:
        return problem
    return per_edge(problem) if transfers == "per-edge" else per_device(problem)


def _duplicated(problem: Problem, below_s: float | None, tell: Callable[[str], None]) -> Problem:
    made = duplicate(problem, below_s)
    names = duplicated_parts(made.graph) if made is not problem else ()
    if names:
        tell(
            f"computed wherever they are read: {first_few(names)} ({len(names)} cheap operators); "
            "--duplicate-below 0s leaves them single"
        )
    return made


def as_duplicate_below(text: str | None) -> float | None:
    """Seconds of ``--duplicate-below``; ``None`` stays, and means the default.

    Examples
    --------
    >>> as_duplicate_below("50us")
    5e-05
    """
    return None if text is None else parse_seconds(text, "--duplicate-below", "50us")


def _as_it_stands(model: str) -> bool:
    return model.lower().endswith(AS_IT_STANDS) and not model.startswith("hf:")


def _refuse_unused(
    model: str, costs: Costs, fuse: str | None, fold: bool | None, speeds: bool, inference: bool, memory: MemoryFlags
) -> None:
    """Say what would have no effect, and refuse a wrong name before anything is read."""
    rules_named(fuse or ANY.name)
    profiled = model.lower().endswith(".txt")
    if not profiled:
        for option, given in (("--speed", speeds), ("--inference", inference)):
            if given:
                raise InvalidInput(f"{option} is for profiles of PipeDream (.txt), and {model!r} is none; leave it out")
    if _as_it_stands(model):
        for option, given in (
            ("--fuse", fuse is not None),
            ("--fold", fold is not None),
            ("--costs", costs != "auto"),
            *((option, True) for option in memory.given if not (profiled and option in OF_PROFILES)),
        ):
            if given:
                raise InvalidInput(
                    f"{option} is for networks that are captured (.onnx, .pt2, py:module:function), and {model!r} has "
                    "its operators and their times as they are; leave it out"
                )
    if memory.optimizer is not None and fold:
        raise InvalidInput("--fold auto takes weights for constants, which --optimizer trains; leave one of them out")


def _posed(
    model: str,
    cluster_path: Path | None,
    flags: ObjectiveFlags,
    wishes: Sequence[Wish],
    costs: Costs,
    fuse: str,
    fold: bool,
    speeds: Sequence[str],
    inference: bool,
    memory: MemoryFlags,
    tell: Callable[[str], None],
    on_step: Callable[[str], None] | None,
) -> Problem:
    profiled = model.lower().endswith(".txt")
    if _as_it_stands(model) and not profiled:
        return _from_file(model, cluster_path, flags, wishes, tell)
    cluster_path = needed_cluster(model, cluster_path)
    objective = flags.applied(MaxLoad() if profiled else Makespan())
    cluster = read_cluster(cluster_path)
    if profiled:
        return _from_profile(model, cluster, objective, wishes, speeds, inference, memory, tell)
    tell(f"capturing {model}")
    rules = rules_named(fuse)
    graph = capture(model, fuse="none", fold=fold)
    if held := dict.fromkeys(name for v in graph.operators for name in v.folded):
        tell(
            f"computed once, from weights alone: {first_few(list(held))} ({len(held)} operators); "
            "--fold none places them"
        )
    graph, cluster = with_memory(memory, model, graph, cluster, objective, tell)
    graph = fused(graph, rules, support=_wished(graph, wishes))
    graph = with_workspaces(memory, model, graph, objective, tell)
    if not graph.name:
        graph = replace(graph, name=model.rpartition(":")[2] if model.startswith("py:") else Path(model).stem)
    # What is wrong with the wishes is said before minutes are spent on measuring.
    Problem(graph, cluster, np.zeros((len(graph), len(cluster))), wishes=wishes)
    times, cluster = times_for(model, graph, cluster, costs=costs, on_progress=tell, on_step=on_step)
    return Problem(graph, cluster, times, objective, wishes)


def _wished(graph: OperatorGraph, wishes: Sequence[Wish]) -> list[tuple[int, ...] | None]:
    """Which wishes speak of an operator; ``None``: none does."""
    return [tuple(k for k, w in enumerate(wishes) if fnmatchcase(v.name, w.pattern)) or None for v in graph.operators]


def _from_file(
    model: str,
    cluster_path: Path | None,
    flags: ObjectiveFlags,
    wishes: Sequence[Wish],
    tell: Callable[[str], None],
) -> Problem:
    found = read_any_problem(model, lambda: flags.applied(MaxLoad()))
    given = found.problem
    if cluster_path is not None:
        raise InvalidInput(f"{found.kind} {model!r} has its own cluster; leave --cluster out")
    objective = flags.applied(given.objective)
    if isinstance(objective, Offload) and not found.states_objective:
        tell(f"{found.kind} {model}: its CPUs are one pool, which maxCPUs does not limit")
    for note in found.notes:
        tell(f"{found.kind} {model}: {note}")
    if given.times.source == MILLISECONDS:
        tell(f"{found.kind} {model}: its times have no unit, milliseconds are assumed")
    return replace(given, objective=objective, wishes=(*given.wishes, *wishes))


def _from_profile(
    model: str,
    cluster: Cluster,
    objective: Objective,
    wishes: Sequence[Wish],
    speeds: Sequence[str],
    inference: bool,
    memory: MemoryFlags,
    tell: Callable[[str], None],
) -> Problem:
    speed = speeds_of(speeds, cluster)
    profile = read_pipedream(model, inference=inference)
    tell(f"profile {model}: its times have no unit, milliseconds are assumed")
    slow = [d.name for d in cluster.devices if d.name not in speed]
    if slow:
        whose = first_few(slow) if speed else "every device"
        tell(f"no --speed is given for {whose}: taken to be as fast as the profiled device")
    graph = with_profiled_training(memory, profile.graph, cluster, objective, tell)
    return Problem(graph, cluster, profile.times_on(cluster, speed), objective, wishes)


def as_fold(name: str | None) -> bool | None:
    """Whether to fold, of ``--fold``; ``None`` where nothing was said."""
    if name not in (None, "auto", "none"):
        raise InvalidInput(f"--fold {name!r} is unknown; use one of auto, none")
    return None if name is None else name == "auto"


def as_transfers(name: str | None) -> Transfers | None:
    """Check how tensors are to travel; ``None`` where nothing was said."""
    for known in get_args(Transfers):
        if name == known:
            return known  # type: ignore[no-any-return]
    if name is not None:
        raise InvalidInput(f"--transfers {name!r} is unknown; use one of {', '.join(get_args(Transfers))}")
    return None


def as_wishes(pins: Sequence[str], forbids: Sequence[str]) -> list[Wish]:
    """Wishes of ``PATTERN=DEVICE`` texts.

    Examples
    --------
    >>> as_wishes(["embed*=gpu0"], [])
    [Wish(pattern='embed*', device='gpu0', forbid=False)]
    """
    wishes = []
    for forbid, texts in ((False, pins), (True, forbids)):
        for text in texts:
            pattern, equals, device = text.rpartition("=")
            if not (equals and pattern and device):
                option = "--forbid" if forbid else "--pin"
                raise InvalidInput(
                    f"{option} {text!r} is not PATTERN=DEVICE; write for example {option} 'encoder.*=gpu0'"
                )
            wishes.append(Wish(pattern, device, forbid))
    return wishes
