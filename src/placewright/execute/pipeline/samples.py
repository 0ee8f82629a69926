"""The samples of a run: as many as asked for, made of the one that the network comes with; and what they lose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

from placewright.capture.torch_program import TorchProgram
from placewright.capture.torch_spec import load_function
from placewright.errors import InvalidInput
from placewright.execute.pipeline.rank import Loss

__all__ = ["all_inputs", "loss_of", "sample_inputs"]

KEPT_BYTES = 256 << 20
"""Inputs that are made at most: what is more repeats."""


def all_inputs(inputs: Mapping[str, Any], samples: int) -> Sequence[Mapping[str, Any]]:
    """Make the inputs of so many micro-batches; beyond 256 MiB they begin again."""
    size = sum(v.numel() * v.element_size() for v in inputs.values() if isinstance(v, torch.Tensor))
    different = max(1, min(samples, KEPT_BYTES // max(1, size)))
    made = [sample_inputs(inputs, m) for m in range(different)]
    return [made[m % different] for m in range(samples)]


def sample_inputs(inputs: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Make the inputs of one micro-batch, the same on every rank.

    Sample 0 is the given one, others have its values in another order: indices stay within their tables, masks masks.
    A tensor that is given twice stays one.
    """
    if number == 0:
        return dict(inputs)
    generator = torch.Generator().manual_seed(number)
    made = {id(value): _shuffled(value, generator) for value in inputs.values()}
    return {name: made[id(value)] for name, value in inputs.items()}


def _shuffled(value: Any, generator: torch.Generator) -> Any:
    if not isinstance(value, torch.Tensor) or value.numel() < 2:
        return value
    order = torch.randperm(value.numel(), generator=generator)
    return value.reshape(-1)[order].reshape(value.shape)


def loss_of(program: TorchProgram, tracked: frozenset[str], spec: str | None) -> Loss:
    """Give the loss of a network: its first output that is a number and depends on weights, or a function's.

    Parameters
    ----------
    program : TorchProgram
    tracked : frozenset of str
        Values that depend on weights that learn.
    spec : str, optional
        ``py:package.module:function``, called with each output tensor that is computed from weights, its position
        among the outputs and the number of the micro-batch; the loss is the sum of what it returns.

    Raises
    ------
    InvalidInput
        If there is neither.
    """
    made = {r for v in program.operators for r in (v.node, *v.results)}
    nodes = {k: n for k, n in enumerate(program.outputs) if isinstance(n, Node) and n in made and n.name in tracked}
    if spec is not None:
        called = load_function(spec.removeprefix("py:"))

        def given(position: int, value: torch.Tensor, sample: int) -> torch.Tensor | None:
            if position not in nodes:
                return None
            part = called(value, position, sample)
            if part is not None and (not isinstance(part, torch.Tensor) or part.numel() != 1):
                raise InvalidInput(f"--loss {spec}: it returned no tensor with one number for output {position}")
            return part

        return given
    numbers = [
        k for k, n in nodes.items() if isinstance(n.meta.get("val"), torch.Tensor) and n.meta["val"].numel() == 1
    ]
    if not numbers:
        raise InvalidInput(
            "the network returns no single number that depends on its weights; let forward() return its loss, or give "
            "--loss py:package.module:function, called with each output, its position and the number of the micro-batch"
        )
    return lambda position, value, _: value.reshape(()) if position == numbers[0] else None
