"""Whether a split helps one query, or only many: its makespan and its time per sample against one device's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from placewright.evaluate import evaluate
from placewright.objective import Makespan, MaxLoad
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.report.explain import single_device_values
from placewright.result import OPTIMALITY_TOLERANCE
from placewright.units import format_bytes, format_seconds

__all__ = ["one_or_many"]


def one_or_many(problem: Problem, plan: Plan) -> list[str]:
    """Compare one query and many in a pipeline with the best device alone; of inference on makespan and max-load.

    A query in the empty cluster takes the makespan of the placement. Of many, each device may work on another one at
    the same time: one comes out each time that the largest load of a device takes, wherever stages stand.
    """
    if not isinstance(problem.objective, Makespan | MaxLoad) or any(v.backward for v in problem.graph.operators):
        return []
    one = problem if isinstance(problem.objective, Makespan) else replace(problem, objective=Makespan())
    many = problem if isinstance(problem.objective, MaxLoad) else replace(problem, objective=MaxLoad(contiguity="any"))
    query = evaluate(one, plan.device_of, schedule=plan.schedule if one is problem else None).value_s
    pace = evaluate(many, plan.device_of, replicas=plan.replicas).value_s
    if not query < float("inf") or not 0 < pace < float("inf"):
        return []
    cache = int(np.array([v.kv_cache_bytes for v in problem.graph.operators], dtype=np.int64).sum())
    # What a language model does for a sample is one step of a query.
    per = problem.objective.per if isinstance(problem.objective, Makespan) else "step" if cache else "sample"
    article = "an" if per == "answer" else "a"
    what = "One query" if per == "sample" else f"For one query {article} {per}"
    if len(plan.devices_used) == 1:
        name = problem.cluster.devices[plan.devices_used[0]].name
        other = "; --objective max-load looks for a split that helps many" if one is problem else ""
        return [
            f"It is no split: {name!r} alone takes {format_seconds(query)} {article} {per}, {_rate(pace)}, for one "
            f"query and for many{other}."
        ]
    alone = {name: s for name, s in single_device_values(one).items() if s < float("inf")}
    fewer = _with_fewer_caches(many) if many is problem else {}
    if not alone:
        best = float("inf")
        need = "so even one query needs the split" if not fewer else "so many queries need the split"
        holds = "can run the network" if not fewer else "has room for the network and the KV caches of all queries"
        said = [f"No device alone {holds}, {need}: {format_seconds(query)}{' a step' if fewer else ''}."]
    else:
        name = min(alone, key=lambda n: alone[n])
        best = alone[name]
        helps = query < best * (1 - OPTIMALITY_TOLERANCE)
        verdict = f": the split helps it, {best / query:.3g} times as fast" if helps else ": the split does not help it"
        room = f" with room for all KV caches, {format_bytes(cache)}" if fewer else ""
        said = [
            f"{what} takes {format_seconds(query)}, on {name!r} alone, the best single device{room}, "
            f"{format_seconds(best)}{'' if fewer and helps else verdict}."
        ]
    for name, (room_bytes, step_s) in fewer.items():
        if step_s < best:
            said.append(
                f"{name!r} alone has room for {format_bytes(room_bytes)} of caches beside the network: with no more "
                f"queries under way than fit there a step takes {format_seconds(step_s)}, {_rate(step_s)}."
            )
            break
    gain = query / pace
    if gain <= 1 + OPTIMALITY_TOLERANCE:
        said.append(f"Many queries are no faster than one after the other: {_rate(pace)}.")
        return said
    against = ""
    if best < float("inf"):
        against = f", {best / pace:.3g} times" if best / pace > 1 + OPTIMALITY_TOLERANCE else ", no more than"
        against += f" the {_rate(best)} of the best device alone{' with room for all caches' if fewer else ''}"
    said.append(
        f"Of many queries, devices work on different ones at a time: one {per} comes out every {format_seconds(pace)}, "
        f"{_rate(pace)}{against}; the busiest device sets that pace."
    )
    if cache and isinstance(problem.objective, Makespan):
        said.append(f"Each further query under way needs a KV cache of its own, here {format_bytes(cache)} in all.")
    return said


def _with_fewer_caches(problem: Problem) -> dict[str, tuple[float, float]]:
    """Devices that hold the network alone, but not all KV caches, the fastest first: bytes for caches, and seconds."""
    caches = sum(v.kv_cache_bytes for v in problem.graph.operators)
    held = int(problem.resident_bytes.sum())
    found = {}
    for i, device in enumerate(problem.cluster.devices):
        room = device.capacity_bytes - (held - caches)
        seconds = float(problem.times.processing_s[:, i].sum())
        if 0 < room < caches and seconds < float("inf") and problem.allowed[:, i].all():
            found[device.name] = room, seconds
    return dict(sorted(found.items(), key=lambda entry: entry[1][1]))


def _rate(seconds: float) -> str:
    return f"{1 / seconds:,.3g}/s" if seconds > 0 else "at once"
