"""A ``device_map`` that somebody has, as a plan to start from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from placewright.cluster import Cluster
from placewright.errors import InvalidInput
from placewright.evaluate import evaluate, plan_for
from placewright.export.accelerate import device_key
from placewright.export.modules import units_of
from placewright.io.reading import decode_json, read_bounded
from placewright.plan import Plan, as_placement
from placewright.problem import Problem

__all__ = ["MOST_SHOWN", "as_device_map", "device_words", "longest", "placed_by_map", "read_device_map"]

MOST_SHOWN = 8


def read_device_map(path: Path | str, problem: Problem) -> Plan:
    """Read a JSON object of module paths and devices, alone or under ``device_map``, as a plan of a problem.

    Raises
    ------
    InvalidInput
        If it is none, names what is not there, or its placement breaks a rule.
    """
    what = f"device map {str(path)!r}"
    document = decode_json(read_bounded(path, "device map"), dict[str, Any], what)
    return placed_by_map(as_device_map(document, what), problem, what)


def as_device_map(document: Mapping[str, Any], what: str) -> dict[str, int | str]:
    """Read module paths and devices from a JSON object, or of what it has under ``device_map``.

    Raises
    ------
    InvalidInput
        If it is no such object.
    """
    try:
        return msgspec.convert(document.get("device_map", document), dict[str, int | str])
    except msgspec.ValidationError as error:
        raise InvalidInput(f"is no object of module paths and devices: {error}", what=what) from None


def device_words(cluster: Cluster) -> dict[int | str, int]:
    """Say what devices may be called: as accelerate does, ``cuda:1``, or by name; of two with one word, the first.

    Examples
    --------
    >>> from placewright import Device
    >>> device_words(Cluster([Device("ram", kind="cpu"), Device("fast")]))
    {'cpu': 0, 'ram': 0, 0: 1, 'cuda:0': 1, 'fast': 1}
    """
    words: dict[int | str, int] = {}
    for i, device in enumerate(cluster.devices):
        key = device_key(cluster, i)
        words.setdefault(key, i)
        if isinstance(key, int):
            words.setdefault(f"cuda:{key}", i)
        words.setdefault(device.name, i)
    return words


def placed_by_map(found: dict[str, int | str], problem: Problem, what: str = "device map") -> Plan:
    """Place each operator as the longest path that holds it says; others of a module go with its first that is placed.

    Devices are called as accelerate does (:func:`placewright.export.accelerate.device_key`; of accelerators with the
    same number on several hosts the first is meant), ``cuda:1``, or by their names in the cluster.

    Raises
    ------
    InvalidInput
        If a device or an operator is not found, or the placement breaks a rule.
    """
    words = device_words(problem.cluster)
    unknown = list(dict.fromkeys(str(word) for word in found.values() if word not in words))
    if unknown:
        known = ", ".join(map(str, words))
        raise InvalidInput(
            f"puts modules on {', '.join(unknown[:MOST_SHOWN])}, which is no device of this cluster; there are {known}",
            what=what,
        )
    paths = [longest(found, v.name) for v in problem.graph.operators]
    at = [None if path is None else found[path] for path in paths]
    for unit in units_of(problem.graph):
        own = next((at[v] for v in unit.operators if at[v] is not None), None)
        for v in unit.operators:
            at[v] = own if at[v] is None else at[v]
    missing = [v.name for v, word in zip(problem.graph.operators, at, strict=True) if word is None]
    if missing:
        shown = ", ".join(missing[:MOST_SHOWN]) + (", ..." if len(missing) > MOST_SHOWN else "")
        raise InvalidInput(f"has no module that holds {shown}; name one, or the empty path for all others", what=what)
    placement = as_placement(words[word] for word in at if word is not None)
    plan = plan_for(problem, placement)
    if plan is None:
        raise InvalidInput(list(evaluate(problem, placement).violations[:MOST_SHOWN]), what=what)
    return plan


def longest(found: Mapping[str, int | str], name: str) -> str | None:
    """Longest path of a map that a name lies in; ``None``: there is none.

    Examples
    --------
    >>> longest({"h": 0, "h.1": 1}, "h.1.mlp"), longest({"h": 0}, "head")
    ('h.1', None)
    """
    path = name
    while path not in found:
        if not path:
            return None
        path = path.rpartition(".")[0]
    return path
