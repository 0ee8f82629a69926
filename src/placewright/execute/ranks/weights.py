"""Weights of one rank: read from safetensors by name where the network was built without, and only those it uses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from placewright.capture.torch_weights import Weight
from placewright.errors import InvalidInput

__all__ = ["RankWeights", "drawn", "random_inputs", "read_tensor", "shards_of"]

LARGEST_INDEX_BYTES = 256 << 20
"""An index of shards is not read beyond this."""


class RankWeights(Mapping[str, Weight]):
    """The weights of a program, each read from its file when it is first asked for.

    Parameters
    ----------
    weights : mapping of node name to Weight
        On meta, or real: those stay as they are.
    shards : mapping of str to Path
        File of each tensor name.
    drawn : bool
        Whether weights on meta get random values, which depend on their names alone.
    """

    def __init__(self, weights: Mapping[str, Weight], shards: Mapping[str, Path], *, drawn: bool = False) -> None:
        self._weights, self._shards, self._drawn = dict(weights), shards, drawn
        self._read: dict[object, torch.Tensor] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)

    def __contains__(self, name: object) -> bool:
        return name in self._weights

    def __getitem__(self, name: str) -> Weight:
        weight = self._weights[name]
        if not weight.tensor.is_meta or not weight.tensor.numel() or not (self._shards or self._drawn):
            return weight
        if weight.storage not in self._read:
            self._read[weight.storage] = drawn(weight.target, weight.tensor) if self._drawn else self._tensor(weight)
        return replace(weight, tensor=self._read[weight.storage])

    def _tensor(self, weight: Weight) -> torch.Tensor:
        tied = [w.target for w in self._weights.values() if w.storage == weight.storage]
        found = next((t for t in (weight.target, *tied) if t in self._shards), None)
        if found is None:
            raise InvalidInput(
                f"weight {weight.target!r} is in none of the safetensors files; give all shards with --weights, or let "
                "the function build this one with values (buffers that are not saved)"
            )
        return read_tensor(self._shards[found], found, weight.tensor)


def read_tensor(file: Path, name: str, like: torch.Tensor) -> torch.Tensor:
    """Read one tensor of a safetensors file, in the type of another that has its shape.

    Raises
    ------
    InvalidInput
        If it has another shape.
    """
    from safetensors import safe_open

    with safe_open(file, framework="pt") as opened:
        tensor: torch.Tensor = opened.get_tensor(name)
    if tensor.shape != like.shape:
        raise InvalidInput(
            f"weight {name!r} has the shape {list(tensor.shape)} in {file.name!r} and "
            f"{list(like.shape)} in the network; plan the model whose weights these are"
        )
    return tensor.to(like.dtype)


def random_inputs(inputs: Any) -> Any:
    """Give inputs on meta values, equal on all ranks: whole numbers are 0 or 1, since they are indices as a rule."""
    return tree_map_only(torch.Tensor, lambda t: drawn("", t) if t.is_meta else t, inputs)


def drawn(name: str, like: torch.Tensor) -> torch.Tensor:
    """Draw values that follow from a name and a shape."""
    seed = int.from_bytes(hashlib.sha256(f"{name} {tuple(like.shape)}".encode()).digest()[:8], "little") >> 1
    generator = torch.Generator().manual_seed(seed)
    shape = tuple(like.shape)
    if not like.dtype.is_floating_point:
        return torch.randint(0, 2, shape, generator=generator).to(like.dtype)
    scale = 1.0 if not name or len(shape) < 2 else (shape[-1] ** -0.5)
    return torch.empty(shape, dtype=like.dtype).normal_(0.0, scale, generator=generator)


def shards_of(path: Path) -> dict[str, Path]:
    """File of each tensor, of a ``.safetensors`` file or of a folder with shards and maybe an index.

    Raises
    ------
    InvalidInput
        If there are none, or the index is no index or names files outside its folder.
    """
    from safetensors import safe_open

    files = [path] if path.is_file() else sorted(path.glob("*.safetensors"))
    index = path / "model.safetensors.index.json"
    if path.is_dir() and index.is_file():
        return _indexed(index)
    if not files:
        raise InvalidInput(f"{str(path)!r} holds no .safetensors file; give the file, or the folder of all shards")
    found: dict[str, Path] = {}
    for file in files:
        try:
            with safe_open(file, framework="pt") as opened:
                found.update(dict.fromkeys(opened.keys(), file))
        except Exception as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
            raise InvalidInput(f"{file.name!r} can't be read as safetensors: {first}; give another file") from None
    return found


def _indexed(index: Path) -> dict[str, Path]:
    try:
        if index.stat().st_size > LARGEST_INDEX_BYTES:
            raise InvalidInput(f"{index.name!r} is larger than {LARGEST_INDEX_BYTES} B; it is no index of shards")
        content = json.loads(index.read_text(encoding="utf-8"))
        files = dict(content["weight_map"])
        named = {str(name): str(file) for name, file in files.items()}
    except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
        raise InvalidInput(
            f"{index.name!r} is no index of shards ({type(error).__name__}); remove or mend it"
        ) from None
    outside = [file for file in named.values() if Path(file).name != file]
    if outside:
        raise InvalidInput(f"{index.name!r} names {outside[0]!r}, which is not in its folder; mend it")
    return {name: index.parent / file for name, file in named.items()}
