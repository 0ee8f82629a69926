"""What the profiler asks a worker process to measure, what it answers, and how both travel."""

from __future__ import annotations

from typing import Any, BinaryIO

import msgspec

__all__ = [
    "Answer",
    "Conversion",
    "Input",
    "OnnxPieces",
    "OnnxUnit",
    "OnnxValues",
    "Setup",
    "Task",
    "TorchUnit",
    "receive",
    "send",
]

LARGEST_MESSAGE_BYTES = 2**31


class Setup(msgspec.Struct, frozen=True):
    """First message: whom the worker measures for; ``place``: a GPU, as torch names it."""

    device: str
    cores: tuple[int, ...]
    threads: int
    place: str = ""


class Input(msgspec.Struct, frozen=True):
    """A tensor to be made up: floats in [0, 1), integers in [0, ``below``), random; or the values given.

    ``warm``: it was just written when the operator starts, unlike a weight.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    below: int = 2
    strides: tuple[int, ...] = ()
    values: bytes = b""
    warm: bool = True


class OnnxUnit(msgspec.Struct, frozen=True, tag=True):
    """One ONNX model, timed as an operator in its network, or as a whole (``whole``: nothing is subtracted).

    ``path`` replaces ``model`` where the model is a file. ``blocked``: within the network its inputs are made by
    convolutions or what passes their layout on, so they may come in the runtime's own layout. ``view``: within the
    network it hands on what it reads.
    """

    inputs: tuple[Input, ...]
    model: bytes = b""
    path: str = ""
    whole: bool = False
    blocked: bool = False
    view: bool = False


class OnnxPieces(msgspec.Struct, frozen=True, tag=True):
    """A network as successive models: what they cost together, more than the whole."""

    inputs: tuple[Input, ...]
    path: str
    pieces: tuple[bytes, ...]


class OnnxValues(msgspec.Struct, frozen=True, tag=True):
    """The outputs of a model, by running it once."""

    inputs: tuple[Input, ...]
    model: bytes


class TorchUnit(msgspec.Struct, frozen=True, tag=True):
    """Calls of torch operators in turn; ``calls`` as :mod:`placewright.costs.profile_torch` encodes them."""

    inputs: tuple[Input, ...]
    calls: tuple[Any, ...]
    whole: bool = False


Task = OnnxUnit | OnnxPieces | OnnxValues | TorchUnit


class Conversion(msgspec.Struct, frozen=True):
    """A tensor's layout converted inside a network: for who reads it, or else by who makes it."""

    tensor: str
    for_reader: bool
    seconds: float


class Answer(msgspec.Struct, frozen=True):
    """Seconds of the task, of an empty call, and what went wrong (empty: nothing).

    ``conversions_s``: of layout, at both ends of an operator that is called by itself; not part of ``seconds``.
    ``within``: conversions inside a whole network, which none of its operators has when it is measured by itself.
    ``clock_hz``: of a GPU after the last call; 0: not known.
    """

    seconds: float = 0.0
    call_s: float = 0.0
    runs: int = 0
    values: tuple[Input, ...] = ()
    error: str = ""
    conversions_s: float = 0.0
    within: tuple[Conversion, ...] = ()
    clock_hz: float = 0.0


def send(stream: BinaryIO, message: msgspec.Struct) -> None:
    """Write a message with its length before it."""
    body = msgspec.msgpack.encode(message)
    stream.write(len(body).to_bytes(8, "little"))
    stream.write(body)
    stream.flush()


def receive(stream: BinaryIO) -> bytes:
    """Read a message; ``b""`` at the end of the stream."""
    head = stream.read(8)
    size = int.from_bytes(head, "little")
    if len(head) < 8 or size > LARGEST_MESSAGE_BYTES:
        return b""
    body = stream.read(size)
    return body if len(body) == size else b""
