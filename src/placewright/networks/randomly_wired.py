"""Randomly wired networks (Xie, Kirillov, Girshick and He 2019, arXiv 1904.01569)."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from placewright.errors import InvalidInput, MissingExtra
from placewright.networks.wiring import RandomGraph, draw_wiring

if TYPE_CHECKING:
    import torch

__all__ = ["randomly_wired"]

Regime: TypeAlias = Literal["small", "regular"]

RANGES = {"channels": (2, 4096), "batch": (1, 65_536), "pixels": (32, 4096), "classes": (1, 1_000_000)}


def randomly_wired(
    graph: RandomGraph = "ws",
    nodes: int = 32,
    channels: int = 78,
    seed: int = 0,
    *,
    regime: Regime = "small",
    k: int | None = None,
    p: float | None = None,
    m: int | None = None,
    batch: int = 1,
    pixels: int = 224,
    classes: int = 1000,
    device: str = "cpu",
) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """Make a randomly wired network with example inputs, for ``py:placewright.networks:randomly_wired``.

    A stage is a random graph, made acyclic by the order of its nodes (:func:`placewright.networks.draw_wiring`). A node
    sums what it reads, each tensor times the sigmoid of a weight of its own, and passes it through ReLU, a separable
    3 x 3 convolution and batch normalisation. Nodes that read no other one read the stage's input with stride 2; the
    stage's output is the mean of the nodes that nobody reads. A node that reads one tensor has no weight for it: batch
    normalisation would take it out again.

    Parameters
    ----------
    graph : {"er", "ba", "ws"}
        Erdos-Renyi, Barabasi-Albert or Watts-Strogatz.
    nodes : int
        N of a stage; the first one of the regular regime has half of it.
    channels : int
        C. The paper has 78 in the small regime, 109 and 154 in the regular one.
    seed : int
        Of the wiring of all stages, and of the weights.
    regime : {"small", "regular"}
        ``small``: two convolutions and stages of C, 2 C and 4 C channels. ``regular``: one convolution and stages of C,
        2 C, 4 C and 8 C channels. Each of these halves the height and the width. Both end in a 1 x 1 convolution to
        1,280 channels, a mean over pixels and a linear layer.
    k, p, m
        Parameters of the graph, as for :func:`placewright.networks.draw_wiring`.
    batch, pixels, classes : int
        Images, their height and width, and what they are told apart into.
    device : str
        Where weights are made; on ``meta`` they take no memory, and the network can be planned, not run.

    Returns
    -------
    module : torch.nn.Module
        In ``eval()`` mode.
    inputs : dict of str to torch.Tensor

    Raises
    ------
    InvalidInput
        If an argument is out of its range; all of them are named.
    MissingExtra
        If torch is not installed.

    Examples
    --------
    >>> module, inputs = randomly_wired("ba", nodes=8, channels=4, pixels=32)
    >>> module(**inputs).shape
    torch.Size([1, 1000])
    """
    _check(channels=channels, batch=batch, pixels=pixels, classes=classes)
    if regime not in get_args(Regime):
        raise InvalidInput(f"regime {regime!r} is unknown; use one of {', '.join(get_args(Regime))}")
    draw = random.Random(seed)
    sizes = [nodes] * 3 if regime == "small" else [nodes // 2, *[nodes] * 3]
    wirings = [draw_wiring(graph, size, draw, k=k, p=p, m=m) for size in sizes]
    try:
        import torch
    except ImportError:
        raise MissingExtra("torch", "torch", "a randomly wired network") from None
    from placewright.networks.random_stages import RandomlyWired

    try:
        with torch.random.fork_rng(devices=[]), torch.device(device):
            torch.manual_seed(seed)
            module = RandomlyWired(wirings, channels, classes, second_convolution=regime == "small").eval()
            return module, {"x": torch.zeros(batch, 3, pixels, pixels)}
    except RuntimeError as error:
        first = str(error).splitlines()[0]
        raise InvalidInput(f"device {device!r} can't hold it: {first}; use cpu or meta") from None


def _check(**given: int) -> None:
    wrong = [
        f"{name} = {value} is not a whole number from {low:,} to {high:,}; give another one"
        for name, value in given.items()
        for low, high in (RANGES[name],)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high
    ]
    if wrong:
        raise InvalidInput(wrong, what="randomly wired network")
