"""The one judge that turns a problem and a plan into numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from placewright.evaluate.calls import Call, calls_of
from placewright.evaluate.contexts import longest_contexts
from placewright.evaluate.evaluation import ChannelUse, DeviceUse, Evaluation, Load
from placewright.evaluate.makespan import evaluate_makespan
from placewright.evaluate.max_load import evaluate_max_load
from placewright.evaluate.offload import evaluate_offload, fewest_calls, numbered_calls
from placewright.evaluate.throughput import evaluate_throughput
from placewright.objective import MaxLoad, Offload, Throughput
from placewright.plan import Copy, Plan, Provenance, Schedule, in_order
from placewright.problem import Problem

__all__ = [
    "Call",
    "ChannelUse",
    "DeviceUse",
    "Evaluation",
    "Load",
    "calls_of",
    "evaluate",
    "fewest_calls",
    "judge",
    "longest_contexts",
    "plan_for",
]


def evaluate(
    problem: Problem,
    device_of: npt.ArrayLike,
    *,
    order: npt.ArrayLike | None = None,
    schedule: Schedule | None = None,
    replicas: Sequence[Sequence[int]] = (),
    call_of: npt.ArrayLike | None = None,
    copies: Sequence[Copy] = (),
) -> Evaluation:
    """Value, schedule, use of devices, and every broken rule of a placement.

    Parameters
    ----------
    problem : Problem
    device_of : (n,) array of int
        Device index of each operator.
    order : (n,) array of int, optional
        Topological order in which every device takes its operators and every link its tensors, both as early as they
        can; by default the longest remaining path goes first.
    schedule : Schedule, optional
        Keep the order of all operators and transfers of this schedule, and start each as early as that order allows:
        the value is never above the schedule's own.
    replicas : sequence of sequences of int, optional
        Devices of each replicated stage, ascending; see :class:`placewright.Plan`.
    call_of : (n,) array of int, optional
        Under ``offload`` the call of each operator; by default as few calls as the placement allows.
    copies : sequence of Copy, optional
        Under ``throughput`` the copies of the network, the first one placed as ``device_of`` says; by default one.

    Raises
    ------
    InvalidInput
        If the placement or the order has the wrong shape or names what is not there. Broken rules (memory, wishes,
        colocation, missing links) are no exceptions: they are listed in ``violations``.

    Examples
    --------
    >>> from placewright import Cluster, Device, Link, Operator, OperatorGraph, Problem, Tensor
    >>> graph = OperatorGraph([Operator("a"), Operator("b")], [Tensor("x", 0, (1,), size_bytes=100)])
    >>> pair = Cluster([Device("fast"), Device("slow")], [Link(0.5, 100, link_class="same-host")])
    >>> problem = Problem(graph, pair, [[1.0, 4.0], [1.0, 4.0]])
    >>> evaluate(problem, [0, 0]).value_s, evaluate(problem, [0, 1]).value_s  # 1 + 1; 1 + (0.5 + 100/100) + 4
    (2.0, 6.5)
    """
    if isinstance(problem.objective, MaxLoad):
        judged = evaluate_max_load(problem, device_of, order=order, schedule=schedule, replicas=replicas)
    elif isinstance(problem.objective, Throughput):
        judged = evaluate_throughput(problem, device_of, order=order, schedule=schedule, copies=copies)
    elif isinstance(problem.objective, Offload):
        judged = evaluate_offload(problem, device_of, call_of=call_of)
    else:
        judged = evaluate_makespan(problem, device_of, order=order, schedule=schedule)
    if replicas and not isinstance(problem.objective, MaxLoad):
        broken = "the plan replicates stages, which only max-load knows; leave the replicas out"
        judged = replace(judged, violations=(*judged.violations, broken))
    if copies and not isinstance(problem.objective, Throughput):
        broken = "the plan has copies of the network, which only throughput knows; leave them out"
        judged = replace(judged, violations=(*judged.violations, broken))
    return judged


def judge(problem: Problem, plan: Plan) -> Evaluation:
    """Evaluate a plan: its placement, the order in its schedule, its replicas, its copies."""
    return evaluate(
        problem,
        plan.device_of,
        schedule=plan.schedule,
        replicas=plan.replicas,
        call_of=plan.call_of,
        copies=plan.copies,
    )


def plan_for(
    problem: Problem,
    device_of: npt.ArrayLike,
    *,
    order: npt.ArrayLike | None = None,
    schedule: Schedule | None = None,
    provenance: Provenance | None = None,
    replicas: Sequence[Sequence[int]] = (),
    call_of: npt.ArrayLike | None = None,
    copies: Sequence[Copy] = (),
) -> Plan | None:
    """Evaluate a placement and make it a plan; ``None`` when it breaks a rule. Parameters as :func:`evaluate`.

    Under ``throughput`` copies may be given in any order, equal ones more than once, and shares in any unit.
    """
    if isinstance(problem.objective, Throughput):
        copies = in_order(copies or [Copy(np.asarray(device_of, dtype=np.int32), 1.0)])
        device_of = copies[0].device_of
    judged = evaluate(
        problem, device_of, order=order, schedule=schedule, replicas=replicas, call_of=call_of, copies=copies
    )
    if not judged.feasible:
        return None
    calls = None
    if isinstance(problem.objective, Offload):
        calls = numbered_calls(problem, device_of, call_of)
    stages = tuple(tuple(int(i) for i in stage) for stage in replicas)
    device = np.asarray(device_of, dtype=np.int32)
    return Plan(device, judged.schedule, judged.value_s, provenance or Provenance(), stages, calls, tuple(copies))
