"""A placement that someone made by hand, judged as it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placewright.algorithm import Budget, OnProgress, ignore
from placewright.evaluate import evaluate, plan_for
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.copies import with_copies

__all__ = ["Expert"]


@dataclass(frozen=True)
class Expert:
    """Judge a placement that a file gives: the human-expert baseline of arXiv 2006.16423.

    Published splits were made without a look at memory, and some use more accelerators than there are. Such a placement
    is no plan: its value and the rules that it breaks are returned as ``rejected_s`` and ``rejected``. The value is
    that of a problem in which the accelerators beyond the last one are there, as further copies of it.

    Guarantee: none: the value is that of the placement.
    Complexity: one evaluation.
    Source: the human-expert baseline of arXiv 2006.16423.
    When to use: to compare a split that you have with what is found here.

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
        last = max((i for i, d in enumerate(problem.cluster.devices) if d.kind != "cpu"), default=0)
        larger = with_copies(problem, last, excess)
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
