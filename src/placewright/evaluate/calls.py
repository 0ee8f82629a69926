"""The calls of an offload plan, one by one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placewright.evaluate.evaluation import Evaluation, Load
from placewright.offloads import offloads_of
from placewright.plan import Plan
from placewright.problem import Problem

__all__ = ["Call", "calls_of"]


@dataclass(frozen=True, slots=True)
class Call:
    """A subgraph that an accelerator runs at one go.

    Attributes
    ----------
    device : int
    number : int
        Of the device's calls, from 0.
    operators : tuple of int
        In topological order.
    load : Load
        Seconds of transfers in, computing and transfers out, which follow each other.
    start_s, finish_s : float
    """

    device: int
    number: int
    operators: tuple[int, ...]
    load: Load
    start_s: float
    finish_s: float


def calls_of(problem: Problem, plan: Plan, evaluation: Evaluation) -> tuple[Call, ...]:
    """Return the calls of all accelerators, those of each in their order; none without a plan of calls."""
    if plan.call_of is None:
        return ()
    found, schedule = [], evaluation.schedule
    for i in offloads_of(problem).accelerator.tolist():
        here = np.flatnonzero(plan.device_of == i)
        for k, number in enumerate(np.unique(plan.call_of[here])):
            members = here[plan.call_of[here] == number].tolist()
            first, load = members[0], evaluation.devices[i].loads[k]
            times = float(schedule.start_s[first]), float(schedule.finish_s[first])
            found.append(Call(i, k, tuple(members), load, *times))
    return tuple(found)
