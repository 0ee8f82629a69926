"""Operators that a target can keep on its own CPU while their layer is elsewhere: experts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from placewright.algorithm import Budget
from placewright.evaluate import plan_for
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.plan import Plan
from placewright.problem import Problem, Times
from placewright.solvers.chain_split import placed, split_chain

__all__ = ["apart_of", "less_apart", "some_apart"]

Pattern = re.Pattern[str]


def apart_of(problem: Problem, row: Sequence[int], pattern: Pattern) -> list[int]:
    """List the operators of a row that may be apart from the others."""
    return [v for v in row if pattern.search(problem.graph.operators[v].name)]


def less_apart(
    plan: Plan, groups: Sequence[Sequence[int]], pattern: Pattern | None, cpu: int, problem: Problem
) -> Iterator[list[int]]:
    """Leave out of each group what may be apart, where the plan has all of it on this CPU."""
    for group in groups:
        row = list(group)
        apart = apart_of(problem, row, pattern) if pattern is not None else []
        if len(apart) < len(row) and set(plan.device_of[apart].tolist()) == {cpu}:
            row = [v for v in row if v not in set(apart)]
        yield row


def some_apart(
    problem: Problem,
    plan: Plan,
    whole: Plan | None,
    groups: Sequence[Sequence[int]],
    devices: Sequence[int],
    cpu: int,
    pattern: Pattern,
    clock: Budget,
) -> list[Plan]:
    """Make plans of rows with some groups' operators on a CPU: where the given plan has them so, and of the first ones.

    For each number of first groups the rest is split by :func:`placewright.solvers.chain_split.split_chain`, where what
    is apart takes a constant time and none of its layer's memory; the judge then says what the whole takes. The CPU
    takes the first block, or none.
    """
    found: list[Plan | None] = []
    apart = [apart_of(problem, row, pattern) for row in groups]
    if whole is not None:
        device = whole.device_of.copy()
        for row in apart:
            if 2 * plan.device_of[row].tolist().count(cpu) > len(row):
                device[row] = cpu
        found.append(plan_for(problem, device))
    p = np.where(problem.allowed, problem.times.processing_s, np.inf)
    holding = [k for k, row in enumerate(apart) if row]
    for count in range(1, len(holding) + 1):
        if clock.spent:
            break
        chosen = set(holding[:count])
        rest = [[v for v in row if k not in chosen or v not in set(apart[k])] for k, row in enumerate(groups)]
        split = split_chain(_in_short(problem, groups, rest, p[:, cpu]), _ones(groups), devices, first_only=[cpu])
        if split is not None:
            device = placed(problem, groups, split.device_of_group)
            for k in chosen:
                device[apart[k]] = cpu
            found.append(plan_for(problem, device))
    return [made for made in found if made is not None]


def _ones(groups: Sequence[Sequence[int]]) -> list[list[int]]:
    return [[k] for k in range(len(groups))]


def _in_short(
    problem: Problem, groups: Sequence[Sequence[int]], rest: Sequence[Sequence[int]], apart_s: np.ndarray
) -> Problem:
    """Return a problem with an operator for each group: its time and memory without what is apart, and that's time."""
    graph = problem.graph
    operators, times = [], []
    of = {v: k for k, row in enumerate(groups) for v in row}
    for k, (row, kept) in enumerate(zip(groups, rest, strict=True)):
        away = [v for v in row if v not in set(kept)]
        held = sum(graph.operators[v].resident_bytes for v in kept)
        operators.append(Operator(f"group {k}", weight_bytes=held))
        p = np.where(problem.allowed[kept], problem.times.processing_s[kept], np.inf)
        times.append(p.sum(axis=0) + apart_s[away].sum())
    tensors = []
    for u, t in enumerate(graph.tensors):
        readers = sorted({of[v] for v in t.readers} - {of[t.producer]})
        if readers and readers[0] > of[t.producer]:
            tensors.append(Tensor(f"{u}", of[t.producer], tuple(readers), t.size_bytes))
    short = OperatorGraph(operators, tensors)
    return Problem(short, problem.cluster, Times(np.array(times)), problem.objective)
