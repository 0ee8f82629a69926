"""From what a user names (a model or a problem file, and a cluster) to a problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import numpy as np

from placewright.capture import capture
from placewright.cluster import Cluster
from placewright.costs import profile, roofline
from placewright.errors import InvalidInput
from placewright.graph import OperatorGraph
from placewright.host import available_cores
from placewright.io import read_cluster, read_plan, read_problem
from placewright.objective import Objective, as_objective
from placewright.problem import Problem, Times, Wish

__all__ = ["Costs", "as_costs", "as_wishes", "named_objective", "pose", "read_posed", "times_for"]

Costs: TypeAlias = Literal["auto", "profile", "roofline"]


def pose(
    model: str,
    cluster_path: Path | None,
    *,
    objective: Objective | None = None,
    wishes: Sequence[Wish] = (),
    costs: Costs = "auto",
    fuse: bool = True,
    on_progress: Callable[[str], None] | None = None,
    on_step: Callable[[str], None] | None = None,
) -> Problem:
    """Make the problem that a command line describes.

    Parameters
    ----------
    model : str
        An ``.onnx`` or ``.pt2`` file, ``py:package.module:function``, or a problem file (``.json``).
    cluster_path : Path or None
        Needed unless ``model`` is a problem file; with one, it may not be given.
    objective : Objective or None
        Replaces the one of a problem file.
    wishes : sequence of Wish
        Added to those of a problem file.
    costs : {"auto", "profile", "roofline"}
        See :func:`times_for`.
    fuse : bool
        Whether operators that a back-end never separates are placed as one.
    on_progress : callable, optional
        Told what happens, a line at a time.
    on_step : callable, optional
        Told of each of the many steps of a measurement.

    Raises
    ------
    InvalidInput
        If the model needs a cluster and there is none, or the reverse, and whatever its parts raise.
    """
    if model.lower().endswith(".json"):
        if cluster_path is not None:
            raise InvalidInput(f"problem file {model!r} has its own cluster; leave --cluster out")
        given = read_problem(model)
        return Problem(
            given.graph, given.cluster, given.times, objective or given.objective, (*given.wishes, *wishes), given.name
        )
    if cluster_path is None:
        raise InvalidInput(
            f"model {model!r} needs a cluster to be placed on; give --cluster CLUSTER.yaml "
            "('placewright probe' makes one)"
        )
    cluster = read_cluster(cluster_path)
    tell = on_progress or (lambda line: None)
    tell(f"capturing {model}")
    graph = capture(model, fuse=fuse)
    if not graph.name:
        graph = replace_name(graph, Path(model).stem if not model.startswith("py:") else model.rpartition(":")[2])
    # What is wrong with the wishes is said before minutes are spent on measuring.
    Problem(graph, cluster, np.zeros((len(graph), len(cluster))), wishes=wishes)
    times, cluster = times_for(model, graph, cluster, costs=costs, on_progress=tell, on_step=on_step)
    return Problem(graph, cluster, times, objective or "makespan", wishes)


def replace_name(graph: OperatorGraph, name: str) -> OperatorGraph:
    """Return the same graph under another name."""
    return OperatorGraph(graph.operators, graph.tensors, graph.colocation, name, graph.source)


def times_for(
    model: str,
    graph: OperatorGraph,
    cluster: Cluster,
    *,
    costs: Costs = "auto",
    on_progress: Callable[[str], None] | None = None,
    on_step: Callable[[str], None] | None = None,
) -> tuple[Times, Cluster]:
    """Get processing times: measured on devices that are CPU cores of this machine, roofline for the others.

    ``auto`` measures when every device of the cluster is here, so that measured and modelled devices aren't mixed
    unasked; ``profile`` measures what it can reach; ``roofline`` measures nothing.

    Returns
    -------
    Times
    Cluster
        The one given, with the measured cut overheads of measured devices that state none.
    """
    here = set(available_cores())
    reachable = [d.kind == "cpu" and bool(d.cores) and set(d.cores) <= here for d in cluster.devices]
    if costs == "roofline" or (costs == "auto" and not all(reachable)):
        return roofline(graph, cluster), cluster
    if not any(reachable):
        raise InvalidInput(
            f"no device of the cluster is a CPU with 'cores' among this machine's ({_shown(sorted(here))}), so none "
            "can be profiled; use --costs roofline, or a cluster that 'placewright probe' made"
        )
    tell = on_progress or (lambda line: None)
    tell(f"measuring the operators of {model} on {sum(reachable)} devices; times are kept for the next time")
    report = profile(model, graph, cluster, on_progress=on_step)
    for fallback in report.fallbacks:
        tell(f"not measured: {fallback.operator} on {fallback.device}: {fallback.reason}")
    for note in report.notes:
        tell(f"note: {note}")
    return report.times, report.cluster(cluster)


def _shown(cores: Sequence[int]) -> str:
    return ", ".join(map(str, cores[:8])) + (", ..." if len(cores) > 8 else "")


def read_posed(path: Path) -> Problem:
    """Read a problem: a problem file, or the one that a plan file carries."""
    try:
        return read_problem(path)
    except InvalidInput as not_a_problem:
        try:
            return read_plan(path).problem
        except InvalidInput:
            raise not_a_problem from None


def as_costs(name: str) -> Costs:
    """Check the name of a way to get times."""
    for known in get_args(Costs):
        if name == known:
            return known  # type: ignore[no-any-return]
    raise InvalidInput(f"--costs {name!r} is unknown; use one of {', '.join(get_args(Costs))}")


def named_objective(name: str | None, contention: str | None) -> Objective | None:
    """Objective of its name and options; ``None`` when neither is given.

    Examples
    --------
    >>> named_objective(None, "port")
    Makespan(contention='port', name='makespan')
    """
    if name is None and contention is None:
        return None
    chosen = as_objective(name or "makespan")
    return chosen if contention is None else replace(chosen, contention=contention)  # type: ignore[arg-type]


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
