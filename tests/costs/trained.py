"""Small networks that are trained: what their forward pass saves can be counted."""

from __future__ import annotations

import torch
from torch.utils.checkpoint import checkpoint

nn = torch.nn
functional = torch.nn.functional


class Perceptron(nn.Module):
    """8 -> 16 -> 4 and a squared error."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.mse_loss(self.down(functional.relu(self.up(x))), y)


class Layer(nn.Module):
    """Attention and a small perceptron, each with a normalisation before it."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.before(x)).chunk(3, dim=-1)
        )
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.between(x))))


class Decoder(nn.Module):
    """Two layers between an embedding and a head that is tied to it."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, 16)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.head = nn.Linear(16, 32, bias=False)
        self.head.weight = self.embed.weight
        self.again = False

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.again else layer(x)
        return functional.cross_entropy(self.head(x).flatten(0, 1), ids.flatten())


class Convolutions(nn.Module):
    """Convolution, normalisation, pooling, and a skip around a second convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second, self.head = nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(functional.relu(self.norm(self.first(x)), inplace=True), 2)
        x = functional.silu(x + self.second(x))
        return self.head(x.mean((2, 3))).square().sum()


IDS = (torch.zeros(3, 8, dtype=torch.int64),)
PICTURES = (torch.zeros(2, 3, 8, 8),)


def decoder() -> tuple[Decoder, tuple[torch.Tensor, ...]]:
    """For ``py:``."""
    return Decoder().train(), IDS
