"""What denoisers and autoencoders of diffusers are built of: convolutions, residual blocks, embeddings of time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from placewright.language.decoder import attention_named
from placewright.language.part import Part, Parts, Stream

__all__ = [
    "TIMES",
    "Made",
    "Text",
    "add_attention",
    "add_convolution",
    "add_embedder",
    "add_feed_forward",
    "add_resnet",
    "add_scheduler",
]


TIMES = 256
"""Frequencies that transformers embed a time from."""


@dataclass(frozen=True, slots=True)
class Text:
    """What text encoders hand to a denoiser.

    Attributes
    ----------
    states, pooled : tuple of str
        Parts that make the states of all tokens, and one row for each prompt.
    rows : int
        Tokens of the states.
    """

    states: tuple[str, ...] = ()
    pooled: tuple[str, ...] = ()
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Made:
    """What was added.

    Attributes
    ----------
    result : str
        The part that makes it.
    rows : mapping of stream to int
        Of each sample.
    """

    result: str
    rows: Mapping[Stream, int] = field(default_factory=dict)


def add_convolution(parts: Parts, name: str, reads: Iterable[str], channels: int, width: int, window: int = 9) -> str:
    """Add a convolution with biases; the rows of its stream are the positions that it makes.

    Parameters
    ----------
    parts : Parts
    name : str
    reads : iterable of str
    channels, width : int
        Numbers of each position that it reads and makes.
    window : int
        Positions that it reads for each.
    """
    inner = channels * window
    return parts.add(
        Part(
            *(name, "conv", parts.module, parts.layer, parts.stream, tuple(reads)),
            parameters=inner * width + width,
            inner=inner,
            width=width,
        )
    )


def add_resnet(parts: Parts, path: str, x: str, channels: int, width: int, temb: str = "", time_width: int = 0) -> str:
    """Add a residual block of two convolutions (``ResnetBlock2D``).

    Parameters
    ----------
    parts : Parts
    path, x : str
    channels, width : int
        Of each position that it reads and makes; where they differ, a third convolution has one for the other.
    temb : str
        The part that makes the embedding of time, of ``time_width`` numbers, which is projected and added; empty: none.
    time_width : int
    """
    a = parts.norm(f"{path}.norm1", (x,), channels, weights=2 * channels)
    a = parts.elementwise(f"{path}.nonlinearity", "activation", (a,), channels)
    a = add_convolution(parts, f"{path}.conv1", (a,), channels, width)
    reads = [a]
    if temb:
        stream, parts.stream = parts.stream, time_stream(path)
        reads.append(parts.linear(f"{path}.time_emb_proj", (temb,), time_width, width, bias=True))
        parts.stream = stream
    a = parts.norm(f"{path}.norm2", reads, width, weights=2 * width)
    a = parts.elementwise(f"{path}.nonlinearity_1", "activation", (a,), width)
    skip = x if channels == width else add_convolution(parts, f"{path}.conv_shortcut", (x,), channels, width, 1)
    return add_convolution(parts, f"{path}.conv2", (a, skip), width, width)


def time_stream(path: str) -> Stream:
    """Stream of what there is once a sample in a component."""
    return f"{path.partition('.')[0]}.time"


def add_embedder(parts: Parts, path: str, reads: Iterable[str], inner: int, width: int) -> str:
    """Add two products with an activation between, as times, sizes and pooled text are embedded by."""
    a = parts.linear(f"{path}.linear_1", reads, inner, width, bias=True)
    a = parts.elementwise(f"{path}.act", "activation", (a,), width)
    return parts.linear(f"{path}.linear_2", (a,), width, width, bias=True)


def add_feed_forward(
    parts: Parts, path: str, x: str, skips: tuple[str, ...], width: int, *, gated: bool = False
) -> str:
    """Add a feed-forward part of four times the width (``FeedForward``), gated (GEGLU) or not."""
    wide = 4 * width
    a = parts.linear(f"{path}.net.0.proj", (x,), width, 2 * wide if gated else wide, bias=True)
    a = parts.elementwise(f"{path}.net.0.act", "multiply" if gated else "activation", (a,), wide)
    return parts.linear(f"{path}.net.2", (a, *skips), wide, width, bias=True)


def add_attention(parts: Parts, path: str, reads: tuple[str, ...], width: int, heads: int, against: str = "") -> str:
    """Add an attention over all rows of its stream, or from them to the rows of ``against``, without its products."""
    return parts.add(
        Part(
            *(attention_named(path), "attention", parts.module, parts.layer, parts.stream, reads),
            width=width,
            pairs=2 * width,
            heads=heads,
            keys="all",
            against=against,
        )
    )


def add_scheduler(parts: Parts, x: str, stream: Stream, channels: int) -> str:
    """Add what makes the next latents of a prediction: guidance puts its halves together, and noise is taken off.

    It belongs to the part that it reads.
    """
    parts.stream = stream
    return parts.elementwise(f"{x}.scheduler", "scheduler", (x,), channels)
