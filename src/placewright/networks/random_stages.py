"""Modules of a randomly wired network; importing this needs torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from placewright.networks.wiring import Wiring

__all__ = ["RandomlyWired"]

HEAD_CHANNELS = 1280


class _Node(nn.Module):
    """Weighted sum, ReLU, separable convolution, batch normalisation."""

    def __init__(self, reads: int, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(reads)) if reads > 1 else None
        self.relu = nn.ReLU()
        self.depthwise = nn.Conv2d(before, before, 3, stride=stride, padding=1, groups=before, bias=False)
        self.pointwise = nn.Conv2d(before, width, 1, bias=False)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, read: list[torch.Tensor]) -> torch.Tensor:
        x = read[0]
        if self.weights is not None:
            weights = torch.sigmoid(self.weights)
            x = x * weights[0]
            for k in range(1, len(read)):
                x = x + read[k] * weights[k]
        out: torch.Tensor = self.norm(self.pointwise(self.depthwise(self.relu(x))))
        return out


class _Stage(nn.Module):
    """Nodes wired as a random graph between an input node, which copies, and an output node, which takes the mean."""

    def __init__(self, wiring: Wiring, before: int, width: int) -> None:
        super().__init__()
        self.wiring = wiring
        self.nodes = nn.ModuleList(
            _Node(len(sources), width, width, 1) if sources else _Node(1, before, width, 2)
            for sources in wiring.sources_of
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: list[torch.Tensor] = []
        for node, sources in zip(self.nodes, self.wiring.sources_of, strict=True):
            made.append(node([made[u] for u in sources] if sources else [x]))
        last = [made[v] for v in self.wiring.outputs]
        return sum(last[1:], last[0]) / len(last) if len(last) > 1 else last[0]


class RandomlyWired(nn.Module):
    """Convolutions, stages and a classifier.

    Parameters
    ----------
    wirings : sequence of Wiring
        One a stage; each stage has twice the channels of the one before it.
    channels : int
        Of the first stage.
    classes : int
    second_convolution : bool
        Whether a second convolution stands between the first one and the stages.
    """

    def __init__(self, wirings: Sequence[Wiring], channels: int, classes: int, *, second_convolution: bool) -> None:
        super().__init__()
        half = channels // 2
        stem: list[nn.Module] = [_convolution(3, half, 3, 2)]
        if second_convolution:
            stem += [nn.ReLU(), _convolution(half, channels, 3, 2)]
        before = channels if second_convolution else half
        self.stem = nn.Sequential(*stem)
        self.stages = nn.ModuleList()
        for k, wiring in enumerate(wirings):
            self.stages.append(_Stage(wiring, before, channels << k))
            before = channels << k
        self.head = nn.Sequential(nn.ReLU(), _convolution(before, HEAD_CHANNELS, 1, 1))
        self.classifier = nn.Linear(HEAD_CHANNELS, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Give a score to each class, for each image."""
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        out: torch.Tensor = self.classifier(self.head(x).mean((2, 3)))
        return out


def _convolution(before: int, width: int, size: int, stride: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(before, width, size, stride=stride, padding=size // 2, bias=False), nn.BatchNorm2d(width)
    )
