"""Tensors in requests and responses: JSON as the Open Inference Protocol writes them, or numpy's ``.npz``."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from placewright.errors import InvalidInput
from placewright.execute.serve.messages import Arrays, TensorSpec

__all__ = ["NPZ", "from_json", "from_npz", "largest_body", "to_json", "to_npz"]

NPZ = "application/x-npz"
"""Content type of a request or response that is an ``.npz`` file."""

HEADER_BYTES = 10_000
"""Beside its numbers an array in an ``.npz`` file has no more than this."""

_TEXT_BYTES = 32
"""A number in JSON takes no more than this."""

_DATATYPES = {
    "bool": "BOOL",
    **{f"{sign}int{bits}": f"{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"FP{bits}" for bits in (16, 32, 64)},
}

_NUMBERS: dict[str, set[type]] = {"b": {bool}, "u": {int}, "i": {int}, "f": {int, float}}
"""What a tensor of each kind is written with in JSON."""


class _JsonTensor(msgspec.Struct):
    name: str
    shape: list[int]
    datatype: str
    data: list[Any]


class _JsonRequest(msgspec.Struct):
    inputs: list[_JsonTensor]


def largest_body(inputs: Sequence[TensorSpec]) -> int:
    """Bytes above which a request is refused unread: those of its inputs written at length, and some for names."""
    return sum(_TEXT_BYTES * spec.count + HEADER_BYTES for spec in inputs) + HEADER_BYTES


def from_json(body: bytes, inputs: Sequence[TensorSpec]) -> Arrays:
    """Read ``{"inputs": [{"name": ..., "shape": [...], "datatype": "FP32", "data": [...]}]}``.

    Raises
    ------
    InvalidInput
        If it is something else, or not what the network was planned for.
    """
    try:
        request = msgspec.json.decode(body, type=_JsonRequest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"the body is no JSON object with 'inputs': {error}") from None
    known = _known([tensor.name for tensor in request.inputs], inputs)
    made: Arrays = {}
    for tensor in request.inputs:
        spec = known[tensor.name]
        wanted = _DATATYPES.get(str(spec.numpy_dtype), str(spec.numpy_dtype))
        if tensor.datatype != wanted or tuple(tensor.shape) != spec.shape:
            raise InvalidInput(
                f"input {spec.name!r} is {tensor.datatype} {tensor.shape} but was planned for as {wanted} "
                f"{list(spec.shape)}; give it so, or plan again for the new shape"
            )
        made[spec.name] = _array(tensor.data, spec)
    return made


def from_npz(body: bytes, inputs: Sequence[TensorSpec]) -> Arrays:
    """Read an ``.npz`` file with an array for each input; nothing in it is executed.

    Raises
    ------
    InvalidInput
        If it is none, or not what the network was planned for.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            names = archive.namelist()
            known = _known([name.removesuffix(".npy") for name in names], inputs)
            return {
                spec.name: _member(archive, name, spec) for name in names for spec in [known[name.removesuffix(".npy")]]
            }
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"the body can't be read as an .npz file: {error}; write it by numpy.savez") from None


def to_json(outputs: Arrays) -> bytes:
    """Write ``{"outputs": [...]}``; what is no number in JSON (NaN, infinity) is null."""
    rows = [
        {
            "name": name,
            "shape": list(array.shape),
            "datatype": _DATATYPES.get(str(array.dtype), str(array.dtype)),
            "data": array.reshape(-1).tolist(),
        }
        for name, array in outputs.items()
    ]
    return msgspec.json.encode({"outputs": rows})


def to_npz(outputs: Arrays) -> bytes:
    """Write an ``.npz`` file."""
    buffer = io.BytesIO()
    arrays: dict[str, Any] = dict(outputs)
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _known(names: Sequence[str], inputs: Sequence[TensorSpec]) -> dict[str, TensorSpec]:
    """Find inputs by name; all that is absent, unknown or given twice is told."""
    known = {spec.name: spec for spec in inputs}
    wrong = [f"input {name!r} is not given; give it by that name" for name in known if name not in names]
    shown = ", ".join(map(repr, known)) or "none"
    for name in dict.fromkeys(names):
        if name not in known:
            wrong.append(f"the network has no input {name[:100]!r}; its inputs: {shown}")
        elif names.count(name) > 1:
            wrong.append(f"input {name!r} is given more than once")
    if wrong:
        raise InvalidInput(wrong[:20])
    return known


def _array(data: list[Any], spec: TensorSpec) -> npt.NDArray[Any]:
    """Numbers of a tensor, flat or nested."""
    dtype = spec.numpy_dtype
    try:
        # As objects: of texts numpy would give each the room of the longest.
        given = np.asarray(data, dtype=object).reshape(-1)
        if given.size != spec.count or not set(map(type, given)) <= _NUMBERS[dtype.kind]:
            raise ValueError
        with np.errstate(over="ignore"):
            made = given.astype(dtype)
        if not np.isfinite(made).all():  # larger than the type goes
            raise ValueError
    except (ValueError, KeyError, OverflowError):
        raise InvalidInput(
            f"input {spec.name!r} needs {spec.count} numbers of the type {dtype} in its 'data'"
        ) from None
    return made.reshape(spec.shape)


def _member(archive: zipfile.ZipFile, name: str, spec: TensorSpec) -> npt.NDArray[Any]:
    limit = spec.size_bytes + HEADER_BYTES
    if archive.getinfo(name).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InvalidInput(f"input {spec.name!r} is packed otherwise than numpy does; write it by numpy.savez")
    with archive.open(name) as opened:
        content = opened.read(limit + 1)  # however little of the file it is packed into
    if len(content) > limit:
        raise InvalidInput(f"input {spec.name!r} is larger than its {spec.size_bytes} B")
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_columns, dtype = reader(file, max_header_size=HEADER_BYTES)
    if dtype.hasobject or dtype.newbyteorder("=") != spec.numpy_dtype or tuple(shape) != spec.shape:
        raise InvalidInput(
            f"input {spec.name!r} is {dtype} {list(shape)} but was planned for as {spec.numpy_dtype} "
            f"{list(spec.shape)}; give it so, or plan again for the new shape"
        )
    flat = np.frombuffer(content, dtype=dtype, offset=file.tell())
    if flat.size != spec.count:
        raise InvalidInput(f"input {spec.name!r} has {flat.size} numbers; its shape says another count")
    return flat.reshape(spec.shape, order="F" if by_columns else "C").astype(spec.numpy_dtype, order="C")
