"""The answer in one sentence, as the title of a page gives it, and its proof as a bar."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from placewright.measurement import Measurement
from placewright.objective import MaxLoad, Throughput
from placewright.problem import Problem
from placewright.report.alternatives import PLAN
from placewright.report.listing import NAMED, counted, listed, percent
from placewright.report.loads import per_second
from placewright.result import Result, Status
from placewright.units import format_seconds

__all__ = ["answer", "proof_bar"]

LONGEST_NAME = 60
"""A longer name is cut off in the sentence."""


def answer(problem: Problem, result: Result, name: str, measurements: Sequence[Measurement] = ()) -> str:
    """Say how long the network takes, on which devices, and how far from the best that is."""
    who = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}\u2026"
    plan = result.plan
    if plan is None:
        infeasible = result.status is Status.INFEASIBLE
        return f"No plan can run {who}" if infeasible else f"No plan for {who} was found within the budget"
    names = [problem.cluster.devices[i].name for i in plan.devices_used]
    where = listed(names) if len(names) <= NAMED else counted(len(names), "device")
    where += " alone" if len(names) == 1 < len(problem.cluster) else ""
    if not math.isfinite(result.value_s):
        return f"{who} can't run like this on {where}"
    steady = isinstance(problem.objective, MaxLoad | Throughput) and result.value_s > 0
    subject = f"{who}: it" if "," in who else who  # a name may be half a sentence
    run = next((m for m in measurements if m.name == PLAN), None)
    if steady:
        return f"{subject} makes {per_second(result.value_s)} on {where}{_proof(result, steady=True)}"
    value = format_seconds(result.value_s)
    if run is not None:
        predicted = f"the prediction is {value}{_proof(result, steady=False)}"
        return f"{subject} took {format_seconds(run.median_s)} on {where}: {predicted}"
    return f"{subject} takes {value} on {where}{_proof(result, steady=False)}"


def _proof(result: Result, *, steady: bool) -> str:
    if result.status is Status.OPTIMAL:
        return f", and no plan {'makes more' if steady else 'is faster'}"
    if result.lower_bound_s <= 0:
        return ""
    if steady:
        return f", at most {percent(result.gap)} fewer than the best plan"
    return f", at most {percent(result.value_s / result.lower_bound_s - 1)} longer than the best plan"


def proof_bar(result: Result) -> str:
    """Draw the value as a bar: up to the lower bound it is proved needed, the rest is the gap."""
    if result.plan is None or not 0 < result.lower_bound_s <= result.value_s < math.inf:
        return ""
    bound = format_seconds(result.lower_bound_s)
    proved = f"{bound}: proved that every plan needs at least that"
    rest = f"open: {percent(result.gap)}" if result.status is not Status.OPTIMAL else "nothing is open"
    return (
        f'<div class="proof"><div class="rail" role="img" aria-label="{escape(proved)}; {escape(rest)}">'
        f'<span class="proved" style="width:{100 * (1 - result.gap):.2f}%"></span><span class="open"></span></div>'
        f'<div class="ends"><span>{escape(proved)}</span><span>{escape(rest)}</span></div></div>'
    )
