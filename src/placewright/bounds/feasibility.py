"""Reasons why no placement can exist, each with the operators that don't fit."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright.arrays import Arrays, arrays_of
from placewright.objective import Makespan, Offload
from placewright.problem import Problem
from placewright.units import format_bytes

__all__ = ["why_infeasible"]

SHORTEST = 1e-9
"""Of the longest that a plan can take: an operator that takes less may start and end at one instant, as rounded."""


def why_infeasible(problem: Problem) -> str:
    """Say why no placement is possible; empty when these tests find no reason.

    Necessary conditions only: each unit has a device that may run it and has the room for what it holds, those that can
    run on one device alone fit it together, and all of them fit the devices that any unit can use. Under ``makespan``
    the tensors that an operator reads and makes are all there while it runs, wherever they come from and go to, beside
    what its unit holds. Under ``offload`` memory binds on accelerators alone.
    """
    a = arrays_of(problem)
    operators, devices = problem.graph.operators, problem.cluster.devices
    unlimited = [isinstance(problem.objective, Offload) and d.kind == "cpu" for d in devices]
    capacity = np.where(unlimited, np.inf, a.capacity)
    reasons: list[str] = []
    live = _live_bytes(problem, a)
    fits = a.allowed & (a.resident[:, None] + live <= capacity)
    for k in np.flatnonzero(~fits.any(axis=1)).tolist():
        members = a.member[a.member_ptr[k] : a.member_ptr[k + 1]]
        name = operators[members[0]].name
        whole = f"operator {name!r}" + (f" and the {len(members) - 1} colocated with it" if len(members) > 1 else "")
        if not a.allowed[k].any():
            reasons.append(f"{whole} may run on no device: it has no finite time there or a wish excludes it")
            continue
        best = int(np.argmax(np.where(a.allowed[k], capacity, -1.0)))
        parts = problem.resident_listing(members.tolist())
        at_once = f"tensors that are there at once {format_bytes(live[k, best])}" if live[k, best] else ""
        listing = f" ({', '.join(filter(None, (parts, at_once)))})" if "," in parts or at_once else ""
        reasons.append(
            f"{whole} needs {format_bytes(a.resident[k] + live[k, best])}{listing} and the largest device that may run "
            f"it, {devices[best].name!r}, has {format_bytes(capacity[best])}"
        )
    sole = fits.sum(axis=1) == 1
    for i in np.flatnonzero(fits[sole].any(axis=0)).tolist() if not reasons else []:
        bound = np.flatnonzero(sole & fits[:, i])
        held = float(a.resident[bound].sum() + live[bound, i].max())
        if held > capacity[i]:
            largest = bound[np.argmax(a.resident[bound])]
            name = operators[a.member[a.member_ptr[largest]]].name
            reasons.append(
                f"device {devices[i].name!r} has {format_bytes(capacity[i])}, but what can run nowhere else needs "
                f"{format_bytes(held)} there: {len(bound)} operators or classes, {name!r} the largest"
            )
    used = fits.any(axis=0)
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


def _live_bytes(problem: Problem, a: Arrays) -> npt.NDArray[np.float64]:
    """(U, D) most bytes of tensors that are there while an operator of a unit runs on a device, whatever the plan.

    What it reads lives until it ends, and what it makes from its start on. Where it takes no time that is no instant,
    nor where its time is lost in rounding beside a schedule as long as all operators and transfers one after another.
    """
    live = np.zeros(a.allowed.shape)
    if not isinstance(problem.objective, Makespan):
        return live
    net, n = a.network, len(problem.graph)
    read = np.repeat(np.arange(len(net.producer)), np.diff(net.reader_ptr))
    around = np.bincount(net.producer, weights=net.size, minlength=n)
    around += np.bincount(net.reader, weights=net.size[read], minlength=n)
    latency, per_byte, given = (
        np.where(np.isfinite(c), c, 0.0).max(axis=tuple(range(1, c.ndim)), initial=0.0)
        for c in (net.latency, net.per_byte, net.transfer)
    )
    transfers = given if len(given) else latency.max(initial=0.0) + net.size * per_byte.max(initial=0.0)
    processing = np.where(np.isfinite(net.processing), net.processing, 0.0)
    longest = (processing + 2.0 * net.cut).max(axis=1).sum() + len(problem.cluster) * transfers.sum()
    runs = np.isfinite(net.processing) & (net.processing > SHORTEST * longest)
    np.maximum.at(live, a.unit_of, np.where(runs, around[:, None], 0.0))
    return live
