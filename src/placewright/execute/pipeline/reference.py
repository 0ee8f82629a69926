"""The unsplit network on the same samples: its outputs, its gradients, and its weights after the same steps."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only, tree_unflatten

from placewright.execute.pipeline.options import Many
from placewright.execute.pipeline.rank import Loss
from placewright.execute.ranks.network import RankNetwork
from placewright.execute.torch.local import unsplit_outputs

__all__ = ["largest_difference", "optimiser_of", "train_unsplit", "unsplit_sample"]

SMALL = 0.01
"""What vanishes against the largest of all is compared to this part of that one."""


def optimiser_of(parameters: list[torch.Tensor], many: Many) -> torch.optim.Optimizer | None:
    """Make the optimiser that was asked for; ``None`` for a rank that holds nothing that learns."""
    if not parameters:
        return None
    if many.optimiser == "adam":
        return torch.optim.Adam(parameters, lr=many.learning_rate)
    return torch.optim.SGD(parameters, lr=many.learning_rate)


def unsplit_sample(network: RankNetwork, inputs: Mapping[str, Any]) -> list[Any]:
    """Give the outputs of the unsplit network for one sample, flat."""
    args, kwargs = _call(network, inputs)
    with torch.no_grad():
        return unsplit_outputs(network.model, args, kwargs)


def _call(network: RankNetwork, inputs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args, kwargs = tree_unflatten([inputs[name] for name in network.parts.inputs], network.spec)
    return tuple(args), dict(kwargs)


def train_unsplit(
    network: RankNetwork,
    inputs: Sequence[Mapping[str, Any]],
    loss: Loss,
    many: Many,
    steps: int,
    gradients: Mapping[str, torch.Tensor | None],
    weights: Mapping[str, torch.Tensor],
) -> tuple[float, float]:
    """Take the same steps with the unsplit network; gives how far gradients and weights are off.

    Parameters
    ----------
    network, inputs, loss, many, steps
    gradients, weights : mapping of name to tensor
        Of the first step, and after the last one.
    """
    model = copy.deepcopy(network.model) if isinstance(network.model, torch.nn.Module) else network.model.module()
    known = dict(model.named_parameters(remove_duplicate=False))
    for name, parameter in known.items():
        parameter.requires_grad_(name in gradients or any(known[t] is parameter for t in gradients))
    optimiser = optimiser_of([known[t] for t in gradients], many)
    error = 0.0
    for step in range(steps):
        for parameter in known.values():
            parameter.grad = None
        for m, given in enumerate(inputs):
            args, kwargs = tree_map_only(torch.Tensor, torch.clone, _call(network, given))
            outputs = tree_leaves(model(*args, **kwargs))
            parts = [loss(k, value, m) for k, value in enumerate(outputs) if isinstance(value, torch.Tensor)]
            total = sum((p for p in parts if p is not None), start=torch.zeros(()))
            if total.requires_grad:
                (total / len(inputs)).backward()  # type: ignore[no-untyped-call]
        if not step:
            error = largest_difference(gradients, {t: known[t].grad for t in gradients})
        if optimiser is not None:
            optimiser.step()
    return error, largest_difference(weights, {t: known[t].detach() for t in weights})


def largest_difference(found: Mapping[str, torch.Tensor | None], expected: Mapping[str, torch.Tensor | None]) -> float:
    """Give the largest difference of gradients, or of weights: max |difference| relative to the largest of that weight.

    The largest of a weight counts as at least 1 % of the largest of all: where it vanishes by nature, as the gradient
    of a key's bias in attention, rounding is all there is. A gradient that is not there is 0.

    Examples
    --------
    >>> largest_difference({"a": torch.tensor([1.0, 2.0]), "b": None}, {"a": torch.tensor([1.0, 2.5]), "b": None})
    0.2
    """
    largest = {t: 0.0 if g is None or not g.numel() else float(g.abs().max()) for t, g in expected.items()}
    floor = SMALL * max(largest.values(), default=0.0)
    worst = 0.0
    for target, scale in largest.items():
        a, b = (torch.zeros(()) if g is None else g for g in (found.get(target), expected[target]))
        off = float((a - b).abs().max()) if a.numel() and b.numel() else 0.0
        if off:
            worst = max(worst, off / max(scale, floor) if max(scale, floor) and off == off else float("inf"))
    return worst
