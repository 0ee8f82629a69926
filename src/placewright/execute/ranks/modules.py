"""The modules that a rank runs, one for each of its segments: made, called, and what nothing reads after each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

from placewright.errors import ExecutionError
from placewright.execute.ranks.doing import failing_operator
from placewright.execute.ranks.segments import Segment
from placewright.execute.torch.split import Observe, SubModule, observed, sub_module

__all__ = ["called", "last_reads", "modules_of"]


def modules_of(
    segments: Sequence[Segment],
    device: int,
    place: torch.device,
    held: Mapping[str, Any],
    returned: Collection[str],
    *,
    clocked: bool = False,
) -> list[SubModule]:
    """Make the modules of a device; each gives out what is sent, returned, or read by a later one.

    Parameters
    ----------
    segments : sequence of Segment
        Of the device, in order.
    device : int
    place : torch.device
    held : mapping of str to value
        Weights and folded results that the device reads, by the name of their fx node.
    returned : collection of str
        Those of the network's outputs that the device gives.
    clocked : bool
        See :func:`placewright.execute.torch.split.sub_module`.
    """
    inside = [{r for v in s.operators for r in (v.node, *v.results)} for s in segments]
    modules = []
    for k, (segment, own) in enumerate(zip(segments, inside, strict=True)):
        leaving = {message.name for message in segment.sends} | set(returned)
        later: set[Node] = set().union(*inside[k + 1 :])
        needed = {r for r in own if r.name in leaving or any(user in later for user in r.users)}
        modules.append(sub_module(list(segment.operators), (k, device), place, dict(held), needed, clocked=clocked))
    return modules


def last_reads(
    modules: Sequence[SubModule], segments: Sequence[Segment], returned: Collection[str]
) -> tuple[tuple[str, ...], ...]:
    """Of each segment the values that nothing reads after it, but for those that are returned."""
    last: dict[str, int] = {}
    for k, (module, segment) in enumerate(zip(modules, segments, strict=True)):
        for name in (*module.outputs, *module.inputs, *(m.name for m in segment.sends)):
            last[name] = k
    rows: list[list[str]] = [[] for _ in modules]
    for name, k in last.items():
        if name not in returned:
            rows[k].append(name)
    return tuple(map(tuple, rows))


def called(module: SubModule, arguments: Sequence[Any], device: str, observe: Observe | None = None) -> Any:
    """Call a module, with ``observe`` node by node.

    Raises
    ------
    ExecutionError
        If an operator fails; it names the operator and the device.
    """
    try:
        if observe is not None:
            return observed(module.module, arguments, observe)
        return module.module(*arguments)
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        operator = failing_operator(error) or module.operators[0]
        raise ExecutionError(f"operator {operator!r} on {device!r} failed: {first}") from error
