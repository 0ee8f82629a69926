"""Reasons why no placement can exist, each with the operators that don't fit."""

from __future__ import annotations

import numpy as np

from placewright.arrays import arrays_of
from placewright.objective import Offload
from placewright.problem import Problem
from placewright.units import format_bytes

__all__ = ["why_infeasible"]


def why_infeasible(problem: Problem) -> str:
    """Say why no placement is possible; empty when these tests find no reason.

    Necessary conditions only: each unit has a device that may run it and has the room for what it holds, those that may
    run on one device alone fit it together, and all of them fit the devices that any unit may use. Under ``offload``
    memory binds on accelerators alone.
    """
    a = arrays_of(problem)
    operators, devices = problem.graph.operators, problem.cluster.devices
    unlimited = [isinstance(problem.objective, Offload) and d.kind == "cpu" for d in devices]
    capacity = np.where(unlimited, np.inf, a.capacity)
    reasons: list[str] = []
    fits = a.allowed & (a.resident[:, None] <= capacity)
    for k in np.flatnonzero(~fits.any(axis=1)).tolist():
        members = a.member[a.member_ptr[k] : a.member_ptr[k + 1]]
        name = operators[members[0]].name
        whole = f"operator {name!r}" + (f" and the {len(members) - 1} colocated with it" if len(members) > 1 else "")
        if not a.allowed[k].any():
            reasons.append(f"{whole} may run on no device: it has no finite time there or a wish excludes it")
            continue
        best = int(np.argmax(np.where(a.allowed[k], capacity, -1.0)))
        parts = problem.resident_listing(members.tolist())
        listing = f" ({parts})" if "," in parts else ""
        reasons.append(
            f"{whole} needs {format_bytes(a.resident[k])}{listing} and the largest device that may run it, "
            f"{devices[best].name!r}, has {format_bytes(capacity[best])}"
        )
    sole = a.allowed.sum(axis=1) == 1
    for i in np.flatnonzero(a.allowed[sole].any(axis=0)).tolist() if not reasons else []:
        bound = np.flatnonzero(sole & a.allowed[:, i])
        held = float(a.resident[bound].sum())
        if held > capacity[i]:
            largest = bound[np.argmax(a.resident[bound])]
            name = operators[a.member[a.member_ptr[largest]]].name
            reasons.append(
                f"device {devices[i].name!r} has {format_bytes(capacity[i])}, but what may run nowhere else needs "
                f"{format_bytes(held)} there: {len(bound)} operators or classes, {name!r} the largest"
            )
    used = a.allowed.any(axis=0)
    total, room = float(a.resident.sum()), float(capacity[used].sum())
    if not reasons and total > room:
        largest = np.argsort(-a.resident, kind="stable")[:5]
        names = ", ".join(
            f"{operators[a.member[a.member_ptr[k]]].name!r} ({format_bytes(a.resident[k])})" for k in largest.tolist()
        )
        parts = problem.resident_listing()
        listing = f" ({parts})" if "," in parts else ""
        what = "weights and KV cache" if not problem.resident_parts[2:].any() else "all operators together"
        reasons.append(
            f"{what} need {format_bytes(total)}{listing} and the devices that may hold them have "
            f"{format_bytes(room)} together; largest: {names}"
        )
    if not reasons:
        return ""
    shown = "; ".join(reasons[:10]) + (f"; and {len(reasons) - 10} more" if len(reasons) > 10 else "")
    return f"{shown}; allow more devices or raise their memory"
