"""A part of a placement that somebody has, and wants held while the rest is placed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from glob import escape
from pathlib import Path
from typing import Any

from placewright.errors import InvalidInput
from placewright.export.given_map import MOST_SHOWN, as_device_map, device_words, longest
from placewright.graph import Operator
from placewright.io.plan_file import PLAN_SCHEMA, names_placed
from placewright.io.reading import closest, decode_json, read_bounded
from placewright.problem import Problem, Wish

__all__ = ["kept_as", "kept_as_file"]


def kept_as_file(path: Path | str, problem: Problem) -> Problem:
    """Return the problem with what a file places held there: a plan file, or a device_map of some of the modules.

    Raises
    ------
    InvalidInput
        If it is none of them, names what is not there, or contradicts a wish.
    """
    what = f"file to keep {str(path)!r}"
    content = read_bounded(path, "file to keep")
    document = decode_json(content, dict[str, Any], what)
    if document.get("schema") == PLAN_SCHEMA:
        return kept_as(names_placed(content, what), problem, what)
    return kept_as(as_device_map(document, what), problem, what)


def kept_as(found: Mapping[str, int | str], problem: Problem, what: str = "device map to keep") -> Problem:
    """Return the problem with a pin for each module of a device_map; modules that it does not name stay free.

    An operator goes where the longest path says that its name lies in, or else the name of the first of its parts that
    lies in one. Devices are called as :func:`placewright.export.given_map.placed_by_map` has them.

    Raises
    ------
    InvalidInput
        For each device and module that is not there, and for what a wish, a colocation class or an infinite time
        forbids.

    Examples
    --------
    >>> from placewright import Cluster, Device, Operator, OperatorGraph
    >>> graph = OperatorGraph([Operator("h.0.a"), Operator("h.0.b"), Operator("head")])
    >>> problem = Problem(graph, Cluster([Device("fast"), Device("slow")]), [[1.0, 2.0]] * 3)
    >>> kept_as({"h.0": 1}, problem).wishes
    (Wish(pattern='h.0.*', device='slow', forbid=False),)
    """
    words = device_words(problem.cluster)
    operators = problem.graph.operators
    at = [_path(found, v) for v in operators]
    used = {path for path in at if path is not None}
    violations = [
        f"puts {path!r} on {word}, which is no device of this cluster; there are {', '.join(map(str, words))}"
        for path, word in found.items()
        if word not in words
    ]
    names = [name for v in operators for name in (v.name, *v.parts)]
    for path in found:
        if path not in used and not any(_lies_in(name, path) for name in names):
            near = closest(path, _paths(names))
            violations.append(f"names {path!r}, of which this network has no operator{near}")
    _refuse(violations, what)
    device_of = [None if path is None else words[found[path]] for path in at]
    _refuse(_contradictions(problem, device_of), what)
    wishes: list[Wish] = []
    for path in found:
        device = escape(problem.cluster.devices[words[found[path]]].name)
        wishes += [Wish(pattern, device) for pattern in _patterns(path, at, operators)]
    return replace(problem, wishes=(*problem.wishes, *wishes))


def _path(found: Mapping[str, int | str], operator: Operator) -> str | None:
    """Path of the map that an operator lies in."""
    paths = (longest(found, name) for name in (operator.name, *operator.parts))
    return next((path for path in paths if path is not None), None)


def _lies_in(name: str, path: str) -> bool:
    return path in ("", name) or name.startswith(f"{path}.")


def _paths(names: list[str]) -> list[str]:
    """Every module and operator, by path."""
    found: dict[str, None] = {}
    for name in names:
        while name:
            found.setdefault(name)
            name = name.rpartition(".")[0]
    return list(found)


def _patterns(path: str, at: list[str | None], operators: tuple[Operator, ...]) -> list[str]:
    """Patterns of the operators of a path: of all at once where they match no other's name or part."""
    own = [v for v, where in zip(operators, at, strict=True) if where == path]
    others = [name for v, where in zip(operators, at, strict=True) if where != path for name in (v.name, *v.parts)]
    if path and not any(_lies_in(name, path) for name in others):
        below = [v for v in own if v.name.startswith(f"{path}.")]
        alone = [v for v in own if v not in below]
        return [*([f"{escape(path)}.*"] if below else []), *(escape(v.name) for v in alone)]
    return [escape(v.name) for v in own]


def _contradictions(problem: Problem, device_of: list[int | None]) -> list[str]:
    """Say what a wish, a class or a time has against where operators are kept."""
    devices, operators = problem.cluster.devices, problem.graph.operators
    found = []
    for v, i in enumerate(device_of):
        if i is not None and not problem.allowed[v, i]:
            there = [d.name for d, may in zip(devices, problem.allowed[v], strict=True) if may]
            only = f"it may run on {', '.join(there)} alone" if there else "it may run nowhere"
            found.append(
                f"keeps {operators[v].name!r} on {devices[i].name!r}, but {only}, by a wish, a processing time or what "
                "it shares a device with; take it out of the file, or drop the wish"
            )
    for members in problem.graph.colocation:
        kept = [(v, device_of[v]) for v in members if device_of[v] is not None]
        apart = next(((v, i) for v, i in kept if i != kept[0][1]), None)
        if apart is not None:
            (a, i), (b, j) = kept[0], apart
            on = [devices[k].name for k in (i, j) if k is not None]
            found.append(
                f"keeps {operators[a].name!r} on {on[0]!r} and {operators[b].name!r} on {on[1]!r}, "
                "which must share a device; keep both on one"
            )
    return found


def _refuse(violations: list[str], what: str) -> None:
    if violations:
        more = [f"and {len(violations) - MOST_SHOWN} more like these"] if len(violations) > MOST_SHOWN else []
        raise InvalidInput([*violations[:MOST_SHOWN], *more], what=what)
