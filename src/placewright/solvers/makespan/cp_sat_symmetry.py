"""Devices that can be swapped: of all ways to number them, the one in which units first use them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from placewright.arrays import Arrays
from placewright.bounds.makespan.span import alike_devices
from placewright.problem import Problem

__all__ = ["classes_of", "number_by_first_use", "renumbered"]


def classes_of(problem: Problem) -> list[list[int]]:
    """Classes of two or more devices with equal times, memory, links and wishes, ascending.

    See :func:`placewright.bounds.makespan.span.alike_devices`; a link that differs by direction leaves no class.
    """
    alike = alike_devices(problem)
    members = [np.flatnonzero(alike == first).tolist() for first in np.unique(alike)]
    return [devices for devices in members if len(devices) > 1]


def _units_in_order(a: Arrays) -> list[int]:
    """Units by their first operator."""
    first = a.member[a.member_ptr[:-1]]
    return [int(k) for k in np.argsort(first, kind="stable")]


def number_by_first_use(proto: Any, a: Arrays, classes: list[list[int]], x: list[dict[int, Any]]) -> None:
    """Let a unit use a device of a class only when an earlier unit uses the one before it.

    Any schedule obeys this after its devices are permuted within the class, which changes nothing else: see
    :func:`renumbered`. Literals u[k, r], "a unit up to k uses device r of its class", make O(units) clauses of three
    literals per device.

    Parameters
    ----------
    proto : CpModel
    a : Arrays
    classes : list of list of int
        From :func:`classes_of`.
    x : list of dict
        Per unit the literal of each device that it may use.
    """
    for devices in classes:
        used: list[Any] = []
        for k in _units_in_order(a):
            row = x[k]
            if devices[0] not in row:
                continue
            for before, i in enumerate(devices[1:]):
                if before < len(used):
                    proto.add_implication(row[i], used[before])
                else:
                    proto.add_bool_and(row[i].negated())
            for r in range(len(used)):
                literal = proto.new_bool_var(f"used{k}_{devices[r]}")
                proto.add_bool_or(used[r], row[devices[r]], literal.negated())
                proto.add_implication(used[r], literal)
                proto.add_implication(row[devices[r]], literal)
                used[r] = literal
            if len(used) < len(devices):
                used.append(row[devices[len(used)]])


def renumbered(
    a: Arrays, classes: list[list[int]], device_of: npt.NDArray[np.int32] | tuple[int, ...]
) -> npt.NDArray[np.int64]:
    """(D,) the device that takes the place of each, so that units first use those of a class in ascending order."""
    new = np.arange(a.allowed.shape[1])
    for devices in classes:
        seen: dict[int, None] = {}
        for k in _units_in_order(a):
            i = int(device_of[int(a.member[a.member_ptr[k]])])
            if i in devices:
                seen.setdefault(i)
        for i in devices:
            seen.setdefault(i)
        new[list(seen)] = devices
    return new
