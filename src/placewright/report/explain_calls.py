"""Why an offload plan is as it is: the chain that bounds it, what calls gain, and what an unused device could do."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from placewright.evaluate import Evaluation, evaluate, fewest_calls
from placewright.offloads import offloads_of
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.report.calls import Step, call_name, critical_chain
from placewright.report.listing import counted, listed, percent
from placewright.result import OPTIMALITY_TOLERANCE, Result
from placewright.units import format_seconds

__all__ = ["best_call_move", "explain_chain", "explain_offloading"]

JUDGED = 6
"""So many of the most promising moves to an unused device are judged."""

NAMED = 4
"""So many of the longest steps of the chain are named."""


def explain_chain(problem: Problem, plan: Plan, evaluation: Evaluation) -> list[str]:
    """Say what the latency is made of: calls and operators on CPUs that follow each other without a gap."""
    if not evaluation.value_s < float("inf"):
        return []
    chain = critical_chain(problem, plan, evaluation)
    calls = [step.call for step in chain if step.call is not None]
    on_cpus = [step for step in chain if step.call is None]
    into, compute, out = (sum(part) for part in zip(*((c.load.in_s, c.load.compute_s, c.load.out_s) for c in calls),
                                                    strict=True)) if calls else (0.0, 0.0, 0.0)  # fmt: skip
    pool = sum(step.finish_s - step.start_s for step in on_cpus)
    what = [*([counted(len(calls), "call")] if calls else [])]
    what += [f"{counted(len(on_cpus), 'operator')} on CPUs"] if on_cpus else []
    parts = [
        (into, "of transfers in"),
        (compute, "of computing in calls"),
        (out, "of transfers out"),
        (pool, "of computing on CPUs"),
    ]
    shares = [f"{format_seconds(seconds)} {name}" for seconds, name in parts if seconds > 0]
    sentence = f"The latency is a chain of {listed(what)}"
    if shares:
        sentence += f": {listed(shares)}"
    found = [sentence + "."]
    if len(chain) > 1:
        longest = sorted(chain, key=lambda s: s.start_s - s.finish_s)[:NAMED]
        named = [_step(problem, s) for s in sorted(longest, key=lambda s: s.start_s)]
        which = "It is" if len(chain) <= NAMED else "The longest of it are"
        found.append(f"{which} {listed(named)}.")
    waits = [step for step in chain if step.waited and step.call is not None]
    if waits:
        late = [call_name(problem, step.call) for step in waits if step.call is not None]
        verb = "waits" if len(late) == 1 else "wait"
        whose = "its device" if len(late) == 1 else "their devices"
        found.append(f"{listed(late)} {verb} for the call before on {whose}, not for inputs.")
    return found


def _step(problem: Problem, step: Step) -> str:
    seconds = format_seconds(step.finish_s - step.start_s)
    if step.call is not None:
        return f"{call_name(problem, step.call)} ({seconds})"
    return f"{problem.graph.operators[step.operator].name!r} on a CPU ({seconds})"


def explain_offloading(problem: Problem, result: Result, singles: Mapping[str, float]) -> list[str]:
    """Say what the plan gains over CPUs alone, and over the best accelerator alone.

    Parameters
    ----------
    problem : Problem
    result : Result
        With a plan.
    singles : mapping of str to float
        Seconds of the whole network on each device alone.
    """
    plan = result.require_plan()
    kinds = {d.name: d.kind for d in problem.cluster.devices}
    used = {kinds[problem.cluster.devices[i].name] == "cpu" for i in plan.devices_used}
    o, found = offloads_of(problem), list[str]()
    if (o.cpu_device >= 0).all():
        on_cpus = evaluate(problem, o.cpu_device)
        if on_cpus.feasible and used != {True}:
            found.append(_against(plan.value_s, on_cpus.value_s, "the CPUs alone"))
    else:
        pooled = any(d.kind == "cpu" for d in problem.cluster.devices)
        found.append("The CPUs alone can't run the network." if pooled else "There are no CPUs to run the rest.")
    alone = {name: s for name, s in singles.items() if kinds.get(name) != "cpu" and s < float("inf")}
    if alone:
        name = min(alone, key=lambda x: alone[x])
        if not (len(plan.devices_used) == 1 and used == {False}):
            found.append(_against(plan.value_s, alone[name], f"{name!r} alone, the best accelerator"))
    elif len(o.accelerator):
        found.append("No accelerator alone can run the network.")
    return found


def _against(value_s: float, other_s: float, whom: str) -> str:
    now, then = format_seconds(value_s), format_seconds(other_s)
    if value_s < other_s * (1 - OPTIMALITY_TOLERANCE):
        return f"{now} are {percent(1 - value_s / other_s)} less than {then} on {whom}."
    if value_s > other_s * (1 + OPTIMALITY_TOLERANCE):
        return f"{now} are more than {then} on {whom}; a longer budget should find at least that."
    return f"That is as much as on {whom}."


def best_call_move(problem: Problem, plan: Plan, evaluation: Evaluation, i: int) -> list[str]:
    """Judge the moves of one unit to an unused device that promise most, and tell the best of them.

    A move promises the computing that it saves, less the transfers in and out on an accelerator. Other operators keep
    their calls; the unit makes as few as it can.
    """
    at, p, graph = plan.device_of, problem.times.processing_s, problem.graph
    capacity = problem.cluster.devices[i].capacity_bytes
    pays = problem.cluster.devices[i].kind != "cpu"
    units: dict[int, list[int]] = {}
    for v, unit in enumerate(graph.unit_of):
        units.setdefault(unit, []).append(v)
    promising: list[tuple[float, int, list[int]]] = []
    for members in units.values():
        if not problem.allowed[members, i].all():
            continue
        if pays and problem.resident_bytes[members].sum() > capacity:
            continue
        travel = 0.0
        if pays:
            inside = set(members)
            into = {u for v in members for u in graph.inputs_of[v] if graph.tensors[u].producer not in inside}
            out = {u for v in members for u in graph.outputs_of[v] if set(graph.tensors[u].readers) - inside}
            travel = sum(problem.transfer_s(u, int(at[graph.tensors[u].producer]), i) for u in into)
            travel += sum(
                max(problem.transfer_s(u, i, int(at[r])) for r in graph.tensors[u].readers if r not in inside)
                for u in out
            )
        saved = float(sum(p[v, at[v]] - p[v, i] for v in members))
        promising.append((travel - saved, members[0], members))
    promising.sort(key=lambda x: x[:2])
    if not promising:
        return ["no operator could move there alone without breaking a rule"]
    judged = []
    for _, _, members in promising[:JUDGED]:
        device, call = np.array(at), np.zeros(len(at), dtype=np.int32) if plan.call_of is None else plan.call_of.copy()
        device[members] = i
        call[members] = fewest_calls(problem, device)[members]
        judged.append((evaluate(problem, device, call_of=call), members))
    found, members = min(judged, key=lambda x: (not x[0].feasible, x[0].value_s))
    who = repr(graph.operators[members[0]].name)
    who += f" and {counted(len(members) - 1, 'operator')} tied to it" if len(members) > 1 else ""
    if not found.feasible:
        return [f"moving {who} there breaks a rule ({found.violations[0]})"]
    whole = f"makes the whole {format_seconds(found.value_s)}"
    change = found.value_s / evaluation.value_s - 1 if evaluation.value_s > 0 else 0.0
    if change < -OPTIMALITY_TOLERANCE:
        return [f"moving {who} there {whole}, {percent(-change)} less: a longer budget should find a better plan"]
    outcome = "no less than now" if change <= OPTIMALITY_TOLERANCE else f"{percent(change)} more than now"
    return [f"the most promising move of one operator or class, {who}, {whole}, {outcome}"]
