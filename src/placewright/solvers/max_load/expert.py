"""A placement that someone made by hand, judged as it is."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from placewright.algorithm import Budget, OnProgress, ignore
from placewright.cluster import Cluster
from placewright.evaluate import evaluate, plan_for
from placewright.plan import Plan, Provenance
from placewright.problem import Problem, Times
from placewright.result import Result

__all__ = ["Expert"]


@dataclass(frozen=True)
class Expert:
    """Judge a placement that a file gives: the human-expert baseline of arXiv 2006.16423, section 6.

    Published splits were made without a look at memory, and some use more accelerators than there are. Such a placement
    is no plan: its value and the rules that it breaks are returned as ``rejected_s`` and ``rejected``. The value is
    that of a problem in which the accelerators beyond the last one are there, as further copies of it.

    Attributes
    ----------
    device_of : tuple of int
        Device index of each operator; numbers from the number of devices upwards: accelerators beyond the last.

    Examples
    --------
    >>> from placewright import Cluster, Device, MaxLoad, Operator, OperatorGraph
    >>> graph = OperatorGraph([Operator("a"), Operator("b")])
    >>> two = Problem(graph, Cluster([Device("g0"), Device("g1")]), [[3.0, 3.0], [2.0, 2.0]], MaxLoad())
    >>> run = {"budget": Budget(), "rng": np.random.default_rng(0)}
    >>> Expert((0, 1))(two, **run).value_s
    3.0
    >>> found = Expert((0, 2))(two, **run)
    >>> found.value_s, found.rejected_s
    (inf, 3.0)
    """

    device_of: tuple[int, ...] = ()

    def supports(self, problem: Problem) -> str | None:
        """Tell why this placement is none of the problem's."""
        if not self.device_of:
            return "it needs a placement; give its file with --expert SPLIT.json"
        if len(self.device_of) != len(problem.graph):
            return f"the placement is for {len(self.device_of)} operators, and there are {len(problem.graph)}"
        if self._excess(problem) > 0 and all(d.kind == "cpu" for d in problem.cluster.devices):
            return "the placement uses accelerators, and there are none"
        return None

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Evaluate the placement once, whatever the budget."""
        excess = max(0, self._excess(problem))
        larger = _with_more(problem, excess) if excess else problem
        judged = evaluate(larger, self.device_of)
        rules = list(judged.violations)
        if excess:
            there = sum(d.kind != "cpu" for d in problem.cluster.devices)
            rules.insert(0, f"it uses {there + excess} accelerators, and there are {there}")
        if rules:
            return Result(solver="expert", rejected_s=judged.value_s, rejected="; ".join(rules))
        plan = plan_for(problem, self.device_of, schedule=judged.schedule, provenance=Provenance("expert"))
        return Result(plan, solver="expert")

    def _excess(self, problem: Problem) -> int:
        return max(self.device_of) + 1 - len(problem.cluster)


def _with_more(problem: Problem, count: int) -> Problem:
    """Add ``count`` copies of the last accelerator to a problem, linked as that one is."""
    cluster, times, D = problem.cluster, problem.times, len(problem.cluster)
    last = max(i for i, d in enumerate(cluster.devices) if d.kind != "cpu")
    taken = [*range(D), *[last] * count]
    devices = list(cluster.devices)
    names = {d.name for d in devices}
    for k in range(count):
        name = f"{devices[last].name}+{k + 1}"
        while name in names:
            name += "+"
        names.add(name)
        devices.append(replace(devices[last], name=name))
    larger = Cluster(devices, cluster.links)
    return Problem(
        problem.graph,
        larger,
        Times(times.processing_s[:, taken], _transfer_s(problem, larger, taken, last), times.source),
        problem.objective,
        [replace(wish) for wish in problem.wishes],
        problem.name,
    )


def _transfer_s(problem: Problem, larger: Cluster, taken: list[int], last: int) -> npt.NDArray[np.float64]:
    """(T, D + count, D + count) transfer times; a copy is linked to others as the last accelerator is.

    Between copies they are what the rules for links say, or else those from the last accelerator to the one before it.
    """
    D, table, cluster = len(problem.cluster), problem.times.transfer_s, problem.cluster
    sizes = np.array([t.size_bytes for t in problem.graph.tensors], dtype=np.float64)
    between = larger.latency_s[last, D] + sizes * larger.seconds_per_byte[last, D]
    if table is None:
        table = cluster.latency_s + sizes[:, None, None] * cluster.seconds_per_byte
    others = [i for i in range(D) if i != last]
    if others and (problem.times.transfer_s is not None or not np.isfinite(between).all()):
        nearest = [i for i in others if cluster.devices[i].kind != "cpu"] or others
        between = table[:, last, nearest[-1]]
    copied = table[:, taken][:, :, taken].copy()
    copies = [last, *range(D, len(taken))]
    for i in copies:
        for j in copies:
            copied[:, i, j] = between if i != j else 0.0
    return copied
