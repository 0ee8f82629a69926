"""Why not split evenly: equal shares of the weights in order, judged as a plan of the same problem."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright.evaluate import Evaluation, evaluate
from placewright.objective import MaxLoad, Throughput
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.report.listing import counted, listed, percent
from placewright.result import OPTIMALITY_TOLERANCE
from placewright.units import format_seconds

__all__ = ["even_placement", "even_split"]


def even_placement(problem: Problem) -> npt.NDArray[np.int32]:
    """(n,) devices when accelerators, or CPUs where there are none, get equal shares of the weights in order.

    Where nothing has weights, of the work; where nothing has work, of the operators. An operator goes where the middle
    of what it adds falls, and what must share a device goes where the first of it does.
    """
    devices, operators = _split_over(problem), problem.graph.operators
    size = np.array([v.weight_bytes for v in operators], dtype=np.float64)
    if not size.any():
        size = np.array([v.flops for v in operators], dtype=np.float64)
    if not size.any():
        size = np.ones(len(operators))
    share = (np.cumsum(size) - size / 2) / size.sum() * len(devices)
    device_of: npt.NDArray[np.int32] = np.array(devices, dtype=np.int32)[
        np.minimum(share.astype(np.intp), len(devices) - 1)
    ]
    for members in problem.graph.colocation:
        device_of[list(members)] = device_of[members[0]]
    return device_of


def even_split(problem: Problem, plan: Plan, evaluation: Evaluation) -> list[str]:
    """Say what equal shares would take, or why they can't be had, and what makes the difference."""
    devices = _split_over(problem)
    if len(devices) < 2:
        return []
    names = [repr(problem.cluster.devices[i].name) for i in devices]
    placement = even_placement(problem)
    what = f"Equal shares of {_shared(problem)} on {listed(names)}"
    if np.array_equal(placement, plan.device_of):
        return [f"{what} are what the plan has."]
    judged = evaluate(problem, placement)
    if not judged.feasible or not judged.value_s < float("inf"):
        return [f"{what} can't be had: {judged.violations[0] if judged.violations else 'no link joins them'}."]
    steady = isinstance(problem.objective, MaxLoad | Throughput)
    unit = " a sample" if steady else ""
    if judged.value_s < plan.value_s * (1 - OPTIMALITY_TOLERANCE):
        return [
            f"{what} would take {format_seconds(judged.value_s)}{unit}, less than the plan: give a longer --budget, or "
            "start from that split."
        ]
    more = judged.value_s / plan.value_s - 1 if plan.value_s > 0 else float("inf")
    difference = f"{percent(more)} more than the plan" if more > OPTIMALITY_TOLERANCE else "as long as the plan"
    said = [f"{what} would take {format_seconds(judged.value_s)}{unit}, {difference}."]
    alone = {i: float(problem.times.processing_s[:, i].sum()) for i in devices}
    quick, slow = min(devices, key=lambda i: alone[i]), max(devices, key=lambda i: alone[i])
    cluster = problem.cluster.devices
    if 0 < alone[quick] < alone[slow] < float("inf"):
        ratio = f"{alone[slow] / alone[quick]:.3g}"
        whole = f"{cluster[slow].name!r} takes {ratio} times as long as {cluster[quick].name!r} for the whole network"
        if steady:
            busy = judged.devices[slow].load_s, judged.devices[quick].load_s
            said.append(
                f"{whole}: with equal shares it is busy {format_seconds(busy[0])} of each sample, "
                f"{cluster[quick].name!r} {format_seconds(busy[1])}, and the slowest sets the pace."
            )
        else:
            said.append(f"{whole}, so equal bytes are not equal times, and what is computed there adds to the sum.")
    elif alone[quick] == alone[slow] and more > OPTIMALITY_TOLERANCE:
        here, there = len(evaluation.schedule.transfers), len(judged.schedule.transfers)
        said.append(f"The devices are equally fast; it has {counted(there, 'transfer')}, the plan {here:,}.")
    return said


def _split_over(problem: Problem) -> list[int]:
    kinds = [d.kind for d in problem.cluster.devices]
    return [i for i, kind in enumerate(kinds) if kind != "cpu"] or list(range(len(kinds)))


def _shared(problem: Problem) -> str:
    if any(v.weight_bytes for v in problem.graph.operators):
        return "the weights"
    return "the work" if any(v.flops for v in problem.graph.operators) else "the operators"
