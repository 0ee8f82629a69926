"""Columns and rows of Moirai's mixed-integer program, and the way from a solution to a schedule and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from placewright.plan import Plan, Schedule, Transfer
from placewright.problem import Problem

__all__ = ["Leg", "MoiraiProgram", "Terms"]

Terms: TypeAlias = list[tuple[int, float]]
"""Columns and their factors."""


SAME = 1e-5
"""Units of time that a solver's tolerances may part what starts at once; it has a thousand of them."""


@dataclass(slots=True)
class Task:
    """An operator or a leg: the column of its start, and the terms that make its time."""

    start: int
    time: Terms
    low: float
    high: float
    """Between these it starts and ends, in units of time."""


@dataclass(slots=True)
class Leg(Task):
    """A tensor's way to its reader (``target`` -1), or to one device."""

    tensor: int
    target: int
    readers: list[int]
    uses: dict[int, list[int]]
    """Of each port, link or channel the columns that say whether the leg needs it."""


@dataclass(eq=False)
class MoiraiProgram:
    """The program: minimise column ``peak``, in units of ``scale_s`` seconds, subject to ``rows``."""

    problem: Problem
    scale_s: float
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    is_time: list[bool] = field(default_factory=list)
    rows: list[tuple[Terms, float, float]] = field(default_factory=list)
    """Terms, and the least and largest value of their sum."""
    x: list[dict[int, int]] = field(default_factory=list)
    """Of each unit the column of each device that it may use."""
    operators: list[Task] = field(default_factory=list)
    legs: list[Leg] = field(default_factory=list)
    pairs: list[tuple[int, Task, Task]] = field(default_factory=list)
    """A column that is 0 where the first of two tasks comes after the second, and 1 where it comes before."""
    pushed: list[tuple[int, list[tuple[Terms, float]]]] = field(default_factory=list)
    peak: int = -1

    def choice(self) -> int:
        """Add a column that is 0 or 1."""
        return self._column(0.0, 1.0, True, False)

    def moment(self, low: float, high: float) -> int:
        """Add a column of time."""
        return self._column(low, max(low, high), False, True)

    def largest_of(self, options: list[tuple[Terms, float]]) -> int:
        """Add a column between 0 and 1 that is at least each sum of terms and a constant; nothing gains by more."""
        column = self._column(0.0, 1.0, False, False)
        for terms, constant in options:
            self.at_least([(column, 1.0), *((k, -c) for k, c in terms)], constant)
        self.pushed.append((column, options))
        return column

    def _column(self, low: float, high: float, whole: bool, is_time: bool) -> int:
        self.low.append(low)
        self.high.append(high)
        self.whole.append(whole)
        self.is_time.append(is_time)
        return len(self.low) - 1

    def at_least(self, terms: Terms, least: float) -> None:
        """Add the row: sum of terms >= least."""
        self.rows.append((terms, least, np.inf))

    def after(self, later: Task, earlier: Task, *slack: tuple[int, float], constant: float = 0.0) -> None:
        """Add the row: start of ``later`` >= end of ``earlier`` + constant - slack."""
        row = [(later.start, 1.0), (earlier.start, -1.0), *((k, -c) for k, c in earlier.time), *slack]
        self.at_least(row, constant)

    def placement(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
        """(n,) device of each operator in a solution."""
        chosen = [max(row, key=lambda i: values[row[i]]) for row in self.x]
        return np.array([chosen[k] for k in self.problem.graph.unit_of], dtype=np.int32)

    def schedule(self, values: npt.NDArray[np.float64], device: npt.NDArray[np.int32]) -> Schedule:
        """Order of operators and transfers in a solution, as a schedule of steps of length 1.

        Starts are those of a solver that keeps rows up to a tolerance: the order obeys precedence whatever they are.
        """
        graph, n = self.problem.graph, len(self.operators)
        spans = [self._span(v, values) for v in self.operators]
        waits, before_of = [0] * n, dict[int, list[int]]()
        legs: list[tuple[int, int]] = []
        for leg in self.legs:
            home = int(device[graph.tensors[leg.tensor].producer])
            for j in sorted({int(device[v]) for v in leg.readers}) if leg.target < 0 else [leg.target]:
                readers = [v for v in leg.readers if device[v] == j]
                if j == home or not readers:
                    continue
                a = len(spans)
                spans.append(self._span(leg, values))
                legs.append((leg.tensor, j))
                before_of.setdefault(graph.tensors[leg.tensor].producer, []).append(a)
                before_of[a] = readers
                waits.append(1)
                for v in readers:
                    waits[v] += 1
        for t in graph.tensors:
            for v in t.readers:
                before_of.setdefault(t.producer, []).append(v)
                waits[v] += 1
        ready = [v for v in range(n) if waits[v] == 0]
        step = np.zeros(len(spans))
        for k in range(len(spans)):
            # Of those that start at once the one that ends first: it takes no time, and others may not wait for it.
            at_once = min(spans[a][0] for a in ready) + SAME
            chosen = min((spans[a][1], a) for a in ready if spans[a][0] <= at_once)[1]
            ready.remove(chosen)
            step[chosen] = k
            for b in before_of.get(chosen, []):
                waits[b] -= 1
                if waits[b] == 0:
                    ready.append(b)
        transfers = [
            Transfer(u, int(device[graph.tensors[u].producer]), j, step[n + k], step[n + k] + 1.0)
            for k, (u, j) in enumerate(legs)
        ]
        return Schedule(step[:n], step[:n] + 1.0, tuple(transfers))

    def _span(self, task: Task, values: npt.NDArray[np.float64]) -> tuple[float, float]:
        start = float(values[task.start])
        return start, start + sum(c * float(values[k]) for k, c in task.time)

    def values_of(self, plan: Plan) -> Sequence[float]:
        """Solution that a plan is."""
        graph, device = self.problem.graph, plan.device_of
        values = np.zeros(len(self.low))
        for v, k in enumerate(graph.unit_of):
            values[self.x[k][int(device[v])]] = 1.0
            values[self.operators[v].start] = plan.schedule.start_s[v] / self.scale_s
        for column, options in self.pushed:
            values[column] = max(0.0, *(constant + sum(c * values[k] for k, c in terms) for terms, constant in options))
        sent = {(t.tensor, t.target): t.start_s / self.scale_s for t in plan.schedule.transfers}
        for leg in self.legs:
            target = leg.target if leg.target >= 0 else int(device[leg.readers[0]])
            made = float(plan.schedule.finish_s[graph.tensors[leg.tensor].producer]) / self.scale_s
            values[leg.start] = sent.get((leg.tensor, target), made)
        for column, first, second in self.pairs:
            values[column] = float(values[first.start] < self._span(second, values)[1] - SAME)
        values[self.peak] = plan.value_s / self.scale_s
        return [float(v) for v in np.clip(values, self.low, self.high)]
