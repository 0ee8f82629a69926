"""What goes between ranks that stay up and the process that started them: jobs, commands, replies, and tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

__all__ = [
    "Arrays",
    "Command",
    "Decoder",
    "Ready",
    "Reply",
    "ResidentJob",
    "Tensor",
    "TensorSpec",
    "array_of",
    "tensor_of",
    "tensors_of",
]

Arrays = dict[str, npt.NDArray[Any]]

BF16 = "bfloat16"
"""A type of tensors that numpy lacks: it is given and returned as float32."""


class TensorSpec(msgspec.Struct, frozen=True):
    """What an input or output must be; ``dtype`` in the words of numpy, and bfloat16."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """Type of the array that stands for it."""
        return _numpy_dtype(self.dtype)

    @property
    def count(self) -> int:
        """Numbers in it."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Bytes of that array."""
        return self.count * self.numpy_dtype.itemsize


class Tensor(msgspec.Struct, frozen=True):
    """A tensor with its values."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    content: bytes


class ResidentJob(msgspec.Struct, frozen=True):
    """What a rank is started for."""

    plan: str
    model: str | None
    weights: str | None
    timeout_s: float
    generate: bool
    """Whether it generates tokens, layer by layer, or runs the network operator by operator."""


class Decoder(msgspec.Struct, frozen=True):
    """What is to know of a decoder: the tokens that it has, those that end a text, and how many it can take."""

    vocabulary: int
    ends: tuple[int, ...]
    longest: int


class Ready(msgspec.Struct, frozen=True):
    """A rank's first word: it is ready, or why it can't be; ``refused`` where the input is bad."""

    error: str = ""
    refused: bool = False
    inputs: tuple[TensorSpec, ...] = ()
    decoder: Decoder | None = None
    modules: tuple[str, ...] = ()


class Command(msgspec.Struct, frozen=True):
    """What all ranks do next; every rank gets the same ones in the same order."""

    number: int
    kind: Literal["run", "step", "forget"]
    tensors: tuple[Tensor, ...] = ()
    stream: int = 0
    tokens: tuple[tuple[int, ...], ...] = ()
    pads: tuple[int, ...] = ()


class Reply(msgspec.Struct, frozen=True):
    """What a rank has after a command: outputs that it made, by their names, or the next token of each row."""

    number: int = -1
    error: str = ""
    tensors: tuple[Tensor, ...] = ()
    tokens: tuple[int, ...] | None = None


def tensor_of(name: str, array: npt.NDArray[Any], dtype: str = "") -> Tensor:
    """Pack an array; ``dtype`` may say what it stands for."""
    return Tensor(name, dtype or str(array.dtype), tuple(array.shape), array.tobytes())


def array_of(tensor: Tensor) -> npt.NDArray[Any]:
    """Unpack an array, of float32 where it stands for bfloat16."""
    return np.frombuffer(tensor.content, dtype=_numpy_dtype(tensor.dtype)).reshape(tensor.shape)


def tensors_of(arrays: Mapping[str, npt.NDArray[Any]]) -> tuple[Tensor, ...]:
    """Pack several arrays."""
    return tuple(tensor_of(name, array) for name, array in arrays.items())


def _numpy_dtype(name: str) -> np.dtype[Any]:
    return np.dtype("float32" if name == BF16 else name)
