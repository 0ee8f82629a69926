"""The stages of a plan and their loads, as every report of the max-load shows them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from placewright.evaluate import ChannelUse, DeviceUse, Evaluation
from placewright.loads import objective_of, order_edges
from placewright.objective import MaxLoad, Throughput, busy_share_of
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.report.listing import counted

__all__ = [
    "PASSES",
    "StageUse",
    "bottlenecks",
    "channel_label",
    "copies",
    "load_formula",
    "load_objective",
    "loaded_channels",
    "operators_text",
    "pass_names",
    "peaks_s",
    "per_second",
    "pipeline_order",
    "shortened",
    "slowest",
    "stages_of",
]

PASSES = ("forward", "backward")

COPIES_NAMED = 3
"""Names of more copies of a stage are left out."""

TOLERANCE = 1e-9
"""Loads that differ by a smaller part count as equal: they are sums of the same numbers in another order."""


@dataclass(frozen=True, slots=True)
class StageUse:
    """What one device does for the pipeline, or several that are copies of each other.

    Attributes
    ----------
    devices : tuple of int
        The first one runs what the plan places; the others are copies.
    name : str
        Of the devices.
    use : DeviceUse
        Of the first one.
    forward, backward : int
        Numbers of operators.
    first, last : str
        Names of the first and the last operator in topological order, of the forward pass where there is one.
    """

    devices: tuple[int, ...]
    name: str
    use: DeviceUse
    forward: int = 0
    backward: int = 0
    first: str = ""
    last: str = ""

    @property
    def operators(self) -> int:
        """Of both passes."""
        return self.use.operators

    def number(self, which: int, passes: int) -> int:
        """Operators of one pass of so many that count apart."""
        return self.operators if passes == 1 else (self.forward, self.backward)[which]


def slowest(loads_s: Sequence[float], peaks_s: Sequence[float]) -> list[int]:
    """Find the passes in which something with these loads has the largest one.

    Examples
    --------
    >>> slowest([4.0, 3.0], [4.0, 11.0])
    [0]
    """
    return [k for k, (load, peak) in enumerate(zip(loads_s, peaks_s, strict=True)) if load >= peak * (1 - TOLERANCE)]


def copies(names: Sequence[str]) -> str:
    """Name the devices of a stage.

    Examples
    --------
    >>> copies(["gpu0"]), copies(["gpu0", "gpu1"]), copies(["a", "b", "c", "d", "e"])
    ('gpu0', 'gpu0, gpu1 (2 copies)', 'a, b, c, ... (5 copies)')
    """
    if len(names) == 1:
        return names[0]
    shown = [*names[:COPIES_NAMED], *(["..."] if len(names) > COPIES_NAMED else [])]
    return f"{', '.join(shown)} ({len(names)} copies)"


def channel_label(name: str) -> str:
    """Name a channel among devices."""
    return f"channel {name}"


def stages_of(problem: Problem, evaluation: Evaluation, plan: Plan | None = None) -> list[StageUse]:
    """List what is used: in the order of the pipeline where there is one, else in the cluster's order.

    Without a plan every device that runs something is listed alone, and nothing is known of its operators but their
    number.
    """
    if plan is None:
        return [StageUse((i,), use.name, use) for i, use in enumerate(evaluation.devices) if use.operators]
    at = plan.device_of
    order = pipeline_order(problem, at) or sorted({int(i) for i in at})
    devices_of = {stage[0]: stage for stage in plan.replicas}
    backward = np.array([v.backward for v in problem.graph.operators], dtype=np.bool_)
    made = []
    for i in order:
        members = np.flatnonzero(at == i)
        forward = members[~backward[members]]
        ends = forward if len(forward) else members
        first, last = (problem.graph.operators[int(v)].name for v in (ends[0], ends[-1]))
        devices = devices_of.get(i, (i,))
        name = copies([problem.cluster.devices[j].name for j in devices])
        numbers = len(forward), len(members) - len(forward)
        made.append(StageUse(devices, name, evaluation.devices[i], *numbers, first, last))
    return made


def pipeline_order(problem: Problem, device_of: npt.NDArray[np.int32]) -> list[int]:
    """Devices in an order along which no edge that contiguity is about goes back; empty where there is none.

    Among several orders the one is taken whose next device has the earliest operator. Devices that contiguity does not
    bind stand at the end.
    """
    import rustworkx

    objective, devices = objective_of(problem), problem.cluster.devices
    bound = [objective.contiguous_cpus or d.kind != "cpu" for d in devices]
    unit_of = problem.graph.unit_of
    place = dict(zip(unit_of, device_of.tolist(), strict=True))
    earliest: dict[int, int] = {}
    for v, i in enumerate(device_of.tolist()):
        node = -1 - i if bound[i] else unit_of[v]
        earliest.setdefault(node, v)
    names = list(earliest)
    number = {name: x for x, name in enumerate(names)}
    node_of = {k: number[-1 - i if bound[i] else k] for k, i in place.items()}
    quotient: rustworkx.PyDiGraph[int, None] = rustworkx.PyDiGraph(multigraph=False)
    quotient.add_nodes_from(names)
    ends = {(node_of[a], node_of[b]) for a, b in order_edges(problem.graph)}
    quotient.add_edges_from_no_data(sorted((a, b) for a, b in ends if a != b))
    if not rustworkx.is_directed_acyclic_graph(quotient):
        return []
    ordered = rustworkx.lexicographical_topological_sort(quotient, lambda name: f"{earliest[name]:012d}")
    chain = [-1 - name for name in ordered if name < 0]
    return chain + sorted({int(i) for i in device_of} - set(chain))


def peaks_s(evaluation: Evaluation) -> tuple[float, ...]:
    """Largest load of a device or channel, one a pass that counts apart: the value is their sum."""
    rows = [tuple(load.load_s for load in use.loads) for use in evaluation.devices]
    rows += [channel.load_s for channel in evaluation.channels]
    return tuple(max(column) for column in zip(*rows, strict=True))


def pass_names(evaluation: Evaluation) -> tuple[str, ...]:
    """Names of the passes that count apart; one empty name where they don't."""
    return PASSES if len(evaluation.devices[0].loads) > 1 else ("",)


