"""What is known of an ONNX value: its shape and type; and which sizes an open dimension of an input gets."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placewright.capture.onnx_file import onnx_module
from placewright.capture.onnx_nodes import weight_names
from placewright.errors import InvalidInput

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto, TypeProto

__all__ = ["Value", "close_dimensions", "value_of_tensor", "value_of_type"]

_LOG = logging.getLogger(__name__)

_TYPES: dict[str, tuple[str, int]] = {
    "FLOAT": ("fp32", 32),
    "DOUBLE": ("fp64", 64),
    "FLOAT16": ("fp16", 16),
    "BFLOAT16": ("bf16", 16),
    "FLOAT8E4M3FN": ("fp8", 8),
    "FLOAT8E4M3FNUZ": ("fp8", 8),
    "FLOAT8E5M2": ("fp8", 8),
    "FLOAT8E5M2FNUZ": ("fp8", 8),
    "FLOAT8E8M0": ("fp8", 8),
    "FLOAT4E2M1": ("fp4", 4),
    "COMPLEX64": ("complex64", 64),
    "COMPLEX128": ("complex128", 128),
    "BOOL": ("bool", 8),
    "STRING": ("string", 128),
}
"""ONNX type -> (name, bits an element); integers follow from their names. Text is counted as a pointer and a length."""

_TYPICAL = (
    (re.compile(r"batch|^n$|num_?(images|samples)", re.I), 1),
    (re.compile(r"seq|len|time|token|frames", re.I), 128),
    (re.compile(r"height|width|^[hw]$", re.I), 224),
    (re.compile(r"channel", re.I), 3),
)
"""Name of an open dimension -> size that it gets when the caller gives none. Any other is 1."""


@dataclass(frozen=True, slots=True)
class Value:
    """Shape and type of one ONNX value.

    Attributes
    ----------
    shape : tuple of int
    dtype : str
        ``fp32``, ``int8``...; ``sequence`` for what is no tensor.
    bits : int
        Of one element.
    """

    shape: tuple[int, ...]
    dtype: str
    bits: int

    @property
    def elements(self) -> int:
        """Product of the shape."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Bytes in memory; types below 8 bits are packed."""
        return -(-self.elements * self.bits // 8)

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor, and no sequence, map or optional."""
        return self.dtype != "sequence"


def _type_name(element_type: int) -> tuple[str, int] | None:
    onnx = onnx_module()
    if element_type not in onnx.TensorProto.DataType.values() or element_type == onnx.TensorProto.UNDEFINED:
        return None
    name = onnx.TensorProto.DataType.Name(element_type)
    return _TYPES.get(name) or (name.lower(), int(re.sub(r"\D", "", name) or 8))


def value_of_type(kind: TypeProto) -> Value | None:
    """Shape and type that a type states; ``None`` where either is open."""
    if kind.HasField("sequence_type") or kind.HasField("map_type") or kind.HasField("optional_type"):
        return Value((), "sequence", 0)
    tensor = kind.tensor_type if kind.HasField("tensor_type") else kind.sparse_tensor_type
    name = _type_name(tensor.elem_type)
    if name is None or not tensor.HasField("shape"):
        return None
    if any(not d.HasField("dim_value") or d.dim_value < 0 for d in tensor.shape.dim):
        return None
    return Value(tuple(d.dim_value for d in tensor.shape.dim), *name)


def value_of_tensor(tensor: TensorProto) -> Value | None:
    """Shape and type of a weight; ``None`` for a type that is not known."""
    name = _type_name(tensor.data_type)
    return None if name is None else Value(tuple(tensor.dims), *name)


def close_dimensions(model: ModelProto, dim_overrides: Mapping[str, int] | None = None) -> dict[str, Value]:
    """Give every open dimension of a model's inputs a size, in place, and return the inputs.

    A dimension is open when it has a name or no size. It is called by that name, else ``input:axis``. What is not
    overridden gets a typical size by its name (1 for a batch, 128 for a sequence, 224 for an image's sides), and a
    warning is logged. A name that is a sum (``past + 1``) is added up.

    Parameters
    ----------
    model : ModelProto
    dim_overrides : mapping of str to int
        Sizes by the dimension's name.

    Returns
    -------
    dict of str to Value
        The inputs that are no weights, in the order of the file.

    Raises
    ------
    InvalidInput
        If an input has no shape, or an override is negative or names no open dimension.
    """
    overrides = dict(dim_overrides or {})
    violations = [
        f"dimension {name!r}: size {size} is below 0; give at least 0" for name, size in overrides.items() if size < 0
    ]
    guessed: dict[str, int] = {}
    opened: dict[str, None] = {}
    inputs: dict[str, Value] = {}
    weights = weight_names(model.graph)
    for given in model.graph.input:
        if given.name in weights:
            continue
        kind = given.type
        if kind.HasField("tensor_type") and not kind.tensor_type.HasField("shape"):
            violations.append(
                f"input {given.name!r} has no shape; set it with onnx.tools.update_model_dims or export it again"
            )
            continue
        rank = len(kind.tensor_type.shape.dim)
        for axis, d in enumerate(kind.tensor_type.shape.dim):
            if d.HasField("dim_value") and d.dim_value >= 0:
                continue
            name = d.dim_param or f"{given.name}:{axis}"
            opened[name] = None
            d.dim_value = _size(name, axis, rank, overrides, guessed, opened)
        value = value_of_type(kind)
        if value is None:
            violations.append(f"input {given.name!r} has a type that is not known; install a newer onnx")
        else:
            inputs[given.name] = value
    known = ", ".join(opened) or "none"
    violations += [f"no dimension is called {name!r}; open are: {known}" for name in overrides if name not in opened]
    if violations:
        raise InvalidInput(violations, what=f"ONNX graph {model.graph.name!r}")
    if guessed:
        shown = ", ".join(f"{name}={size}" for name, size in guessed.items())
        _LOG.warning("open dimensions of the inputs were set to %s; give dim_overrides for other sizes", shown)
    return inputs


def _size(
    name: str, axis: int, rank: int, overrides: Mapping[str, int], guessed: dict[str, int], opened: dict[str, None]
) -> int:
    if name in overrides:
        return overrides[name]
    if name in guessed:
        return guessed[name]
    terms = [term.strip() for term in name.split("+")]
    if len(terms) > 1 and all(terms):
        opened.update(dict.fromkeys(term for term in terms if not term.isdigit()))
        return sum(
            int(term) if term.isdigit() else _size(term, axis, rank, overrides, guessed, opened) for term in terms
        )
    by_name = (size for pattern, size in _TYPICAL if pattern.search(name))
    by_place = 224 if rank == 4 and axis >= 2 else 128 if axis == 1 and rank < 4 else 1
    size = next(by_name, 1 if axis == 0 or not name.endswith(f":{axis}") else by_place)
    guessed[name] = size
    return size
