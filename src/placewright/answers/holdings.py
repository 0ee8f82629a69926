"""What each device holds."""

from __future__ import annotations

import numpy as np

from placewright.evaluate import Evaluation
from placewright.objective import Throughput
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.report.listing import counted, percent
from placewright.units import format_bytes

__all__ = ["holdings"]

MOST_DEVICES = 16
"""So many devices are told of one by one."""


def holdings(problem: Problem, plan: Plan, evaluation: Evaluation) -> list[str]:
    """Say how many operators each used device has, from which to which, and what its memory is taken by."""
    said = []
    used = [i for i, use in enumerate(evaluation.devices) if use.operators]
    for i in used[:MOST_DEVICES]:
        use = evaluation.devices[i]
        sentence = f"{use.name!r} holds {counted(use.operators, 'operator')}"
        rows = np.flatnonzero(plan.device_of == i)
        if len(rows) > 1 and not isinstance(problem.objective, Throughput):
            first, last = (problem.graph.operators[int(v)].name for v in (rows[0], rows[-1]))
            within = "" if rows[-1] - rows[0] + 1 == len(rows) else ", not all between them"
            sentence += f" from {first!r} to {last!r}{within}"
        elif len(rows) == 1:
            sentence += f", {problem.graph.operators[int(rows[0])].name!r}"
        sentence += f": {use.memory_listing}"
        if use.limit_bytes:
            share = percent(use.memory_bytes / use.limit_bytes)
            sentence += f"; that is {share} of {format_bytes(use.limit_bytes)}"
        said.append(sentence + ".")
    if len(used) > MOST_DEVICES:
        more = len(used) - MOST_DEVICES
        said.append(f"{counted(more, 'more device')} {'holds' if more == 1 else 'hold'} the rest.")
    return said
