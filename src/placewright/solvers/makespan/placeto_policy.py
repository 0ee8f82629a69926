"""Placeto's graph network and its policy gradient, on torch's tensors."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from placewright.solvers.makespan.placeto_groups import Groups

__all__ = ["Policy"]

Floats = npt.NDArray[np.float64]
Layers: TypeAlias = list[tuple[Tensor, Tensor]]

LARGEST_STEP = 1.25
"""Norm to which gradients are clipped, as the authors' program does."""

AT_ONCE = 16
"""States whose slopes are computed before the next look at the clock."""


class Policy:
    """Chances of each device for the current group, from the state of all groups.

    With d features a group: a network of three layers makes an embedding of width d; messages go ``rounds`` times from
    each group to its readers, and apart from that to those it reads from: the mean over neighbours of f(x), sent
    through g, is added to the group's own embedding. Both directions side by side give 2 d numbers a group. They are
    pooled in the same manner over all groups that the current one depends on, over those that depend on it, and over
    those that do neither; with the current group's own they go into a network of three layers with a softmax over its
    devices.
    Weights are drawn by Glorot's rule from ``rng``; torch's own generator is neither used nor changed.

    Parameters
    ----------
    groups : Groups
    features : int
        d
    rounds : int
    rng : numpy Generator
    """

    def __init__(self, groups: Groups, features: int, rounds: int, rng: np.random.Generator) -> None:
        d, D = features, groups.allowed.shape[1]
        apart = ~(groups.above | groups.above.T | np.eye(len(groups.above), dtype=np.bool_))
        self._rounds = rounds
        self._neighbours = _means(groups.reads, groups.reads.T).unsqueeze(1)
        self._pools = _means(groups.above, groups.above.T, apart)
        self._hears = (self._neighbours.sum(dim=-1) > 0.0).float().unsqueeze(-1)
        self._barred = torch.from_numpy(~groups.allowed)
        self._weights: list[Tensor] = []
        self._own = self._layers(rng, 1, d, d, d, d)
        self._message, self._reply = self._layers(rng, 2, d, d, d), self._layers(rng, 2, d, d, d)
        self._gather, self._digest = (self._layers(rng, 3, 2 * d, 2 * d, 2 * d) for _ in range(2))
        self._choice = self._layers(rng, 1, 8 * d, 16 * d, 8 * d, D)
        self._mean = [torch.zeros_like(x) for x in self._weights]
        self._square = [torch.zeros_like(x) for x in self._weights]
        self._steps = 0

    def _layers(self, rng: np.random.Generator, copies: int, *sizes: int) -> Layers:
        """Weights of ``copies`` networks side by side."""
        made: Layers = []
        for inputs, outputs in itertools.pairwise(sizes):
            reach = (6.0 / (inputs + outputs)) ** 0.5
            weight = torch.from_numpy(rng.uniform(-reach, reach, (copies, inputs, outputs)).astype(np.float32))
            made.append((weight.requires_grad_(), torch.zeros((copies, 1, outputs), requires_grad=True)))
            self._weights.extend(made[-1])
        return made

    def _log_chances(self, states: npt.NDArray[np.float32], current: npt.NDArray[np.int64]) -> Tensor:
        """(S, D) logarithms of the chances in S states of shape (G, d), with their current groups."""
        S, G, d = states.shape
        at = torch.from_numpy(current)
        own = _through(self._own, torch.from_numpy(states).view(1, S * G, d)).view(1, S, G, d)
        x = own.expand(2, S, G, d)
        for _ in range(self._rounds):
            told = torch.relu(_through(self._message, x.reshape(2, S * G, d))).view(2, S, G, d)
            heard = (self._neighbours @ told).view(2, S * G, d)
            x = own + self._hears * torch.relu(_through(self._reply, heard)).view(2, S, G, d)
        embedded = x.permute(1, 2, 0, 3).reshape(S, G, 2 * d)
        told = torch.relu(_through(self._gather, embedded.view(1, S * G, 2 * d).expand(3, S * G, 2 * d)))
        pooled = (self._pools[:, at].unsqueeze(2) @ told.view(3, S, G, 2 * d)).view(3, S, 2 * d)
        parts = torch.relu(_through(self._digest, pooled)).permute(1, 0, 2).reshape(S, 6 * d)
        known = torch.cat([parts, embedded[torch.arange(S), at]], dim=1)
        logits = _through(self._choice, known.unsqueeze(0)).squeeze(0)
        return torch.log_softmax(logits.masked_fill(self._barred[at], -1e9), dim=-1)

    def chances(self, states: npt.NDArray[np.float32], current: npt.NDArray[np.int64]) -> Floats:
        """(S, D) chances of each device for the current group of each state; 0 where it is not allowed."""
        with torch.no_grad():
            return self._log_chances(states, current).double().exp().numpy()

    def improve(
        self,
        states: npt.NDArray[np.float32],
        current: npt.NDArray[np.int64],
        chosen: npt.NDArray[np.int64],
        advantage: npt.NDArray[np.float32],
        entropy: float,
        rate: float,
        stopped: Callable[[], bool],
    ) -> bool:
        """Make a step of REINFORCE, with ``entropy`` times the entropy of the choices on top, by Adam at ``rate``.

        The slopes of some states after the other add up to those of all. False, and no step, when it was stopped.
        """
        slopes = [torch.zeros_like(x) for x in self._weights]
        for k in range(0, len(states), AT_ONCE):
            if stopped():
                return False
            some = slice(k, k + AT_ONCE)
            logs = self._log_chances(states[some], current[some])
            taken = logs.gather(1, torch.from_numpy(chosen[some]).unsqueeze(1)).squeeze(1)
            spread = -(logs.exp() * logs).sum()
            loss = -(taken * torch.from_numpy(advantage[some])).sum() - entropy * spread
            for slope, more in zip(slopes, torch.autograd.grad(loss, self._weights), strict=True):
                slope += more
        norm = float(torch.sqrt(sum((s * s).sum() for s in slopes)))  # type: ignore[arg-type]
        # Adam, written out: torch's class loads its compiler first, which took 5 s.
        self._steps += 1
        with torch.no_grad():
            for x, slope, mean, square in zip(self._weights, slopes, self._mean, self._square, strict=True):
                step = slope / max(1.0, norm / LARGEST_STEP)
                mean.mul_(0.9).add_(step, alpha=0.1)
                square.mul_(0.999).addcmul_(step, step, value=0.001)
                size = (square / (1.0 - 0.999**self._steps)).sqrt_().add_(1e-8)
                x.addcdiv_(mean / (1.0 - 0.9**self._steps), size, value=-rate)
        return True


def _means(*which: npt.NDArray[np.bool_]) -> Tensor:
    """(K, G, G) rows that take the mean over the columns that are set; rows of zeros where none is."""
    rows = np.stack(which)
    return torch.from_numpy((rows / np.maximum(1, rows.sum(axis=-1, keepdims=True))).astype(np.float32))


def _through(layers: Layers, x: Tensor) -> Tensor:
    """Affine layers with rectifiers between them."""
    for k, (weight, bias) in enumerate(layers):
        x = torch.baddbmm(bias, torch.relu(x) if k else x, weight)
    return x
