"""What is kept of the tensors saved for the backward pass when they are computed again layer by layer."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias, get_args

from placewright.errors import InvalidInput

__all__ = ["Recompute", "Saved", "as_recompute", "kept_bytes", "layer_of"]

Recompute: TypeAlias = Literal["none", "full"]

_NUMBERED = re.compile(r".*\d$")


class Saved(NamedTuple):
    """A storage that is saved for the backward pass.

    Attributes
    ----------
    operators : tuple of str
        That save it, by name, in their order.
    maker : str
        That made it.
    size_bytes : int
    """

    operators: tuple[str, ...]
    maker: str
    size_bytes: int


def as_recompute(name: str) -> Recompute:
    """Check a way to recompute."""
    for known in get_args(Recompute):
        if name == known:
            return known  # type: ignore[no-any-return]
    raise InvalidInput(f"--recompute {name!r} is unknown; use one of {', '.join(get_args(Recompute))}")


def layer_of(operator: str) -> str:
    """Name the layer of an operator: its module path up to the first numbered module; empty where there is none.

    Numbered modules that follow each other at once are one.

    Examples
    --------
    >>> layer_of("encoder.layer.3.attention.query"), layer_of("features.stage1.unit2.conv"), layer_of("head.add_1")
    ('encoder.layer.3', 'features.stage1.unit2', '')
    """
    path = operator.split(".")[:-1]
    numbered = [k for k, part in enumerate(path) if _NUMBERED.match(part)]
    if not numbered:
        return ""
    end = numbered[0]
    while end + 1 in numbered:
        end += 1
    return ".".join(path[: end + 1])


def kept_bytes(saved: Iterable[Saved], recompute: Recompute) -> tuple[dict[str, int], int]:
    """Find what each operator keeps for the backward pass of a micro-batch, and what is computed again at a time.

    A tensor counts at the first operator that saves it. With ``full`` every layer (:func:`layer_of`) is computed again
    just before its backward pass: of what its operators save only what comes from outside the layer is kept.

    Parameters
    ----------
    saved : iterable of Saved
    recompute : {"none", "full"}

    Returns
    -------
    dict of str to int
        Bytes by operator.
    int
        Bytes of what the largest layer computes again.

    Examples
    --------
    The layer keeps its input of 8 B, and makes its own 4 B anew:

    >>> saved = [Saved(("h.0.norm",), "embed", 8), Saved(("h.0.act", "h.0.out"), "h.0.fc", 4)]
    >>> kept_bytes(saved, "none"), kept_bytes(saved, "full")
    (({'h.0.norm': 8, 'h.0.act': 4}, 0), ({'h.0.norm': 8}, 4))
    """
    kept: dict[str, int] = {}
    again: dict[str, int] = {}
    for tensor in saved:
        own = layer_of(tensor.maker) if recompute == "full" else ""
        outside = [v for v in tensor.operators if not own or layer_of(v) != own]
        if outside:
            kept[outside[0]] = kept.get(outside[0], 0) + tensor.size_bytes
        if len(outside) < len(tensor.operators):
            again[own] = again.get(own, 0) + tensor.size_bytes
    return kept, max(again.values(), default=0)
