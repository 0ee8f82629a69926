"""What is kept of the tensors saved for the backward pass when they are computed again layer by layer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias, get_args

from placewright.errors import InvalidInput

__all__ = ["Recompute", "Storage", "as_recompute", "kept_bytes", "layers_of"]

Recompute: TypeAlias = Literal["none", "full"]


class Storage(NamedTuple):
    """What a tensor, with all views of it, holds during a forward pass.

    Attributes
    ----------
    maker : str
        Operator that made it, by name.
    size_bytes : int
    savers : tuple of str
        Operators that save it for the backward pass, in their order.
    readers : tuple of str
        Operators that read it, in their order.
    """

    maker: str
    size_bytes: int
    savers: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()


def as_recompute(name: str) -> Recompute:
    """Check a way to recompute."""
    for known in get_args(Recompute):
        if name == known:
            return known  # type: ignore[no-any-return]
    raise InvalidInput(f"--recompute {name!r} is unknown; use one of {', '.join(get_args(Recompute))}")


def layers_of(operators: Iterable[str]) -> dict[str, str]:
    """Find the layer of each operator: its module path up to the first module of a list; empty where there is none.

    A list's modules are called by a number, or by one word and different numbers. Such that follow each other at once
    are one.

    Examples
    --------
    >>> layers_of(["gpt2.h.3.attention.query", "gpt2.head.add_1"])
    {'gpt2.h.3.attention.query': 'gpt2.h.3', 'gpt2.head.add_1': ''}
    >>> set(layers_of([f"net2.stage{k}.unit{j}.conv" for k in (1, 2) for j in (1, 2)]).values()) == {
    ...     "net2.stage1.unit1", "net2.stage1.unit2", "net2.stage2.unit1", "net2.stage2.unit2"}
    True
    """
    paths = {name: name.split(".")[:-1] for name in operators}
    numbers: dict[tuple[str, ...], set[str]] = {}
    for path in paths.values():
        for k, part in enumerate(path):
            word = part.rstrip("0123456789")
            if word != part:
                numbers.setdefault((*path[:k], word), set()).add(part)

    def listed(path: list[str], k: int) -> bool:
        word = path[k].rstrip("0123456789")
        return word != path[k] and (not word or len(numbers[*path[:k], word]) > 1)

    found = {}
    for name, path in paths.items():
        start = next((k for k in range(len(path)) if listed(path, k)), len(path))
        end = next((k for k in range(start, len(path)) if not listed(path, k)), len(path))
        found[name] = ".".join(path[:end]) if start < len(path) else ""
    return found


def kept_bytes(storages: Iterable[Storage], recompute: Recompute) -> tuple[dict[str, int], int]:
    """Find what each operator keeps for the backward pass of a micro-batch, and what is computed again at a time.

    A storage counts at the first operator that saves it. With ``full`` each layer (:func:`layers_of`) is computed again
    just before its backward pass: what it makes itself goes, and what it reads from outside is kept, as its inputs.

    Parameters
    ----------
    storages : iterable of Storage
    recompute : {"none", "full"}

    Returns
    -------
    dict of str to int
        Bytes by operator.
    int
        Bytes of what the largest layer computes again.

    Examples
    --------
    The layer keeps its input of 8 B, which nothing saves, and makes its own 4 B anew:

    >>> made = [Storage("embed", 8, readers=("h.0.cast",)), Storage("h.0.cast", 4, ("h.0.fc",), ("h.0.fc",))]
    >>> kept_bytes(made, "none"), kept_bytes(made, "full")
    (({'h.0.fc': 4}, 0), ({'h.0.cast': 8}, 4))
    """
    storages = list(storages)
    layer = layers_of({name: None for s in storages for name in (s.maker, *s.savers, *s.readers)})
    kept: dict[str, int] = {}
    again: dict[str, int] = {}
    for storage in storages:
        own = layer[storage.maker] if recompute == "full" else ""
        outside = [v for v in storage.savers if not own or layer[v] != own]
        if recompute == "full":
            outside += [v for v in storage.readers if layer[v] not in ("", own)]
        if outside:
            kept[outside[0]] = kept.get(outside[0], 0) + storage.size_bytes
        if own and any(layer[v] == own for v in storage.savers):
            again[own] = again.get(own, 0) + storage.size_bytes
    return kept, max(again.values(), default=0)