def loaded_channels(evaluation: Evaluation) -> list[ChannelUse]:
    """Channels that carry something, the one with most to carry first."""
    return sorted((c for c in evaluation.channels if any(c.load_s)), key=lambda c: -sum(c.load_s))


def load_formula(problem: Problem, evaluation: Evaluation) -> str:
    """Say what a load is made of.

    Examples
    --------
    >>> from placewright import Cluster, Device, MaxLoad, Operator, OperatorGraph, Problem, evaluate
    >>> one = Problem(OperatorGraph([Operator("a")]), Cluster([Device("gpu")]), [[0.5]], MaxLoad(overlap="transfers"))
    >>> load_formula(one, evaluate(one, [0]))
    'max(compute, in + out)'
    >>> half = Problem(one.graph, one.cluster, one.times, MaxLoad(overlap="full", busy_share=0.5))
    >>> load_formula(half, evaluate(half, [0]))
    'max(compute + 0.5 (in + out), in, out)'
    """
    objective = load_objective(problem)
    share, synced = busy_share_of(objective), any(load.sync_s for use in evaluation.devices for load in use.loads)
    busy = "compute" + (f" + {share:.3g} (in + out)" if 0 < share < 1 else " + in + out" if share else "")
    beside = {"none": "", "transfers": "in + out", "full": "in, out"}[objective.overlap] if share < 1 else ""
    return (f"max({busy}, {beside})" if beside else busy) + (" + sync" if synced else "")


def load_objective(problem: Problem) -> MaxLoad | Throughput:
    """Return the objective of a problem that has loads."""
    return problem.objective if isinstance(problem.objective, Throughput) else objective_of(problem)


def per_second(value_s: float) -> str:
    """Rate of a time per sample.

    Examples
    --------
    >>> per_second(0.01), per_second(3.0), per_second(1e-4), per_second(0.0)
    ('100 samples/s', '0.333 samples/s', '10,000 samples/s', 'unlimited samples/s')
    """
    if value_s <= 0:
        return "unlimited samples/s"
    rate = 1.0 / value_s
    if rate == 0 or not math.isfinite(rate):
        return "0 samples/s"
    return f"{rate:,.0f} samples/s" if rate >= 999.5 else f"{rate:.3g} samples/s"


def bottlenecks(stages: Sequence[StageUse], evaluation: Evaluation, which: int) -> Iterator[StageUse | str]:
    """Stages and names of channels whose load in a pass is the largest, stages first."""
    peaks = peaks_s(evaluation)
    yield from (s for s in stages if which in slowest([load.load_s for load in s.use.loads], peaks))
    yield from (c.name for c in evaluation.channels if which in slowest(c.load_s, peaks))


def operators_text(stage: StageUse) -> str:
    """Count the operators of a stage, by pass where it has both.

    Examples
    --------
    >>> from placewright.evaluate import DeviceUse
    >>> use = DeviceUse("gpu", 3, 0.0, 0, 0, 0, 0, 0, None)
    >>> operators_text(StageUse((0,), "gpu", use, 2, 1)), operators_text(StageUse((0,), "gpu", use, 3, 0))
    ('2 forward, 1 backward', '3 operators')
    """
    if stage.forward and stage.backward:
        return f"{stage.forward:,} forward, {stage.backward:,} backward"
    return counted(stage.operators, "backward operator" if stage.backward else "operator")


def shortened(names: Sequence[str], most: int) -> tuple[str, list[str]]:
    """Take what all names start with off them, up to a dot or slash, and cut those still too long in their middle.

    Returns
    -------
    str
        The common start; empty where no name is too long.
    list of str

    Examples
    --------
    >>> shortened(["net.layers.0.attention.query", "net.layers.1.mlp"], 12)
    ('net.layers.', ['0.at...query', '1.mlp'])
    >>> shortened(["net.a", "net.b"], 12)
    ('', ['net.a', 'net.b'])
    """
    if all(len(name) <= most for name in names):
        return "", list(names)
    low, high = min(names), max(names)
    start = low[: next((k for k, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))]
    start = start[: max(start.rfind("."), start.rfind("/")) + 1]
    rest = [name[len(start) :] for name in names]
    head = (most - 3) // 2
    tail = most - 3 - head
    return start, [name if len(name) <= most else f"{name[:head]}...{name[-tail:]}" for name in rest]
