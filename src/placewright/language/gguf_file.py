"""The head of a GGUF file: what it says of its model, and name and bytes of each tensor. No weight is read.

The format is llama.cpp's (docs/gguf.md of ggml). The file is untrusted: every length is compared with what is left of
the file, and with a limit, before anything is read for it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

from placewright.errors import InvalidInput
from placewright.io.reading import checked_size
from placewright.units import format_bytes

__all__ = ["GgufHead", "read_gguf"]

MOST_KEYS, MOST_TENSORS, MOST_DIMENSIONS = 65_536, 1_000_000, 8
LONGEST_TEXT_BYTES = 2**20
LONGEST_ARRAY = 2**22
MOST_KEPT = 4096
"""Numbers of an array that are kept; of longer ones, and of texts, only the length is."""
MOST_FILES = 1000

_BLOCKS = (
    "0:1:4 1:1:2 2:32:18 3:32:20 6:32:22 7:32:24 8:32:34 9:32:40 10:256:84 11:256:110 12:256:144 13:256:176 14:256:210 "
    "15:256:292 16:256:66 17:256:74 18:256:98 19:256:50 20:32:18 21:256:110 22:256:82 23:256:136 24:1:1 25:1:2 26:1:4 "
    "27:1:8 28:1:8 29:256:56 30:1:2 34:256:54 35:256:66 39:32:17 40:64:36 41:128:18"
)
BLOCKS: Mapping[int, tuple[int, int]] = MappingProxyType(
    {kind: (numbers, size) for kind, numbers, size in (map(int, text.split(":")) for text in _BLOCKS.split())}
)
"""Of each type of tensor: numbers of a block, and its bytes (``GGML_QUANT_SIZES`` of the package ``gguf``)."""

_NUMBERS: Mapping[int, str] = MappingProxyType(
    {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
)
_TEXT, _ARRAY = 8, 9
_PART_OF = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


@dataclass(frozen=True, slots=True)
class GgufHead:
    """What stands before the weights.

    Attributes
    ----------
    values : mapping
        By key; of long arrays the length.
    tensors : mapping of str to int
        Bytes of each tensor.
    shapes : mapping of str to tuple of int
        Of each tensor, the dimension that changes fastest first.
    """

    values: Mapping[str, Any]
    tensors: Mapping[str, int]
    shapes: Mapping[str, tuple[int, ...]]


def read_gguf(path: Path) -> GgufHead:
    """Read the head of a file, and of those beside it where it is one of several (``-00001-of-00003.gguf``).

    Raises
    ------
    InvalidInput
        If it is absent, truncated, of another format or version, or beyond a limit.
    """
    match = _PART_OF.search(path.name)
    files = [path]
    if match is not None:
        count = int(match[2])
        if not 1 <= count <= MOST_FILES:
            raise InvalidInput(f"is one of {count} files; at most {MOST_FILES} are read", what=f"GGUF {str(path)!r}")
        files = [path.with_name(f"{path.name[: match.start()]}-{k:05}-of-{match[2]}.gguf") for k in range(1, count + 1)]
    values: dict[str, Any] = {}
    tensors: dict[str, int] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for file in files:
        what = f"GGUF {str(file)!r}"
        size = checked_size(file, what)
        with file.open("rb") as opened:
            _Head(opened, size, what).read(values, tensors, shapes)
    return GgufHead(values, tensors, shapes)


@dataclass(slots=True)
class _Head:
    """One file, read from its start; never past its end."""

    file: BinaryIO
    left: int
    what: str

    def read(self, values: dict[str, Any], tensors: dict[str, int], shapes: dict[str, tuple[int, ...]]) -> None:
        size, whole = self.left, 0
        if self._bytes(4) != b"GGUF":
            raise InvalidInput("does not begin with 'GGUF'; give a file of that format", what=self.what)
        version = self._number("<I")
        if version not in (2, 3):
            raise InvalidInput(f"is of version {version}; 2 and 3 are read (little-endian)", what=self.what)
        count, keys = self._count("<Q", MOST_TENSORS, "tensors"), self._count("<Q", MOST_KEYS, "keys")
        for _ in range(keys):
            key = self._text()
            values[key] = self._value(self._number("<I"))
        for _ in range(count):
            name = self._text()
            dimensions = self._count("<I", MOST_DIMENSIONS, "dimensions")
            shape = tuple(self._number("<Q") for _ in range(dimensions))
            kind, _ = self._number("<I"), self._number("<Q")
            if name in tensors:
                raise InvalidInput(f"has two tensors {name!r}", what=self.what)
            tensors[name], shapes[name] = self._size(name, shape, kind), shape
            whole += tensors[name]
            if whole > size:
                raise InvalidInput(
                    f"tensors up to {name!r} have {format_bytes(whole)}, their file {format_bytes(size)}: truncated",
                    what=self.what,
                )

    def _size(self, name: str, shape: tuple[int, ...], kind: int) -> int:
        if kind not in BLOCKS:
            raise InvalidInput(f"tensor {name!r} is of the unknown type {kind}", what=self.what)
        numbers, size = BLOCKS[kind]
        if any(d > 2**40 for d in shape) or (shape and shape[0] % numbers):
            raise InvalidInput(f"tensor {name!r} has the shape {shape} of blocks of {numbers} numbers", what=self.what)
        return prod(shape) // numbers * size

    def _bytes(self, count: int) -> bytes:
        if count > self.left:
            raise InvalidInput("ends inside its head; it is truncated or no GGUF file", what=self.what)
        self.left -= count
        found = self.file.read(count)
        if len(found) != count:
            raise InvalidInput("ends inside its head; it is truncated or no GGUF file", what=self.what)
        return found

    def _number(self, kind: str) -> Any:
        return struct.unpack(kind, self._bytes(struct.calcsize(kind)))[0]

    def _count(self, kind: str, most: int, what: str) -> int:
        count: int = self._number(kind)
        if count > most:
            raise InvalidInput(f"has {count} {what}; at most {most} are read", what=self.what)
        return count

    def _text(self) -> str:
        return self._bytes(self._count("<Q", LONGEST_TEXT_BYTES, "bytes in a text")).decode("utf-8", "replace")

    def _value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self._text()
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])
        if kind != _ARRAY:
            raise InvalidInput(f"has a value of the unknown type {kind}", what=self.what)
        inner, count = self._number("<I"), self._count("<Q", LONGEST_ARRAY, "values in an array")
        if inner == _TEXT:
            for _ in range(count):
                self._text()
            return count
        if inner not in _NUMBERS:
            raise InvalidInput(f"has an array of the type {inner}, which is not read", what=self.what)
        width = struct.calcsize(_NUMBERS[inner])
        data = self._bytes(width * count)
        return [n for (n,) in struct.iter_unpack(_NUMBERS[inner], data)] if count <= MOST_KEPT else count
