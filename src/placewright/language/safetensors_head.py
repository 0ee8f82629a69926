"""Bytes of each tensor of a folder of safetensors files, from their heads. No weight is read.

A file begins with eight bytes that say how long its head is, a JSON object with type, shape and place of each tensor
(https://huggingface.co/docs/safetensors, "Format"). It is untrusted: bounded before it is read, and data when it is.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from placewright.errors import InvalidInput
from placewright.io.reading import checked_size, decode_json, read_bounded
from placewright.units import format_bytes

__all__ = ["safetensors_sizes"]

INDEX = "model.safetensors.index.json"
LARGEST_HEAD_BYTES = 100_000_000
"""As the format itself limits it."""
LARGEST_INDEX_BYTES = 2**27
MOST_FILES = 10_000


class _Index(msgspec.Struct):
    weight_map: dict[str, str]
    metadata: dict[str, Any] = {}


def safetensors_sizes(folder: Path) -> dict[str, int]:
    """Return the bytes of each tensor; empty where the folder holds no such files, or only some of those it lists.

    Raises
    ------
    InvalidInput
        If the index or a head is malformed, or names a file outside the folder.
    """
    index = folder / INDEX
    if index.is_file():
        what = f"index {str(index)!r}"
        listed = decode_json(read_bounded(index, "index", LARGEST_INDEX_BYTES), _Index, what).weight_map
        names = sorted(set(listed.values()))
        if outside := [name for name in names if Path(name).name != name or name in ("", ".", "..")]:
            raise InvalidInput(f"names {outside[0]!r}, which is no file in its folder", what=what)
        if len(names) > MOST_FILES:
            raise InvalidInput(f"names {len(names)} files; at most {MOST_FILES} are read", what=what)
        files = [folder / name for name in names]
    else:
        files = sorted(folder.glob("*.safetensors"))[: MOST_FILES + 1]
    if len(files) > MOST_FILES or not all(file.is_file() for file in files):
        return {}
    found: dict[str, int] = {}
    for file in files:
        for name, size in _head(file).items():
            if name in found:
                raise InvalidInput(f"holds tensor {name!r}, as another file does", what=f"weights {str(file)!r}")
            found[name] = size
    return found


def _head(file: Path) -> dict[str, int]:
    what = f"weights {str(file)!r}"
    size = checked_size(file, what)
    with file.open("rb") as opened:
        start = opened.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
        if length > min(LARGEST_HEAD_BYTES, size - 8):
            raise InvalidInput(
                f"says that its head has {length} bytes, of {format_bytes(size)}; truncated, or no safetensors file",
                what=what,
            )
        head = decode_json(opened.read(length), dict[str, Any], what)
    found, places = {}, []
    for name, entry in head.items():
        if name == "__metadata__":
            continue
        offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
        whole = isinstance(offsets, list) and len(offsets) == 2 and all(type(o) is int for o in offsets)
        if offsets is None or not whole or not 0 <= offsets[0] <= offsets[1] <= size - 8 - length:
            raise InvalidInput(f"tensor {name!r} is at {offsets}, which is not in the file; it is truncated", what=what)
        found[name] = offsets[1] - offsets[0]
        places.append((*offsets, name))
    for before, after in pairwise(sorted(place for place in places if place[0] < place[1])):
        if before[1] > after[0]:
            raise InvalidInput(f"tensors {before[2]!r} and {after[2]!r} overlap; write the file again", what=what)
    return found
