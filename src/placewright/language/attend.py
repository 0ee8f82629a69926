"""Attention and feed-forward parts with their projections apart, as encoders and the decoders beside them have them."""

from __future__ import annotations

from dataclasses import dataclass

from placewright.costs import LayerCache
from placewright.language.decoder import attention_named
from placewright.language.part import Keys, Part, Parts, Stream

__all__ = ["Attention", "add_attention", "add_pair"]


@dataclass(frozen=True, slots=True)
class Attention:
    """Shapes and names of an attention.

    Attributes
    ----------
    hidden, heads, width : int
        Numbers of a row; heads; numbers of a key.
    queries : tuple of str
        Queries, keys and values, apart or as one.
    output : str
    biases : tuple of bool
        Of each of them, the output last.
    weights : int
        Of its own, such as biases by distance.
    """

    hidden: int
    heads: int
    width: int
    queries: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    output: str = "out_proj"
    biases: tuple[bool, ...] = (True, True, True, True)
    weights: int = 0


def add_attention(
    parts: Parts,
    path: str,
    shape: Attention,
    x: str,
    skips: tuple[str, ...],
    *,
    keys: Keys = "all",
    cached: bool = False,
    source: str = "",
) -> str:
    """Add an attention; the name of what it makes.

    Parameters
    ----------
    parts : Parts
    path : str
    shape : Attention
    x : str
        What queries are made from, and keys and values where there is no ``source``.
    skips : tuple of str
        What is added to the result.
    keys : {"causal", "all"}
    cached : bool
        Whether keys and values are kept.
    source : str
        What keys and values are made from, in the stream ``source``.
    """
    inner = shape.heads * shape.width
    made = []
    stream: Stream = parts.stream
    widths = (inner,) * 3 if len(shape.queries) == 3 else (3 * inner,)
    for k, (name, to) in enumerate(zip(shape.queries, widths, strict=True)):
        parts.stream = "source" if source and k else stream
        made.append(
            parts.linear(f"{path}.{name}", (source if source and k else x,), shape.hidden, to, bias=shape.biases[k])
        )
    parts.stream = stream
    y = parts.add(
        Part(
            *(attention_named(path), "attention", parts.module, parts.layer, stream, tuple(made)),
            parameters=shape.weights,
            width=inner,
            pairs=2 * inner,
            heads=shape.heads,
            keys=keys,
            cache=LayerCache(2 * inner) if cached else None,
            cached="source" if source else "text",
        )
    )
    return parts.linear(f"{path}.{shape.output}", (y, *skips), inner, shape.hidden, bias=shape.biases[-1])


def add_pair(
    parts: Parts,
    names: tuple[str, ...],
    x: str,
    skips: tuple[str, ...],
    hidden: int,
    width: int,
    *,
    bias: bool = True,
    act: str = "",
) -> str:
    """Add products up and down, an activation between, and a gate where three are named; the name of what is made."""
    *ups, down = names
    made = [parts.linear(name, (x,), hidden, width, bias=bias) for name in ups]
    y = parts.elementwise(act or f"{down}.act", "multiply" if len(ups) > 1 else "activation", made, width)
    return parts.linear(down, (y, *skips), width, hidden, bias=bias)
