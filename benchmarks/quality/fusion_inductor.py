"""What TorchInductor really fused: the operators of an exported program, grouped by the kernels of its schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
import torch._inductor
import torch._inductor.config
from torch._inductor.scheduler import Scheduler
from torch.export import ExportedProgram

from placewright.capture.torch_program import take_apart

__all__ = ["KernelGroups", "kernel_groups"]

MARK = "custom"
"""Where a node of an fx graph carries what decomposition and fusion pass on to the nodes that they make of it."""

_VIEWS = """
_unsafe_view alias as_strided detach diagonal expand permute reshape select slice split split_with_sizes squeeze t
transpose unbind unsqueeze view
"""
VIEWS = frozenset(_VIEWS.split())
"""Operators after decomposition that move nothing: that a kernel reads through one says nothing about fusion."""


class _ScheduledError(Exception):
    """Raised when the schedule is known: no kernel is compiled."""


@dataclass(frozen=True)
class KernelGroups:
    """What became of a program's operators.

    Attributes
    ----------
    of : mapping of operator name to frozenset of int
        Kernels that compute it; several where it is computed for several readers, or in several steps. An operator that
        only changes how a tensor is looked at has none.
    kernels : int
        How many kernels and calls of libraries the schedule has.
    """

    of: Mapping[str, frozenset[int]]
    kernels: int


def kernel_groups(program: ExportedProgram, inputs: Sequence[torch.Tensor]) -> KernelGroups:
    """Schedule a program for the CPU, and map its operators to the kernels; nothing is compiled or run.

    Parameters
    ----------
    program : ExportedProgram
        Inference; parameters are real.
    inputs : sequence of tensor
        The program's flat inputs.
    """
    names = {v.node.name: v.name for v in take_apart(program).operators}
    module = program.module(check_guards=False)
    for node in module.graph.nodes:
        node.meta[MARK] = {"operator": names.get(node.name, "")}
    kernels: list[set[str]] = []

    def codegen(scheduler: Scheduler) -> None:
        kernels.extend({_operator(o) for o in made} for made in _computed(scheduler.nodes))
        raise _ScheduledError

    settings = {"force_disable_caches": True, "compile_threads": 1}
    with mock.patch.object(Scheduler, "codegen", codegen), torch._inductor.config.patch(settings), torch.no_grad():
        _until_scheduled(lambda: torch._inductor.compile(module, list(inputs)))
    of: dict[str, set[int]] = {}
    for k, members in enumerate(kernels):
        for name in members - {""}:
            of.setdefault(name, set()).add(k)
    return KernelGroups({name: frozenset(rows) for name, rows in of.items()}, len(kernels))


def _until_scheduled(compile_: Callable[[], Any]) -> None:
    try:
        compile_()
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, _ScheduledError) or "_ScheduledError" in str(cause):
                return
            cause = cause.__cause__ or cause.__context__
        raise
    raise RuntimeError("the program was compiled without a schedule; this torch works otherwise than expected")


def _computed(kernels: Sequence[Any]) -> Iterator[list[torch.fx.Node]]:
    """For each kernel the nodes after decomposition that it computes, views apart.

    The call of a library computes one node, however many had to be written down for it; and what copies that node's
    inputs into another layout does not compute it.
    """
    calls = {part: _called(part.node) for k in kernels for part in k.get_nodes() if part.is_extern() and part.node}
    called = {o for made in calls.values() for o in made}
    for k in kernels:
        made: dict[torch.fx.Node, None] = {}
        for part in k.get_nodes():
            if part in calls:
                made.update(dict.fromkeys(calls[part]))
            elif part.node is not None:
                origins = part.node.get_origins()
                copied_for = {_operator(o) for o in origins if o in called}
                made.update((o, None) for o in origins if _operator(o) not in copied_for)
        yield [o for o in made if getattr(o.target, "_opname", "") not in VIEWS]


def _called(buffer: Any) -> list[torch.fx.Node]:
    """Nodes that the call of a library stands for: one."""
    origin = buffer.get_origin_node()
    if origin is not None:
        return [origin]
    return [o for o in buffer.get_origins() if o.target is getattr(buffer, "op_overload", None)]


def _operator(node: torch.fx.Node) -> str:
    return str((node.meta.get(MARK) or {}).get("operator", ""))
