"""The calls of an offload plan as its reports show them: parts, tensors, and the chain that bounds the latency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from placewright.evaluate import Call, Evaluation, calls_of
from placewright.plan import Plan
from placewright.problem import Problem

__all__ = ["Part", "Step", "call_name", "critical_chain", "drawn_times", "nodes_of", "parts_of", "tensors_at"]

TOLERANCE = 1e-9
"""Instants that differ by a smaller part of the latency are one."""


@dataclass(frozen=True, slots=True)
class Part:
    """Transfers in or out of a call, as a bar.

    Attributes
    ----------
    call : Call
    out : bool
    tensors : int
    size_bytes : int
    start_s, finish_s : float
    """

    call: Call
    out: bool
    tensors: int
    size_bytes: int
    start_s: float
    finish_s: float


@dataclass(frozen=True, slots=True)
class Step:
    """One link of the chain that bounds the latency: a call, or (``call`` is ``None``) an operator on a CPU.

    ``waited`` says whether it started at the end of the call before it on its device and not of one of its inputs.
    """

    call: Call | None
    operator: int
    start_s: float
    finish_s: float
    waited: bool = False


def call_name(problem: Problem, call: Call) -> str:
    """Name a call among all.

    Examples
    --------
    >>> from placewright import Cluster, Device, Operator, OperatorGraph
    >>> from placewright.evaluate import Load
    >>> one = Problem(OperatorGraph([Operator("a")]), Cluster([Device("npu")]), [[1.0]], "offload")
    >>> call_name(one, Call(0, 1, (0,), Load(1.0, 0.0, 0.0, 0.0, 1.0), 0.0, 1.0))
    "call 2 of 'npu'"
    """
    return f"call {call.number + 1} of {problem.cluster.devices[call.device].name!r}"


def nodes_of(problem: Problem, calls: Sequence[Call]) -> npt.NDArray[np.int64]:
    """(n,) index of each operator's call, or -1 on a CPU."""
    node = np.full(len(problem.graph), -1, dtype=np.int64)
    for k, call in enumerate(calls):
        node[list(call.operators)] = k
    return node


def tensors_at(problem: Problem, calls: Sequence[Call]) -> list[tuple[list[int], list[int]]]:
    """List for each call the tensors that enter and those that leave."""
    node = nodes_of(problem, calls)
    found: list[tuple[list[int], list[int]]] = [([], []) for _ in calls]
    for u, tensor in enumerate(problem.graph.tensors):
        home = int(node[tensor.producer])
        readers = {int(node[v]) for v in tensor.readers}
        for k in sorted(readers - {-1, home}):
            found[k][0].append(u)
        if home >= 0 and readers - {home}:
            found[home][1].append(u)
    return found


def parts_of(problem: Problem, calls: Sequence[Call]) -> list[Part]:
    """Bars of the transfers in and out of all calls, without those that take no time."""
    made = []
    sizes = [t.size_bytes for t in problem.graph.tensors]
    for call, (enters, leaves) in zip(calls, tensors_at(problem, calls), strict=True):
        if call.load.in_s > 0:
            size, end = sum(sizes[u] for u in enters), call.start_s + call.load.in_s
            made.append(Part(call, False, len(enters), size, call.start_s, end))
        if call.load.out_s > 0:
            size, start = sum(sizes[u] for u in leaves), call.finish_s - call.load.out_s
            made.append(Part(call, True, len(leaves), size, start, call.finish_s))
    return made


def drawn_times(
    problem: Problem, plan: Plan, evaluation: Evaluation
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """(n,) starts and finishes as they are drawn: operators of a call one after the other between its transfers."""
    start, finish = evaluation.schedule.start_s.copy(), evaluation.schedule.finish_s.copy()
    for call in calls_of(problem, plan, evaluation):
        at = call.start_s + call.load.in_s
        for v in call.operators:
            start[v] = at
            at += float(problem.times.processing_s[v, call.device])
            finish[v] = at
    return start, finish


def critical_chain(problem: Problem, plan: Plan, evaluation: Evaluation) -> list[Step]:
    """Find the steps from time 0 to the latency, each started by the end of the one before it."""
    calls = calls_of(problem, plan, evaluation)
    node = nodes_of(problem, calls)
    start, finish = evaluation.schedule.start_s, evaluation.schedule.finish_s
    slack = TOLERANCE * evaluation.value_s
    v, chain = int(np.argmax(finish)), list[Step]()
    seen: set[int] = set()
    while True:
        k = int(node[v])
        call = calls[k] if k >= 0 else None
        members = list(call.operators) if call else [v]
        seen.update(members)
        makers = {problem.graph.tensors[u].producer for w in members for u in problem.graph.inputs_of[w]}
        before = [(float(finish[u]), 0, u) for u in makers if u not in seen]
        if call is not None and call.number:
            last = calls[k - 1]
            before.append((last.finish_s, -1, last.operators[0]))
        end, kind, u = max(before, default=(0.0, 0, -1))
        waited = u >= 0 and kind < 0
        chain.append(Step(call, -1 if call else v, float(start[v]), float(finish[v]), waited))
        if u < 0 or float(start[v]) <= slack or end < float(start[v]) - slack:
            return chain[::-1]
        v = u
