"""Splits in the JSON format of the program dnn-partitioning: which node runs on which CPU core or accelerator."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from placewright.errors import InvalidInput
from placewright.evaluate.evaluation import Evaluation
from placewright.evaluate.offload import fewest_calls, numbered_calls
from placewright.io.partitioning_file import MOST_NAMED, UNIT_S, node_ids
from placewright.io.reading import decode_json, read_bounded
from placewright.objective import Offload
from placewright.plan import Plan, as_placement
from placewright.problem import Problem

__all__ = ["Split", "read_split", "split_to_json"]


class GroupDocument(msgspec.Struct):
    """Nodes of one device; ``load`` is -1 where its writer did not compute it."""

    nodes: list[int]
    load: float = -1.0


class SplitDocument(msgspec.Struct, rename={"max_load": "maxLoad"}):
    """A split; what the published programs write, and what they read."""

    cpus: list[GroupDocument]
    fpgas: list[GroupDocument]
    max_load: float = -1.0


@dataclass(frozen=True, eq=False)
class Split:
    """A placement that a split file describes.

    Attributes
    ----------
    device_of : (n,) int array
        Device index of each operator. Numbers from the number of devices upwards stand for accelerators that the split
        uses beyond those that there are.
    excess : int
        How many of those there are: 0 for a split that the problem has the accelerators for.
    """

    device_of: npt.NDArray[np.int32]
    excess: int = 0


def read_split(path: Path | str, problem: Problem) -> Split:
    """Read a split of dnn-partitioning for a problem.

    The groups under ``fpgas`` are the problem's devices of another kind than ``cpu``, in their order; those under
    ``cpus`` its CPUs, which are one pool under offload: groups beyond the last CPU go to the first. An operator that
    the split leaves out goes where the others of its colocation class are, as in the published program: the split of
    an inference serves for its training.

    Parameters
    ----------
    path : path
    problem : Problem
        Its operators are named by :func:`placewright.io.partitioning_file.node_ids`.

    Raises
    ------
    InvalidInput
        With every violation: ids that are not there, stand twice or are missing, more CPUs than there are.
    """
    what = f"split {str(path)!r}"
    document = decode_json(read_bounded(path, "split"), SplitDocument, what)
    devices = problem.cluster.devices
    cores = [i for i, d in enumerate(devices) if d.kind == "cpu"]
    accelerators = [i for i, d in enumerate(devices) if d.kind != "cpu"]
    cpus, fpgas = (
        _used(groups, len(here)) for groups, here in ((document.cpus, cores), (document.fpgas, accelerators))
    )
    excess = max(0, len(fpgas) - len(accelerators))
    accelerators += range(len(devices), len(devices) + excess)
    if cores and isinstance(problem.objective, Offload):
        cores += cores[:1] * (len(cpus) - len(cores))
    if len(cpus) > len(cores):
        raise InvalidInput(f"uses {len(cpus)} CPUs; there are {len(cores)}, so merge some", what=what)
    placed: list[tuple[int, int]] = []
    for groups, here in ((cpus, cores), (fpgas, accelerators)):
        for group, i in zip(groups, here, strict=False):
            placed += [(number, i) for number in group.nodes]
    where = dict(placed)
    ids = node_ids([v.name for v in problem.graph.operators])
    position = {number: v for v, number in enumerate(ids)}
    violations = list(islice(_wrong_ids([number for number, _ in placed], position), MOST_NAMED))
    device_of = [where.get(number, -1) for number in ids]
    home = {unit: i for unit, i in zip(problem.graph.unit_of, device_of, strict=True) if i >= 0}
    device_of = [home.get(unit, -1) if i < 0 else i for unit, i in zip(problem.graph.unit_of, device_of, strict=True)]
    missing = [ids[v] for v, i in enumerate(device_of) if i < 0]
    if missing:
        shown = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        violations.append(f"{len(missing)} of {len(ids)} nodes are in no group: {shown}; add them")
    if violations:
        raise InvalidInput(violations, what=what)
    return Split(as_placement(device_of), excess)


def _used(groups: Sequence[GroupDocument], there: int) -> Sequence[GroupDocument]:
    """All groups, or those with nodes where there are more groups than devices."""
    return groups if len(groups) <= there else [group for group in groups if group.nodes]


def _wrong_ids(numbers: Sequence[int], position: dict[int, int]) -> Iterator[str]:
    seen: set[int] = set()
    for number in numbers:
        if number not in position:
            yield f"there is no node with the id {number}; give the problem that the split is for"
        elif number in seen:
            yield f"node {number} stands twice; keep one"
        seen.add(number)


def split_to_json(problem: Problem, plan: Plan, evaluation: Evaluation) -> str:
    """Make the text of a split file; loads and ``maxLoad`` in milliseconds, a group for each device.

    Of an offload plan the loads are what the calls of a device take together, and there is no ``maxLoad``.

    Raises
    ------
    InvalidInput
        If the plan replicates stages, or splits calls of an accelerator otherwise than the published program would:
        the format has no words for either.
    """
    if plan.replicas:
        raise InvalidInput(
            "the plan replicates stages, which a split of dnn-partitioning can't say; plan without --replicate"
        )
    if len(plan.copies) > 1:
        raise InvalidInput(
            f"the plan has {len(plan.copies)} copies of the network, and a split of dnn-partitioning says one; plan "
            "for --objective max-load, or keep the plan file"
        )
    if plan.call_of is not None and not np.array_equal(
        numbered_calls(problem, plan.device_of, plan.call_of), fewest_calls(problem, plan.device_of)
    ):
        raise InvalidInput(
            "the plan makes other calls than the fewest that its placement allows, and a split of dnn-partitioning "
            "names devices alone; plan with --calls 1, or keep the plan file"
        )
    ids = node_ids([v.name for v in problem.graph.operators])
    held: list[list[int]] = [[] for _ in problem.cluster.devices]
    for number, i in zip(ids, plan.device_of.tolist(), strict=True):
        held[i].append(number)
    document = SplitDocument([], [], _milliseconds(evaluation.value_s) if plan.call_of is None else -1.0)
    for device, use, numbers in zip(problem.cluster.devices, evaluation.devices, held, strict=True):
        load = use.load_s if use.loads else use.busy_s
        groups = document.cpus if device.kind == "cpu" else document.fpgas
        groups.append(GroupDocument(sorted(numbers), _milliseconds(load)))
    return msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n"


def _milliseconds(seconds: float) -> float:
    return seconds / UNIT_S if math.isfinite(seconds) else -1.0
